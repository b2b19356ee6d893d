"""Random ONNX graphs give what ONNX Runtime gives; what a fuzzer found stays found."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from onnx import helper

from tests import fuzzing, onnx_fuzzer
from tests.onnx_fuzzer import (
    DRAWS,
    Case,
    compare,
    compare_layers,
    draw,
    draw_layers,
    ours,
    shrunk,
)

CASES = fuzzing.count(50)


@pytest.mark.parametrize("block", range(4))
def test_drawn_graphs_give_what_onnx_runtime_gives(block: int) -> None:
    for i in range(block, CASES, 4):
        case = draw(fuzzing.rng("onnx", i), extremes=onnx_fuzzer.EXTREMES)
        said = compare(case) if case.nodes else ""
        if ours(said):
            small = shrunk(case, lambda c: ours(compare(c)))
            pytest.fail(f"case {i} of seed {fuzzing.seed()}: {compare(small)}\n{small}")


@pytest.mark.parametrize("block", range(2))
def test_drawn_layers_of_bytes_are_within_one_step_of_onnx_runtime(block: int) -> None:
    for i in range(block, CASES // 4, 2):
        drawn = draw_layers(fuzzing.rng("onnx layers", i))
        said = compare_layers(drawn)
        assert not said, f"case {i} of seed {fuzzing.seed()}: {said}\n{drawn.case}"


@pytest.mark.parametrize("by", [2, 1, 0])
def test_bytes_of_other_steps_are_seen(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    """One byte that is two steps off, or all that are one."""
    drawn = draw_layers(random.Random("layers"))
    right = onnx_fuzzer.ours_of(drawn.case)
    assert compare_layers(drawn) == ""

    def wrong(_: Case) -> list[Any]:
        made = [np.array(a) for a in right]
        some = made[0].reshape(-1)[: 1 if by == 2 else None]
        some += np.where(some > 99, -by, by).astype(some.dtype)
        return made

    monkeypatch.setattr(onnx_fuzzer, "ours_of", wrong)
    assert (compare_layers(drawn) != "") == bool(by)


def test_every_operator_that_is_drawn_comes_up() -> None:
    drawn = Counter[str]()
    for i in range(400):
        drawn.update(n.op_type for n in draw(random.Random(f"operators {i}")).nodes)
        if len(drawn) == len(DRAWS):
            return
    assert len(DRAWS) - len(drawn) <= 3, sorted(DRAWS.keys() - drawn.keys())


def test_a_case_that_differs_is_shrunk_to_the_nodes_that_differ() -> None:
    drawn = (draw(random.Random(f"shrink {i}")) for i in range(1000))
    case = next(c for c in drawn if len(c.nodes) > 3)
    culprit = case.nodes[2]
    small = shrunk(case, lambda c: any(n.name == culprit.name for n in c.nodes))
    assert [n.name for n in small.nodes] == [culprit.name]
    assert compare(small) == compare(case) == ""


def of_node(opset: int, op: str, *values: Any, known: int = 0, **attributes: Any) -> Case:
    """A case of one node; the last ``known`` operands are constants."""
    names = [f"x{i}" for i in range(len(values))]
    node = helper.make_node(op, names, ["y"], **attributes)
    held = dict(zip(names, map(np.asarray, values), strict=True))
    return Case(opset, (node,), held, tuple(names[: len(names) - known]))


FOUND = {
    "Hardmax before opset 13 has one 1 in all that follows its axis": of_node(
        10, "Hardmax", np.asarray([[0.75, 0], [0, 0.5]], "f4"), axis=0
    ),
    "Resize of opset 10 to a smaller extent takes the next element": of_node(
        10, "Resize", np.arange(10, dtype="f4").reshape(1, 1, 2, 5),
        np.asarray([1, 1, 2, 0.4], "f4"), known=1, mode="nearest",
    ),
    "Slice backwards from before the first element has that one": of_node(
        18, "Slice", np.arange(4, dtype="f4"), [-9], [-(1 << 62)], [0], [-1], known=4
    ),
    "Slice backwards of a constant has it, too": of_node(
        18, "Slice", np.arange(4, dtype="f4"), [-9], [-(1 << 62)], [0], [-1], known=5
    ),
    "Pad may wrap around several times": of_node(
        20, "Pad", np.arange(2, dtype="f4"), [3, 5], known=1, mode="wrap"
    ),
    "Hardmax of nothing is nothing": of_node(13, "Hardmax", np.zeros((0, 3), "f4"), axis=0),
    **{
        f"{op} along no axis still does to each element what it does": of_node(
            18, op, np.asarray([2.5, 2], "f4"), np.zeros(0, "i8"), known=1, noop_with_empty_axes=1
        )
        for op in ("ReduceSumSquare", "ReduceLogSum", "ReduceL1", "ReduceL2", "ReduceLogSumExp")
    },
    "Sign of NaN is NaN": of_node(13, "Sign", np.asarray([np.nan, -np.inf, -0.0, 2], "f4")),
    "GroupNormalization of opset 18 is there, though it is deprecated": of_node(
        18, "GroupNormalization", np.arange(24, dtype="f4").reshape(1, 4, 6),
        np.asarray([1.5, 2], "f4"), np.asarray([0.5, 1], "f4"), known=2, num_groups=2,
    ),
}  # fmt: skip


def beside_a_constant() -> Case:
    """A recurrent network, and an output that no input reaches."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {"flags": np.ones((2, 3), "f4")}
    for name, shape in {"x": (3, 3, 3), "w": (1, 12, 3), "r": (1, 12, 4), "b": (1, 24)}.items():
        made[name] = (rng.integers(-8, 9, shape) / 4).astype("f4")
    nodes = (
        helper.make_node("IsInf", ["flags"], ["none"], detect_negative=0, detect_positive=0),
        helper.make_node(
            "GRU", ["x", "w", "r", "b"], ["all", "last"], hidden_size=4, direction="reverse",
            linear_before_reset=1,
        ),
    )  # fmt: skip
    return Case(21, nodes, made, ("flags", "x"))


