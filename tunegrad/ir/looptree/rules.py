"""The rules of the form: what the list of loops must keep, whatever action edits it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tunegrad.errors import IllegalAction

from ..kernel import Reduce
from .loops import LANES, Loop, LoopKind, TileLoops

if TYPE_CHECKING:
    from .tree import LoopTree

__all__ = ["check"]


def check(t: LoopTree) -> None:
    """IllegalAction, naming the loop and the rule, where the list breaks one."""
    _check_order(t)
    _check_lanes(t)
    _check_items(t)
    _check_partial(t)
    _check_rows(t)
    _check_matrix(t)
    _check_pipelined(t)


def _check_order(t: LoopTree) -> None:
    around: dict[str, Loop] = {}
    for x in t.loops:
        if x.kind.is_register or len(x.axes) > 1 or x.extent == 1:
            continue
        axis = x.axes[0]
        if axis in around:
            index = t.axis_index(axis)
            if (index.coefficient(around[axis].name) or 0) < (index.coefficient(x.name) or 0):
                raise IllegalAction(
                    f"loop {x.name} stands inside a finer loop of its own axis {axis}; outer "
                    "tiles go first"
                )
        around[axis] = x


def _check_lanes(t: LoopTree) -> None:
    every = [x for x in t.loops if x.kind in LANES]
    for i in range(len(t.kernel.stages) if len(every) > 1 else 0):
        lanes = [x for x in every if x.stage in (-1, i)]
        if len(lanes) > 1:
            names = " and ".join(x.name for x in lanes)
            raise IllegalAction(
                f"loops {names} would both be vector lanes of stage {i}; a stage has one lane loop"
            )


def _check_items(t: LoopTree) -> None:
    """A stage has one local loop of its own at most; those of all stages take one place."""
    local = [x for x in t.loops if x.kind is LoopKind.LOCAL]
    own = [x for x in local if x.stage >= 0]
    if not own:
        return
    most, shared = t.own_items, len(local) - len(own)
    for x in own:
        name = f"loop {x.name} shares its stage over work-items"
        if any(y.stage == x.stage and y is not x for y in own):
            raise IllegalAction(f"{name}, so no other loop of the stage can be local")
        if t.partial:
            raise IllegalAction(f"{name}, so no reduce loop can be around it")
        if shared and most % x.extent:
            rule = f"its extent {x.extent} does not divide {most}, that of another stage"
            raise IllegalAction(f"{name}: {rule}")
    if own not in (local[: len(own)], local[shared:]):
        rule = "some local loops of stages stand inside shared ones, and some around"
        raise IllegalAction(f"loop {own[0].name}: {rule}")


def _check_partial(t: LoopTree) -> None:
    k, partial = t.kernel, t.partial
    if not partial:
        return
    names = ", ".join(x.name for x in partial)
    if len(k.reduces) != 1 or any(s.axes for s in k.stores):
        raise IllegalAction(
            f"reduce loops {names} around shared loops: only a kernel of one reduction and its "
            "epilogue may"
        )
    if not any(k.param(s.param).dtype == k.reduces[0].dtype and s.valid.always for s in k.stores):
        raise IllegalAction(
            f"reduce loops {names} around shared loops: no output has the accumulator's dtype "
            "to hold partial sums, "
            "or it is not stored at every point"
        )
    outer = {x.name for x in t.outer}
    for x in partial:
        tail = {a for a in x.axes if t.nominal(a) != t.extent(a)}
        if not tail:
            continue
        step = t.axis_index(x.axes[0]).coefficient(x.name) or 0
        inner = [
            y for y in t.loops if y.name not in outer and y.extent > 1 and tail.intersection(y.axes)
        ]
        if any((t.axis_index(x.axes[0]).coefficient(y.name) or 0) > step for y in inner):
            raise IllegalAction(
                f"reduce loop {x.name} around shared loops: its axis has a tail and coarser "
                "loops inside"
            )
    if any(x.kind is not LoopKind.SERIAL for x in partial):
        raise IllegalAction(f"reduce loops {names} around shared loops must be serial")


def _check_rows(t: LoopTree) -> None:
    """A row is made element by element: its loops stand around those of what is folded."""
    for i, s in enumerate(t.kernel.stages):
        if not isinstance(s, Reduce) or not s.rows:
            continue
        folding = ""
        for x in t.own(i):
            if x.kind.is_register or x.extent == 1:
                continue
            if x.kind is LoopKind.LOCAL and x.reduce:
                raise IllegalAction(
                    f"loop {x.name} of row {s.name} is folded: work-items share the row, not a sum"
                )
            if x.reduce:
                folding = x.name
            elif folding:
                raise IllegalAction(
                    f"loop {x.name} of row {s.name} stands inside {folding}, which folds one of "
                    "its elements"
                )


def _check_matrix(t: LoopTree) -> None:
    """The items of a matrix unit are the innermost ones, and nothing of it is a vector."""
    m = t.matrix
    if m is None:
        return
    if isinstance(m, TileLoops):
        _check_tiles(t, m)
        return
    local = [x.name for x in t.loops if x.kind is LoopKind.LOCAL]
    if local[-2:] != [m.row, m.column] or any(
        x.kind is LoopKind.LOCAL and x.stage >= 0 for x in t.loops
    ):
        raise IllegalAction(
            f"loops {m.row} and {m.column} are the items of a matrix unit; local loops stand "
            "around them"
        )
    lanes = [x.name for x in t.loops if x.kind in LANES]
    if lanes:
        raise IllegalAction(f"loop {lanes[0]} can not be vector lanes beside a matrix unit")


def _check_tiles(t: LoopTree, m: TileLoops) -> None:
    """The loops of a tile are rows, lanes and terms, and all tiles have registers."""
    found = [t.loop(name) for name in (m.m, m.n, m.k)]
    kinds = (LoopKind.UPCAST, LoopKind.VECTOR, LoopKind.MATRIX)
    for x, kind in zip(found, kinds, strict=True):
        if x.kind is not kind:
            raise IllegalAction(f"loop {x.name} of {m.unit} is {x.kind}, not {kind}")
    stage = found[2].stage
    for x in t.loops:
        if x.stage == stage and x.kind in (LoopKind.UPCAST, LoopKind.GROUP):
            raise IllegalAction(f"loop {x.name} can not be {x.kind} beside {m.unit}")
    tiles = prod([x.extent for x in t.shared_registers if x.name not in (m.m, m.n)])
    if tiles + 2 > m.unit.registers:
        raise IllegalAction(
            f"{tiles} tiles of results and two operands: {m.unit} has {m.unit.registers} registers"
        )


def _check_pipelined(t: LoopTree) -> None:
    """A loop whose copies run ahead is one reduction's own, serial, and runs to its end."""
    if t.pipelined is None:
        return
    name, slots = t.pipelined
    x = t.loop(name)
    if x.kind is not LoopKind.SERIAL or not x.reduce or x in t.outer:
        raise IllegalAction(f"pipelined loop {name} is no serial reduce loop of a stage alone")
    if x.extent < slots:
        raise IllegalAction(f"pipelined loop {name} of {x.extent} iterations: {slots} slots")
    for axis in x.axes:
        if t.nominal(axis) != t.extent(axis) and axis not in t.padded:
            raise IllegalAction(f"pipelined loop {name}: axis {axis} has a tail; pad it")
