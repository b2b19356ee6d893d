"""What becomes of checks of indices is compared with the graph that asks for them."""

from __future__ import annotations

import pytest

from tests.rewrite_faults import Fault, planted
from tunegrad.errors import WrongPlan
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32, I64
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Bounds, Node
from tunegrad.ir.validate import validated_guards

FAULTS = (
    Fault("another index", "rewrites.ranges:_unchecked", "new[n] = srcs[0]",
          "new[n] = Node(GraphOp.FLIP, srcs[:1], (0,), n.shape, n.dtype)", ""),
    Fault("every index is in range", "rewrites.ranges:_inside",
          "bounds.low <= low and high < bounds.high", "True", ""),
    Fault("no index has a guard", "rewrites.ranges:guarded",
          "elif index.size and not _inside(index, bounds):", "elif not index.size:", ""),
    Fault("the nearest one", "rewrites.ranges:_farthest", "Op.MAX", "Op.MIN", ""),
    Fault("from the other end", "rewrites.ranges:_farthest", "g.full(-low", "g.full(low", ""),
    Fault("from 0", "rewrites.ranges:_farthest", "low = bounds.low if", "low = 0 if", ""),
)  # fmt: skip


def _input(name: str, *shape: int, dtype: str = "i64") -> Tensor:
    return Tensor.input(name, shape, dtype)


def _read(index: Tensor) -> Node:
    return _input("x", 4, 5, dtype="f32")[index].node


def _where_asked() -> Node:
    asked = g.graph_input("asked", (), BOOL)
    index = g.within(g.graph_input("i", (7,), I64), Bounds("take", -4, 4), asked)
    return g.gather(g.graph_input("x", (4,), F32), index, 0)


GRAPHS = {
    "an input": lambda: _read(_input("i", 7)),
    "i32": lambda: _read(_input("i", 3, dtype="i32") + 1),
    "two of one tensor": lambda: g.elementwise(
        Op.ADD, _read(_input("i", 7)), _read(_input("i", 7) - 1)
    ),
    "rounded": lambda: _read((_input("f", 6, dtype="f32") * 3.0).cast("i32")),
    "on a condition": _where_asked,
    "small": lambda: _read(_input("i", 5, dtype="u8")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_guards_are_taken(name: str) -> None:
    outputs, guards = validated_guards((GRAPHS[name](),))
    assert len(outputs) == 1 + len(guards) > 1


def test_an_index_that_is_in_range_has_no_guard() -> None:
    index = _input("i", 7, dtype="i32")
    assert validated_guards((_read(index % 3),))[1] == ()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_wrong_guard_is_refused(fault: Fault) -> None:
    with planted(fault), pytest.raises(WrongPlan, match="graph: "):
        validated_guards((GRAPHS["an input"](),))


def test_an_index_that_is_too_deep_to_look_at_is_taken() -> None:
    index = _input("i", 3)
    for _ in range(2000):
        index = (index * 3) % 1000
    assert len(validated_guards((_read(index),))[1]) == 1
