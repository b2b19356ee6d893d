"""Random programs over the whole Tensor API, compiled, against PyTorch and numpy."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests import api_fuzzer, fuzzing
from tests.api_fuzzer import Program, Step, agrees, check_programs, drawn, never, shrunk
from tests.api_operations import FAMILIES, OPERATIONS
from tests.compiled_graphs import CompiledKernels
from tunegrad.frontend import handle
from tunegrad.frontend.nodes import tracing


def test_programs_mean_what_they_mean_in_pytorch() -> None:
    count = fuzzing.count(30)
    counts = check_programs("api", count)
    assert len(never(counts)) < len(OPERATIONS) ** 2 - 3 * count


def test_every_operation_is_drawn_and_every_family_reads_what_any_family_made() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for case in range(250):
        drawn(random.Random(f"pairs {case}"), 9, counts)
    assert {op for _, op in counts} == OPERATIONS.keys()
    between = {(api_fuzzer.FAMILY[a], api_fuzzer.FAMILY[b]) for a, b in counts}
    assert {(a, b) for a in FAMILIES for b in FAMILIES} <= between


def test_programs_agree_as_compiled_functions_and_as_they_are_computed_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also the second time, when the forms of results are known, and no graph is made of them."""
    for case in range(fuzzing.count(4, most=60)):
        monkeypatch.setattr(tracing, "_leaves", [False])
        rng = fuzzing.rng("api doors", case)
        program = drawn(rng, 5, Counter(), extremes=api_fuzzer.EXTREMES)
        for _ in range(2):
            tensors = program.tensors()
            eager = [np.asarray(t.numpy()) for t in tensors]
            assert api_fuzzer.differences(program, tensors, eager) == "", program.text()
        names = list(program.inputs)
        given = [tg.Tensor(a, api_fuzzer.dtype_name(d)) for a, d in program.inputs.values()]
        compiled = tg.compile(partial(_run, program, names), *given)(*(t.numpy() for t in given))
        outputs = compiled if isinstance(compiled, list | tuple) else [compiled]
        found = [np.asarray(o) for o in outputs]
        assert api_fuzzer.differences(program, tensors, found) == "", program.text()


def test_histories_of_known_forms_are_those_of_graphs() -> None:
    """Writes, views and second names between calls of one form, and conditions around them."""
    api_fuzzer.check_histories(fuzzing.count(6, most=90))


def test_history_whose_conditions_reach_other_results_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A result that was asked for before a condition is made under it."""
    program = Program({"v0": (np.arange(6, dtype=np.float32).reshape(3, 2), "float32")}, (), ())
    lines = "a0 = v0.index_select(0, place)", "with only_where(truth.node): a1 = a0 + 1"
    assert api_fuzzer.unlike(program, lines, ["a0"]) == ""
    monkeypatch.setattr(tracing, "apart", contextlib.nullcontext)
    assert "a0 of" in api_fuzzer.unlike(program, lines, ["a0"])


def test_results_of_known_forms_are_those_of_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, of other values and numbers, and whichever of the operands are one array."""
    monkeypatch.setattr(tracing, "_leaves", [False])
    known = 0
    for case in range(fuzzing.count(12, most=180)):
        rng = fuzzing.rng("known forms", case)
        steps = [(rng.choice(_KNOWN), rng.random()) for _ in range(rng.randint(1, 4))]
        shape = (rng.randint(1, 4), rng.randint(1, 9))
        for _ in range(6):
            values = np.random.default_rng(rng.getrandbits(32))
            arrays = [tg.Tensor(values.normal(size=shape).astype(np.float32)) for _ in range(2)]
            operands = rng.choices(arrays, k=3)
            numbers = rng.choices([0.0, -0.0, 0.5, 2, 2.0, 3.0], k=len(steps))
            result = _stepped(steps, operands, numbers)
            known += result.pending is not None
            found = result.numpy()
            with monkeypatch.context() as patch:
                patch.setattr(handle, "_pending", lambda *_: None)
                right = _stepped(steps, operands, numbers)
                assert right.pending is None
                assert found.tobytes() == right.numpy().tobytes(), (steps, numbers)
    assert known


_KNOWN: list[Callable[..., tg.Tensor]] = [
    lambda a, b, c: a + b * c, lambda a, b, c: a - b, lambda a, b, c: c - a * b,
    lambda a, b, c: a / (abs(b) + 1.0) + c, lambda a, b, c: tg.where(a < b, a, c),
    lambda a, b, c: tg.maximum(a, c) - b, lambda a, b, c: (-a).tanh() * c,
    lambda a, b, c: abs(a * c).sqrt(), lambda a, b, c: (a * 3).floor() + b,
    lambda a, b, c: a.sum(1, keepdim=True) * c, lambda a, b, c: (a - b).amax(0, keepdim=True),
]  # fmt: skip


def _stepped(
    steps: list[tuple[Any, float]], operands: list[tg.Tensor], numbers: list[float]
) -> tg.Tensor:
    """The last result of some operations, each of the one before it and any other."""
    found = list(operands)
    for (operation, at), number in zip(steps, numbers, strict=True):
        found.append(operation(found[-1], found[int(at * len(found))], number))
    return found[-1]


