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

COUNT = 60
EACH = 10
"""Cases of one test: what a process runs at a time."""


@pytest.mark.parametrize("part", range(-(-fuzzing.count(COUNT) // EACH)))
def test_drawn_modules_give_what_pytorch_gives(part: int) -> None:
    for i in range(part * EACH, min((part + 1) * EACH, fuzzing.count(COUNT))):
        case = torch_fuzzer.case_of(fuzzing.rng("torch", i))
        for door in torch_fuzzer.doors(case, i):
            said = torch_fuzzer.differs(case, door)
            if said:
                small = torch_fuzzer.shrunk(
                    case, lambda c, d=door: bool(torch_fuzzer.differs(c, d))
                )
                pytest.fail(
                    f"case {i} of seed {fuzzing.seed()} through {door}: {said}\nthe smallest:\n"
                    f"{small}\n{torch_fuzzer.differs(small, door)}"
                )


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
    assert torch_fuzzer.differs(small, "compile") == ""


def test_a_planted_fault_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunegrad.frontend.torch.aten import TABLE

    def wrong(x: object, dims: list[int]) -> object:
        return x.flip(*dims).tanh() if dims else x  # type: ignore[attr-defined]

    monkeypatch.setitem(TABLE, "flip.default", wrong)
    step = torch_fuzzer.Step
    steps = (step("sin", (0,)), step("flip", (1,), (0,)), step("add", (1, 2)), step("neg", (3,)))
    case = torch_fuzzer.Case(torch_fuzzer.Program(1, steps, (4,)), (torch.randn(3, 4),))
    assert "flip" in torch_fuzzer.differs(case, "compile")
    small = torch_fuzzer.shrunk(case, lambda c: bool(torch_fuzzer.differs(c, "compile")))
    assert [s.name for s in small.program.steps] == ["flip"]
    assert replace(small.program, steps=()).count == 1
