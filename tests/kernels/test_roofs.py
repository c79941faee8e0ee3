"""The roofs of this machine, and the sizes of its memory on the chip."""

from __future__ import annotations

import datetime
import importlib

import pytest
import torch

from kernels.traffic import roofs

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def small(monkeypatch):
    """Sizes for a test."""
    monkeypatch.setitem(roofs.COPY_BYTES, "cpu", 2**22)
    monkeypatch.setitem(roofs.SIDE, "cpu", 128)


def test_roofs_of_a_cpu(small):
    found = roofs.measure_roofs(CPU)
    assert 1e8 < found.bytes_per_s < 1e13
    assert 1e8 < found.flops_per_s < 1e14
    assert found.dtype == "float32"
    assert found.machine.startswith("CPU, ")
    taken = datetime.datetime.fromisoformat(found.when)
    assert abs(taken - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=1)


def test_bytes_are_read_and_written_and_operations_are_two(small, monkeypatch):
    monkeypatch.setattr(roofs, "median_s", lambda work, device: (work(), 0.5)[1])
    assert roofs.copied_bytes_per_s(CPU) == 2 * 2**22 / 0.5
    assert roofs.product_flops_per_s(CPU, torch.float32) == 2 * 128**3 / 0.5


def test_the_copy_leaves_room_for_others(small, monkeypatch):
    monkeypatch.setattr(roofs, "free_bytes", lambda device: 2**20)
    monkeypatch.setattr(roofs, "median_s", lambda work, device: 1.0)
    assert roofs.copied_bytes_per_s(CPU) == 2 * 2**18


def test_the_median_of_ten_or_of_three_slow_ones(monkeypatch):
    for each_s, samples in ((0.001, 10), (0.1, 5), (9.0, 3)):
        taken = iter([each_s, *range(1, samples + 1)])
        monkeypatch.setattr(roofs, "seconds_of", lambda *_, taken=taken: next(taken))
        assert roofs.median_s(lambda: None, CPU) == (samples + 1) / 2
        assert next(taken, None) is None


def test_a_cpu_has_nothing_to_show_on_chip():
    assert roofs.on_chip(CPU) is None


def test_a_gpu_tells_its_sizes(monkeypatch):
    class Properties:
        shared_memory_per_multiprocessor = 102_400
        multi_processor_count = 84
        L2_cache_size = 6 * 2**20

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties())
    assert roofs.on_chip(GPU) == roofs.OnChip(102_400, 84, 6 * 2**20)


def test_the_recorded_h200_agrees_with_the_compiler():
    compiled = importlib.import_module("kernels.compiled")
    assert roofs.H200_ON_CHIP.sram_bytes_per_sm - 1024 == compiled.SHARED_BYTES["sm_90"]


@pytest.mark.gpu
def test_a_real_gpu():
    found = roofs.measure_roofs(GPU)
    assert found.bytes_per_s > 1e11
    assert found.flops_per_s > 1e12
    assert found.machine == torch.cuda.get_device_name()
    chip = roofs.on_chip(GPU)
    assert chip is not None
    if "H200" in found.machine:
        assert chip == roofs.H200_ON_CHIP