def _run(program: Program, names: list[str], *values: tg.Tensor) -> list[tg.Tensor]:
    given = dict(zip(names, values, strict=True))
    return program.run(tg, tg.nn.functional, given)


def test_same_seed_draws_the_same_program() -> None:
    first, again = (drawn(random.Random("a seed"), 8, Counter()) for _ in range(2))
    assert first.text() == again.text()


def test_failing_program_is_cut_down_and_printed_as_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = Program(
        {"v0": (x, "float32")},
        (
            Step("v1", "scalar", "(v0 * 3)"),
            Step("v2", "flip", "v1.flip([1])"),
            Step("v3", "sum", "v2.sum(1)"),
            Step("v4", "neg", "v0.neg()"),
        ),
        ("v3", "v4"),
    )
    assert agrees(program) == ""
    run = CompiledKernels.run

    def wrong(code: CompiledKernels, plan: object, inputs: object) -> object:
        """A compiler that forgets flips."""
        found = run(code, plan, inputs)  # type: ignore[arg-type]
        return [v + 1 for v in found] if "flip" in stepped[0].text() else found

    stepped = [program]
    monkeypatch.setattr(CompiledKernels, "run", wrong)

    def fails(p: Program) -> bool:
        stepped[0] = p
        return bool(agrees(p))

    small = shrunk(program, fails)
    assert [s.op for s in small.steps] == ["flip"]
    names = {"np": np, "Program": Program, "Step": Step, "agrees": agrees}
    monkeypatch.undo()
    exec(small.text(), names)  # noqa: S102  # what the fuzzer prints has to run
    names["test_program_agrees"]()  # type: ignore[operator]


def _medians() -> Program:
    x = np.array([5, 0, 3, 2, 4, 1], np.uint8).reshape(2, 3, 1)
    steps = (
        Step("v1", "expand", "v0.expand((2, 3, 3))"),
        Step("v2", "median", "v1.median(-1)[0]"),
    )
    return Program({"v0": (x, "uint8")}, steps, ("v2",))


def test_medians_of_an_expanded_tensor_are_its_values() -> None:
    """PyTorch 2.13 returns numbers that are not there, where the tensor is a view."""
    (found,) = _medians().tensors()
    assert np.array_equal(found.numpy(), np.array([[5, 0, 3], [2, 4, 1]], np.uint8))
    assert agrees(_medians()) == ""


def _answering(monkeypatch: pytest.MonkeyPatch, *wrong: bool) -> None:
    """Let PyTorch's results be off by one: of copies, and of views."""
    right = api_fuzzer.torch_values

    def values(program: Program, wide: bool = False, views: bool = False) -> list[Any]:
        return [v + wrong[views] for v in right(program, wide=wide)]

    monkeypatch.setattr(api_fuzzer, "torch_values", values)


def test_what_pytorch_computes_in_two_ways_with_two_results_is_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    _answering(monkeypatch, True, False)
    with pytest.warns(api_fuzzer.PyTorchFault, match="contradicts itself"):
        assert agrees(_medians()) == ""


def test_what_differs_from_every_answer_of_pytorch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    _answering(monkeypatch, True, True)
    monkeypatch.setattr(api_fuzzer, "_other_answers", lambda _: iter([[np.zeros((2, 3))]]))
    assert "differs from PyTorch" in agrees(_medians())


def test_pytorchs_decompositions_answer_for_a_program() -> None:
    pytest.importorskip("torch")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    steps = (Step("v1", "softmax", "v0.softmax(1)"), Step("v2", "flip", "v1.flip([1])"))
    views, decomposed = api_fuzzer._other_answers(Program({"v0": (x, "float32")}, steps, ("v2",)))
    assert np.allclose(views[0], decomposed[0], 0, 1e-6)


@pytest.mark.parametrize(("pixel", "moves"), [(3.0, True), (0.5, False)])
def test_what_moves_where_results_are_rounded_otherwise_is_no_fault(pixel, moves) -> None:
    """Sums of four weights are 1, or just below it: the floor of 3 times that is 3, or 2."""
    pytest.importorskip("torch")
    steps = (
        Step("v1", "interpolate", "F.interpolate(v0, scale_factor=(1.0, 1.5), mode='bicubic')"),
        Step("v2", "floor", "v1.floor()"),
        Step("v3", "cast", "v2.to(T.int32)"),
    )
    x = np.full((1, 1, 3, 1), pixel, np.float32)
    program = Program({"v0": (x, "float32")}, steps, ("v2", "v3"))
    assert agrees(program) == ""
    theirs = [api_fuzzer._torch_numbers(v) for v in api_fuzzer.torch_values(program)]
    moved = api_fuzzer._moved(program, theirs, [0.0, 0.0])
    assert [np.max(x) >= 1 for x in moved] == [moves, moves]
    tensors = program.tensors()
    below = [theirs[0] - 1, theirs[1] - 1]  # as compiled code may have it, unlike the interpreter
    assert (api_fuzzer.differences(program, tensors, below) == "") == moves