FOUND["A recurrent network may lie beside a constant"] = beside_a_constant()


@pytest.mark.parametrize("name", FOUND)
def test_what_the_fuzzer_found_is_right(name: str) -> None:
    assert compare(FOUND[name]) == ""


def _window(op: str, side: str, window: int, step: int) -> Case:
    """SAME pads of an image of eight by eight, whose second axis has steps of two."""
    rng = np.random.default_rng(window)
    x, w = rng.integers(0, 9, (2, 2, 8, 8)), rng.integers(0, 9, (2, 2, window, window))
    kind = "u1" if op == "ConvInteger" else "f4"
    operands = [x.astype(kind), w.astype(kind)][: 2 if "Conv" in op else 1]
    return of_node(
        18, op, *operands, known=len(operands) - 1, auto_pad=side, strides=[step, 2],
        kernel_shape=[window, window],
    )  # fmt: skip


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "ConvInteger", "MaxPool", "AveragePool",
                                "LpPool"])  # fmt: skip
@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_same_pads_of_steps_wider_than_windows_are_none(op: str, side: str) -> None:
    for window, step in ((1, 3), (1, 4), (2, 5), (2, 3)):
        assert compare(_window(op, side, window, step)) == ""


def _kept(opset: int, mode: str) -> Case:
    """A Resize by 1.3 that keeps its shape: ONNX Runtime copies."""
    scales = np.asarray([1, 1, 1.3, 1], "f4")
    x = np.arange(6, dtype="f4").reshape(1, 1, 3, 2)
    given = [scales] if opset < 11 else [np.zeros(0, "f4"), scales]
    how = {} if opset < 11 else {"coordinate_transformation_mode": "asymmetric"}
    return of_node(opset, "Resize", x, *given, known=len(given), mode=mode, **how)


KEPT = [_kept(opset, mode) for opset in (10, 13) for mode in ("nearest", "linear")]


@pytest.mark.parametrize("case", KEPT, ids=["10 nearest", "10 linear", "nearest", "linear"])
def test_a_node_is_judged_by_the_reference_where_onnx_runtime_differs(case: Case) -> None:
    said = compare(case)
    assert said == "" or said.startswith("judged: Resize: ")


def test_a_wrong_result_is_not_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = onnx_fuzzer.ours_of
    monkeypatch.setattr(onnx_fuzzer, "ours_of", lambda case: [a + 1 for a in right(case)])
    for case in (*KEPT, FOUND["Hardmax before opset 13 has one 1 in all that follows its axis"]):
        assert ours(compare(case))


def test_what_moves_where_nodes_round_otherwise_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exponentials of 0 are 1, or just below it, where it is truncated; those of 0.3 are not."""
    x = np.asarray([0.0] * 50 + [0.3], "f4")
    nodes = (helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Cast", ["e"], ["y"], to=7))
    values = {"x": x, "e": np.exp(x), "y": np.ones(51, "i8")}
    case = Case(18, nodes, values, ("x",))
    made = np.ones(51, "i8")
    monkeypatch.setattr(onnx_fuzzer, "ours_of", lambda _: [made])
    assert compare(case) == ""
    made[:25] = 0
    assert compare(case).startswith("judged: rounded otherwise: y[0] is np.int64(0)")
    made[50] = 0
    assert ours(compare(case))
