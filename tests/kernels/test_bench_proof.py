"""What is timed is first proved right: right answers pass, planted errors do not."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kernels import reference
from kernels.bench import proof
from kernels.bench.contestants import WORKS, make_inputs, save
from kernels.eager import IMPLEMENTATION as EAGER
from kernels.problem import Problem
from kernels.registry import load

CPU = torch.device("cpu")
PROBLEMS = [
    Problem(1, 2, 65, 65, 40, "float32"),
    Problem(2, 2, 33, 33, 64, "float16", causal=True),
    Problem(1, 4, 30, 70, 32, "float32", causal=True, kv_heads=2),
    Problem(1, 1, 70, 30, 32, "float32", causal=True),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_right_answers_pass_and_planted_errors_do_not(problem):
    inputs = make_inputs(problem, CPU)
    truth = proof.SampledRows.of(inputs)
    output, lse = EAGER.forward(*inputs.forward)
    truth.check(output, lse)
    for off in (1.03, torch.nan):
        with pytest.raises(proof.WrongAnswer, match="the output"):
            truth.check(output * off, lse)
        with pytest.raises(proof.WrongAnswer, match="lse"):
            truth.check(output, lse + off)
    with pytest.raises(proof.WrongAnswer, match="not"):
        truth.check(output[..., :-1], lse)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_planted_errors_in_gradients_are_found(problem):
    inputs = make_inputs(problem, CPU)
    truth = proof.SampledGradients.of(inputs)
    grads = WORKS["backward"](EAGER, inputs)()
    truth.check(*grads)
    for which, name in enumerate("qkv"):
        for off in (1.05, torch.nan):
            wrong = [g * off if number == which else g for number, g in enumerate(grads)]
            with pytest.raises(proof.WrongAnswer, match=f"gradient of {name}"):
                truth.check(*wrong)


def test_the_rounding_of_a_stored_dp_is_no_error():
    """The first query of a causal mask sees one key: dP - delta is 0, or what storing dP has rounded away."""
    inputs = make_inputs(Problem(1, 6, 2000, 2000, 64, "bfloat16", causal=True), CPU)
    truth = proof.SampledGradients.of(inputs)
    places = truth.query, truth.key, truth.key
    grads = [torch.zeros_like(t) for t in (inputs.q, inputs.k, inputs.v)]
    for grad, place, exact in zip(grads, places, truth.truth, strict=True):
        grad[:, :, place] = exact.bfloat16()
    delta = (inputs.grad_output[:, :, 0].float() * inputs.v[:, :, 0].float()).sum(-1, keepdim=True)
    grads[0][:, :, 0] = inputs.scale * (delta.bfloat16() - delta) * inputs.k[:, :, 0].float()
    truth.check(*grads, stores=True)
    with pytest.raises(proof.WrongAnswer, match="gradient of q"):
        truth.check(*grads)
    grads[0][:, :, 0] *= 4
    with pytest.raises(proof.WrongAnswer, match="gradient of q"):
        truth.check(*grads, stores=True)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_sampled_truth_is_the_reference(problem, monkeypatch):
    monkeypatch.setattr(proof, "SCORES_AT_ONCE", 1000)  # a few queries at a time
    inputs = make_inputs(problem, CPU)
    rows, gradients = proof.SampledRows.of(inputs), proof.SampledGradients.of(inputs)
    output, lse = reference.attention(*inputs.forward)
    torch.testing.assert_close(rows.output, output[:, :, rows.index])
    torch.testing.assert_close(rows.log_sum_exp, lse[:, :, rows.index])
    grads = reference.gradients(*inputs.forward, inputs.grad_output)
    picked = (gradients.query, gradients.key, gradients.key)
    for truth, whole, index in zip(gradients.truth, grads, picked, strict=True):
        torch.testing.assert_close(truth, whole[:, :, index])


@pytest.mark.parametrize("name", ["one-row", "one-column", "product"])
def test_a_planted_error_in_a_part_is_found(name, monkeypatch):
    problem = PROBLEMS[2]
    proof.check_part(name, problem, CPU)
    right = proof.PARTS[name]
    off = {name: lambda inputs, lse: lambda: right(inputs, lse)() * 1.01}
    monkeypatch.setattr(proof, "PARTS", off)
    with pytest.raises(proof.WrongAnswer, match=name):
        proof.check_part(name, problem, CPU)


def test_the_small_problem_has_the_same_tail():
    small = proof.small_like(Problem(4, 6, 21905, 1370, 64, "bfloat16", causal=True))
    assert (small.queries % 256, small.keys % 256) == (21905 % 256, 1370 % 256)
    assert (small.batch, small.heads, small.causal) == (1, 6, True)
    assert proof.small_like(PROBLEMS[0]) == PROBLEMS[0]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_torch_differentiates_what_has_no_backward(problem):
    inputs = make_inputs(problem, CPU)
    plain = dataclasses.replace(EAGER, backward=None, forward_keeping=None, differentiable=True)
    work, expected = (WORKS["backward"](chosen, inputs) for chosen in (plain, EAGER))
    for _ in range(2):  # the graph is still there the second time
        for ours, theirs in zip(work(), expected(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)


def test_what_stores_p_hands_it_on():
    inputs = make_inputs(PROBLEMS[0], CPU)
    assert save(EAGER, inputs).kept.shape == (1, 2, 65, 65)
    assert save(load("torch-cpu-flash"), inputs).kept.numel() == 0
