"""Random ONNX graphs give what ONNX Runtime gives; what a fuzzer found stays found.

python -m tests.property.test_fuzz_onnx 600      how often each operator reads another's result,
                                                 and which ones it never read
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from onnx import helper

from tests import fuzzing, onnx_fuzzer
from tests.onnx_fuzzer import DRAWS, Case, compare, draw, pairs, shrunk

CASES = fuzzing.count(100)


def ours(said: str) -> bool:
    """Whether it is the loaded model that is wrong."""
    return said != "" and not said.startswith(("drawn", "judged"))


@pytest.mark.parametrize("block", range(4))
def test_drawn_graphs_give_what_onnx_runtime_gives(block: int) -> None:
    for i in range(block, CASES, 4):
        case = draw(fuzzing.rng("onnx", i))
        said = compare(case) if case.nodes else ""
        if ours(said):
            small = shrunk(case, lambda c: ours(compare(c)))
            pytest.fail(f"case {i} of seed {fuzzing.seed()}: {compare(small)}\n{small}")


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
    "GroupNormalization of opset 18 is there, though it is deprecated": of_node(
        18, "GroupNormalization", np.arange(24, dtype="f4").reshape(1, 4, 6),
        np.asarray([1.5, 2], "f4"), np.asarray([0.5, 1], "f4"), known=2, num_groups=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_the_fuzzer_found_is_right(name: str) -> None:
    assert compare(FOUND[name]) == ""


SAME = of_node(
    13, "Conv", np.arange(25, dtype="f4").reshape(1, 1, 5, 5), np.ones((1, 1, 1, 1), "f4"),
    known=1, auto_pad="SAME_UPPER", strides=[3, 3],
)  # fmt: skip
"""Of steps wider than windows, ONNX Runtime pads by less than nothing."""


def test_a_node_is_judged_by_the_reference_where_onnx_runtime_differs() -> None:
    said = compare(SAME)
    assert said == "" or said.startswith("judged: Conv: ")


def test_a_wrong_result_is_not_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = onnx_fuzzer._ours
    monkeypatch.setattr(onnx_fuzzer, "_ours", lambda case: [a + 1 for a in right(case)])
    for case in (SAME, FOUND["Hardmax before opset 13 has one 1 in all that follows its axis"]):
        assert ours(compare(case))


if __name__ == "__main__":
    counted = Counter[tuple[str, str]]()
    for at in range(int(sys.argv[1])):
        counted += pairs(draw(fuzzing.rng("onnx", at)))
    for (maker, reader), times in counted.most_common():
        sys.stdout.write(f"{times:4} {maker} -> {reader}\n")
    for reader in sorted(DRAWS):
        never = sorted(m for m in DRAWS if (m, reader) not in counted)
        sys.stdout.write(f"{reader} never read {len(never)}: {' '.join(never)}\n")
    sys.stdout.write(f"{len(counted)} of {len(DRAWS) ** 2} pairs\n")
