"""Random programs, forward and backward, against PyTorch in f64, compiled."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests import fuzzing, gradient_fuzzer
from tests.api_fuzzer import Program, Step, drawn, shrunk
from tests.gradient_fuzzer import agrees, check_programs, smooth


def test_gradients_of_programs_are_pytorchs() -> None:
    pytest.importorskip("torch")
    check_programs(fuzzing.count(80))


def test_every_program_is_compared_but_those_without_floats() -> None:
    pytest.importorskip("torch")
    counts: Counter[tuple[str, str]] = Counter()
    compared = 0
    for case in range(20):
        program = smooth(drawn(random.Random(f"compared {case}"), 6, counts))
        wanted = gradient_fuzzer.theirs(program)
        compared += any(np.abs(w).max(initial=0) > 0 for w in wanted)
    assert compared > 10


def test_statistics_of_a_batch_norm_have_gradients_to_compare_with() -> None:
    """PyTorch refuses to give them."""
    pytest.importorskip("torch")
    given = {"v0": (2, 3, 4), "v1": (3,), "v2": (3,)}
    inputs = {n: (np.linspace(0.5, 2, np.prod(s)).reshape(s), "float64") for n, s in given.items()}
    step = Step("v3", "batch_norm", "F.batch_norm(v0, v1, v1 * v1 + 1, v2, v1)")
    program = Program(inputs, (step,), ("v3",))
    assert agrees(program) == ""
    assert all(np.abs(w).min() > 0 for w in gradient_fuzzer.theirs(program))


def test_operation_that_pytorch_lacks_is_compared_with_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dilated convolution of bytes is one, beside floats that have gradients."""
    pytest.importorskip("torch")
    inputs = {
        "v0": (np.arange(24, dtype=np.int8).reshape(2, 1, 2, 6), "int8"),
        "v1": (np.array([2, -3, 4], np.int8).reshape(1, 1, 1, 3), "int8"),
        "v2": (np.array([0.7, -1.3]).reshape(2, 1, 1, 1), "float64"),
    }
    steps = (
        Step("v3", "conv2d", "F.conv2d(v0, v1, None, stride=1, padding=0, dilation=2, groups=1)"),
        Step("v4", "mul", "(v3 * v2.sin())"),
    )
    program = Program(inputs, steps, ("v4",))
    with pytest.raises(NotImplementedError):
        gradient_fuzzer.theirs(program)
    assert agrees(program) == ""
    right = gradient_fuzzer.ours
    monkeypatch.setattr(
        gradient_fuzzer, "ours", lambda p, again: [g * 1.01 for g in right(p, again)]
    )
    assert "differences" in agrees(program)


def test_quotients_of_integers_are_compared_as_far_as_f32_rounds() -> None:
    """PyTorch's are f64 where that is its default: a fuzzer's find."""
    pytest.importorskip("torch")
    inputs = {
        "v0": (np.arange(12, dtype=np.int64).reshape(4, 3), "int64"),
        "v1": (np.array([0.7, -1.3, 0.2]), "float64"),
    }
    steps = (
        Step("v2", "reciprocal", "(v0.abs() + 1).reciprocal()"),
        Step("v3", "layer_norm", "F.layer_norm(v2, (3,), v1, eps=0.1)"),
    )
    assert agrees(Program(inputs, steps, ("v3",))) == ""


def test_what_moves_where_results_are_rounded_otherwise_is_no_fault() -> None:
    """Which of two nearly equal numbers is the greatest is decided by a rounding."""
    pytest.importorskip("torch")
    x = np.array([1.25, 1.25 + 2**-51, 0.5])
    step = Step("v1", "amax", "(v0 * 3.7).amax(0)")
    program = Program({"v0": (x, "float64")}, (step,), ("v1",))
    (right,) = gradient_fuzzer.ours(program)
    other, wrong = right[[1, 0, 2]], right[[0, 2, 1]]
    assert gradient_fuzzer.agrees(program, made=[right]) == ""
    assert gradient_fuzzer.agrees(program, made=[other]) == ""
    assert "is not PyTorch's" in gradient_fuzzer.agrees(program, made=[wrong])


def test_wrong_rule_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    steps = (
        Step("v1", "scalar", "(v0 * 3)"),
        Step("v2", "flip", "v1.flip([1])"),
        Step("v3", "tanh", "v2.tanh()"),
        Step("v4", "neg", "v0.neg()"),
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    program = smooth(Program({"v0": (x, "float32")}, steps, ("v3", "v4")))
    assert agrees(program) == ""
    right = gradient_fuzzer.ours

    def wrong(p: Program, again: bool) -> Any:
        """Gradients of a tanh that is taken for something else."""
        return [g * 2 if any(s.op == "tanh" for s in p.steps) else g for g in right(p, again)]

    monkeypatch.setattr(gradient_fuzzer, "ours", wrong)
    small = shrunk(program, lambda p: bool(agrees(p)))
    assert [s.op for s in small.steps] == ["tanh"]


def test_second_derivatives_of_programs_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(3).uniform(0.2, 1.5, (2, 3, 4))

    def slope(T: Any, F: Any, x: Any, grad: Any) -> Any:  # namespaces
        def loss(x: Any) -> Any:
            y = F.layer_norm(x, (4,)).softmax(1) * F.gelu(x)
            return (F.max_pool2d(y, (3, 2)) ** 2).sum() + T.cumprod(x, 1).logsumexp(2).sum()

        return grad(loss)(x)

    def pytorchs(loss: Any) -> Any:
        return lambda x: torch.autograd.grad(loss(x), x, create_graph=True)[0]

    given = torch.tensor(x, requires_grad=True)
    first = slope(torch, torch.nn.functional, given, pytorchs)
    (second,) = torch.autograd.grad((first**2).sum(), given)
    ours = tg.grad(lambda x: (slope(tg, tg.nn.functional, x, tg.grad) ** 2).sum())(x)
    np.testing.assert_allclose(ours.numpy(), second.numpy(), rtol=1e-8, atol=1e-8)
