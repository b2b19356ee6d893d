"""What a staged operand's copy holds, where it comes from, and how the computation reads it.

Two forms. With a ``layout`` the copy is indexed by loops (a packed operand): element ``(l1, l2 ...)`` is what the
load reads at those iterations. Without one it is the box of the parameter that the inner loops touch, in the
parameter's own dimension order, so overlapping windows are copied once; what lies outside the tensor is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Load
from tunegrad.ir.index import Index, Range, Valid, as_index, var
from tunegrad.ir.looptree import LoopKind, LoopTree, Staged, operand

__all__ = ["MAX_SCRATCH_BYTES", "CopyPlan", "copy_plan", "needed_loops"]

MAX_SCRATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """``buffer[variables, row-major] = source[offset] if valid else 0``; the computation reads ``buffer[read]``."""

    staged: Staged
    load: Load
    stage: int
    dtype: DType
    variables: tuple[tuple[str, int], ...]
    offset: Index
    valid: Valid
    read: Index
    space: Literal["thread", "team", "shared", "pack"]

    @property
    def size(self) -> int:
        return prod(e for _, e in self.variables)


def needed_loops(tree: LoopTree, staged: Staged) -> tuple[str, ...]:
    """The loops that index the copy, in list order, register loops last and lanes at the very end.

    They are those inside ``at``, and all work-items, that the operand depends on.
    """
    _, load = operand(tree, staged.param)
    env = dict(tree.index)
    used = set().union(*(i.substitute(env).names() for i in load.index), load.valid.substitute(env).names())
    inside = {x.name for x in tree.inside(staged.at)} | {x.name for x in tree.loops if x.kind is LoopKind.LOCAL}
    found = [x for x in tree.loops if x.name in used and x.name in inside]
    order = {LoopKind.VECTOR: 2, LoopKind.GROUP: 2, LoopKind.UPCAST: 1, LoopKind.UNROLL: 1}
    return tuple(x.name for x in sorted(found, key=lambda x: order.get(x.kind, 0)))


def copy_plan(tree: LoopTree, staged: Staged) -> CopyPlan:
    """The plan of one staged operand; IllegalAction names the rule that it breaks."""
    param = tree.kernel.param(staged.param) if any(p.name == staged.param for p in tree.kernel.params) else None
    if param is None:
        names = ", ".join(p.name for p in tree.kernel.params)
        raise IllegalAction(f"stage(param={staged.param}): no such parameter; valid: {names}")
    stage, load = operand(tree, staged.param)
    if staged.at == "load" and param.role != "const":
        raise IllegalAction(f"stage(param={staged.param}, at=load): the parameter is {param.role!r}, not a constant")
    if staged.at not in ("", "load"):
        loop = tree.loop(staged.at)
        if loop.kind.is_register or loop.stage not in (-1, stage):
            raise IllegalAction(f"stage(param={staged.param}, at={staged.at}): not a serial loop around its use")
        if loop.stage >= 0 and any(x.stage == loop.stage and x.kind is LoopKind.LOCAL for x in tree.loops):
            raise IllegalAction(f"stage(param={staged.param}, at={staged.at}): work-items part ways inside that loop")
    if tree.target.kind == "gpu" and staged.at != "load":
        begin = -1 if staged.at == "" else tree.position(staged.at)
        late = [x.name for i, x in enumerate(tree.loops) if x.kind is LoopKind.LOCAL and x.stage < 0 and i > begin]
        if late:
            raise IllegalAction(f"stage(param={staged.param}, at={staged.at}): outside local loop {late[0]}")
    needed = needed_loops(tree, staged)
    plan = (_by_loops if staged.layout or staged.at == "load" else _by_box)(tree, staged, stage, load, needed)
    limit = tree.target.shared_bytes if plan.space == "shared" else MAX_SCRATCH_BYTES
    if plan.size * plan.dtype.itemsize > limit:
        raise IllegalAction(
            f"stage(param={staged.param}, at={staged.at}): {plan.size * plan.dtype.itemsize} bytes exceed {limit}"
        )
    return plan


def _space(tree: LoopTree, staged: Staged) -> Literal["thread", "team", "shared", "pack"]:
    if staged.at == "load":
        return "pack"
    if tree.target.kind == "gpu":
        return "shared"
    threads = [i for i, x in enumerate(tree.loops) if x.kind is LoopKind.THREAD]
    if not threads:
        return "thread"
    outside = staged.at == "" or tree.position(staged.at) < max(threads)
    return "team" if outside else "thread"


def _by_loops(tree: LoopTree, staged: Staged, stage: int, load: Load, needed: tuple[str, ...]) -> CopyPlan:
    single = {x.name for x in tree.loops if x.extent == 1}
    layout = tuple(n for n in staged.layout if n not in single) or needed
    if set(layout) != set(needed) or len(set(layout)) != len(layout):
        raise IllegalAction(
            f"stage(param={staged.param}, at={staged.at}): layout ({', '.join(layout)}) must name the loops "
            f"({', '.join(needed)}), each once"
        )
    extents = {n: tree.loop(n).extent for n in layout}
    env = dict(tree.index)
    buffer = staged.buffer
    rename = {n: var(f"{buffer}.{n}", extents[n]) for n in layout}
    offset = tree.kernel.param(staged.param).layout.offset([i.substitute(env) for i in load.index])
    valid = load.valid.substitute(env) & tails(tree, set().union(*(i.names() for i in load.index)))
    read, stride = as_index(0), 1
    for n in reversed(layout):
        read = read + var(n, extents[n]) * stride
        stride *= extents[n]
    return CopyPlan(
        staged, load, stage, load.dtype, tuple((f"{buffer}.{n}", extents[n]) for n in layout),
        offset.substitute(rename), valid.substitute(rename), read, _space(tree, staged),
    )  # fmt: skip


def tails(tree: LoopTree, axes: set[str]) -> Valid:
    """That the axes are within their true extents."""
    return Valid(
        Range(tree.axis_index(a), 0, tree.extent(a)) for a in sorted(axes) if tree.nominal(a) != tree.extent(a)
    )


def _by_box(tree: LoopTree, staged: Staged, stage: int, load: Load, needed: tuple[str, ...]) -> CopyPlan:
    param = tree.kernel.param(staged.param)
    if any(p.step != 1 for p in param.layout.parts) or len(param.layout.parts) != len(param.shape):
        raise IllegalAction(f"stage(param={staged.param}): its layout is blocked; name the loops of the copy")
    env = dict(tree.index)
    zero = {n: as_index(0) for n in needed}
    where = f"stage(param={staged.param}, at={staged.at})"
    dims = [i.substitute(env) for i in load.index]
    base = [d.substitute(zero) for d in dims]
    inner = [d - b for d, b in zip(dims, base, strict=True)]
    for d, f in zip(dims, inner, strict=True):
        if f.names() - set(needed):
            raise IllegalAction(f"{where}: index {d} mixes loops inside and outside the copy")
    buffer = staged.buffer
    names = [f"{buffer}.d{i}" for i in range(len(dims))]
    at = [b + f.lo + var(n, f.hi - f.lo + 1) for b, f, n in zip(base, inner, names, strict=True)]
    ranges = [Range(x, 0, s) for x, s in zip(at, param.shape, strict=True)]
    for r in load.valid.substitute(env):
        i = next((i for i, d in enumerate(dims) if d.terms == r.index.terms), None)
        if i is None:
            raise IllegalAction(f"{where}: condition {r} is not about one dimension of the parameter")
        shift = r.index.const - dims[i].const
        ranges.append(Range(at[i] + shift, r.lo, r.hi))
    order = [p.dim for p in param.layout.parts]
    extents = [f.hi - f.lo + 1 for f in inner]
    read, stride = as_index(0), 1
    for dim in reversed(order):
        read = read + (inner[dim] - inner[dim].lo) * stride
        stride *= extents[dim]
    return CopyPlan(
        staged, load, stage, load.dtype, tuple((names[d], extents[d]) for d in order),
        param.layout.offset(at), Valid(ranges), read, _space(tree, staged),
    )  # fmt: skip
