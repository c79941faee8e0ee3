"""The start-up self-test passes on a right kernel and fails on each wrong one."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from kernels import registry, self_test
from kernels.torch_cpu_flash import IMPLEMENTATION, forward
from tests.kernels.conftest import cases


@pytest.mark.parametrize(
    ("name", "device", "dtype"), cases(["auto", "eager", "torch-cpu-flash", "fa2"])
)
def test_right_kernels_pass(name, device, dtype):
    if name == "torch-cpu-flash" and device == "cuda":
        pytest.skip("torch-cpu-flash runs on the CPU only.")
    found = self_test(name, device, dtype)
    assert found.passed, found.sentence
    assert found.largest_error < 3e-2


def base_two(q, k, v, scale, causal):
    output, lse = forward(q, k, v, scale, causal)
    return output, lse / math.log(2)


def tail_forgotten(q, k, v, scale, causal):
    keep = max(1, k.shape[2] // 64 * 64)
    return forward(q, k[:, :, :keep], v[:, :, :keep], scale, causal)


def padding_counted(q, k, v, scale, causal):
    output, lse = forward(q, k, v, scale, causal)
    return output, torch.logaddexp(lse, torch.tensor(float(-k.shape[2] % 64)).log())


def wrong_output(q, k, v, scale, causal):
    output, lse = forward(q, k, v, scale, causal)
    return output * 1.01, lse


def not_a_number(q, k, v, scale, causal):
    output, lse = forward(q, k, v, scale, causal)
    return output, lse * torch.nan


def refuses(q, k, v, scale, causal):
    raise RuntimeError("no kernel image\nsecond line")


@pytest.mark.parametrize(
    "broken",
    [base_two, tail_forgotten, padding_counted, wrong_output, not_a_number, refuses],
    ids=lambda f: f.__name__,
)
def test_wrong_kernels_fail(broken, monkeypatch):
    wrong = dataclasses.replace(IMPLEMENTATION, name="eager", forward=broken)
    monkeypatch.setattr("kernels.operator.load", lambda name: wrong)
    found = self_test("eager", device="cpu", dtype=torch.float32)
    assert not found.passed
    assert found.sentence.endswith("no map is drawn.")
    assert "\n" not in found.sentence
    assert registry.load("eager") is not wrong
