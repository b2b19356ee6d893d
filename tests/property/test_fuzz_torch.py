"""Drawn modules through ``torch.compile`` and ``from_torch``, beside PyTorch."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import replace

import pytest

from tests import fuzzing

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("tunegrad.torch")

from tests import torch_fuzzer  # noqa: E402 - it needs PyTorch
from tests.api_fuzzer import PyTorchFault  # noqa: E402
from tests.torch_fuzzer import differs, wrong  # noqa: E402

COUNT = 30
EACH = 10
"""Cases of one test: what a process runs at a time."""


@pytest.mark.parametrize("part", range(-(-fuzzing.count(COUNT) // EACH)))
def test_drawn_modules_give_what_pytorch_gives(part: int) -> None:
    for i in range(part * EACH, min((part + 1) * EACH, fuzzing.count(COUNT))):
        case = torch_fuzzer.case_of(fuzzing.rng("torch", i))
        for door in torch_fuzzer.doors(case, i):
            said = differs(case, door)
            if wrong(said):
                small = torch_fuzzer.shrunk(case, lambda c, d=door: wrong(differs(c, d)))
                pytest.fail(
                    f"case {i} of seed {fuzzing.seed()} through {door}: {said}\nthe smallest:\n"
                    f"{small}\n{differs(small, door)}"
                )
            if said:
                warnings.warn(f"{said}\n{case}", PyTorchFault, stacklevel=1)


def test_every_operation_is_drawn_and_most_pairs_are() -> None:
    pairs: Counter[tuple[str, str]] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(150):
            pairs += torch_fuzzer.pairs_of(torch_fuzzer.draw(random.Random(f"pairs {i}")).program)
    drawn = {name for _, name in pairs}
    assert len(drawn) > 0.9 * len(torch_fuzzer.OPERATIONS)
    assert {"pad_edges", "write_input"} < drawn  # of few shapes, and as a first step alone
    assert len(pairs) > 500


def test_a_failing_program_is_cut_down_to_the_steps_that_fail() -> None:
    """What fails here is any program in which a softmax reads a relu."""

    def fails(case: torch_fuzzer.Case) -> bool:
        return ("relu", "softmax") in torch_fuzzer.pairs_of(case.program)

    step = torch_fuzzer.Step
    steps = (
        step("abs", (0,)), step("relu", (1,)), step("tanh", (2,)), step("softmax", (2,), (-1,)),
        step("add", (3, 4)), step("neg", (5,)),
    )  # fmt: skip
    case = torch_fuzzer.Case(torch_fuzzer.Program(1, steps, (6, 3)), (torch.randn(3, 4),))
    small = torch_fuzzer.shrunk(case, fails)
    assert [s.name for s in small.program.steps] == ["relu", "softmax"]
    assert differs(small, "compile") == ""


def test_a_planted_fault_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunegrad.frontend.torch.aten import TABLE

    def wrong(x: object, dims: list[int]) -> object:
        return x.flip(*dims).tanh() if dims else x  # type: ignore[attr-defined]

    monkeypatch.setitem(TABLE, "flip.default", wrong)
    step = torch_fuzzer.Step
    steps = (step("sin", (0,)), step("flip", (1,), (0,)), step("add", (1, 2)), step("neg", (3,)))
    case = torch_fuzzer.Case(torch_fuzzer.Program(1, steps, (4,)), (torch.randn(3, 4),))
    assert "flip" in differs(case, "compile")
    small = torch_fuzzer.shrunk(case, lambda c: bool(differs(c, "compile")))
    assert [s.name for s in small.program.steps] == ["flip"]
    assert replace(small.program, steps=()).count == 1


def test_a_fault_of_freezing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call's check does not see it: PyTorch runs the graph with the same weights."""
    from tunegrad import torch as backends

    def wrong(graph: object, examples: list[torch.Tensor]) -> list[int]:
        parameter = torch.nn.Parameter
        return right(graph, [parameter(2 * x) if isinstance(x, parameter) else x for x in examples])

    case, right = _one("linear", torch.randn(3, 4), 4, 2), backends._frozen
    assert differs(case, "frozen") == ""
    monkeypatch.setattr(backends, "_frozen", wrong)
    assert "elements, by" in differs(case, "frozen")
    assert differs(case, "compile") == ""


def test_products_of_nothing_are_drawn() -> None:
    """Their results are zeros, or nothing."""
    a, b = torch.ones(2, 4, 0), torch.ones(2, 0, 3)
    assert torch_fuzzer.OPERATIONS["matmul"].draw(random.Random(0), a, b) == ()
    step = torch_fuzzer.Step("matmul", (0, 1))
    case = torch_fuzzer.Case(torch_fuzzer.Program(2, (step,), (2,)), (a, b))
    assert differs(case, "compile") == differs(case, "from_torch") == ""


def _one(name: str, x: torch.Tensor, *args: object) -> torch_fuzzer.Case:
    step = torch_fuzzer.Step(name, (0,), args)
    return torch_fuzzer.Case(torch_fuzzer.Program(1, (step,), (1,)), (x,))


def test_what_moves_where_results_are_rounded_otherwise_is_no_fault() -> None:
    """All but the last element are integers before they are truncated: 1, or just below it."""
    case = _one("to_int", torch.tensor([0.25] * 300 + [0.3]))
    want = torch_fuzzer._eager(case, 0)
    below, other = want[0].clone(), want[0].clone()
    below[:-1:2] -= 1
    other[-1] -= 1
    said = torch_fuzzer._held(case, 0, [below, *want[1:]], want)
    assert said == "judged: rounded otherwise: call 1, value 0: 150 of 301 elements, by 1.0"
    assert wrong(torch_fuzzer._held(case, 0, [other, *want[1:]], want))


def test_nan_and_infinities_are_results() -> None:
    """The gradient of the root at 0 behind ``abs`` is 0 times infinity."""
    nan, inf = torch.nan, torch.inf
    want = torch.tensor([nan, inf, -inf, 1.0, 2.0])
    assert not torch_fuzzer._far(want.clone(), want)
    for place, value in ((0, 1.0), (1, 1.0), (1, -inf), (1, nan), (3, nan), (3, inf), (3, 1.1)):
        got = want.clone()
        got[place] = value
        assert torch_fuzzer._far(got, want).startswith("1 of 5 elements")
    case = _one("sqrt", torch.tensor([0.0, 1.0, 4.0]))
    assert torch_fuzzer._trained(case, 0)[1].isnan().tolist() == [True, False, False]
    assert not differs(case, "train")


@pytest.mark.parametrize("way", ["copies", "decompositions"])
def test_what_pytorch_computes_in_two_ways_with_two_results_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    case = _one("softmax", torch.linspace(-1, 1, 12).reshape(3, 4), -1)
    eager = torch_fuzzer._eager

    def off(
        case: torch_fuzzer.Case, turn: int, copies: bool = False, mode: object = None
    ) -> object:
        right = copies if way == "copies" else isinstance(mode, torch_fuzzer._Decomposed)
        outputs, *rest = eager(case, turn, copies, mode)
        return [outputs + (0.0 if right else 0.5), *rest]

    monkeypatch.setattr(torch_fuzzer, "_eager", off)
    assert differs(case, "compile").startswith(f"judged: {way}: call 1")
    monkeypatch.setattr(torch_fuzzer, "_eager", lambda *_, **__: [x + 0.5 for x in eager(case, 0)])
    assert wrong(differs(case, "compile"))


def test_a_gradient_that_pytorchs_own_backend_has_is_no_fault() -> None:
    """AOTAutograd gives another gradient of windows that overlap, where they are an output."""
    step = torch_fuzzer.Step
    steps = (step("leaky_relu", (0,)), step("windows", (1,), (2, 5, 1)))
    values = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    case = torch_fuzzer.Case(torch_fuzzer.Program(1, steps, (2,)), (values,))
    assert differs(case, "train").startswith("judged: its own backend") or not differs(
        case, "train"
    )


def test_an_error_of_pytorchs_own_backend_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: torch_fuzzer.Case) -> object:
        raise RuntimeError("not there")

    monkeypatch.setattr(torch_fuzzer, "_compile", refused)
    case = _one("sin", torch.ones(3))
    assert wrong(differs(case, "compile"))
    monkeypatch.setattr(torch_fuzzer, "_traced", refused)
    assert differs(case, "compile") == "judged: RuntimeError: not there"
