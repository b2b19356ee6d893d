"""Copies of staged operands: vectors where the source is contiguous, over the team, zero-filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tunegrad.ir.index import ALWAYS, NEVER, Index, Range, Valid, as_index, var
from tunegrad.ir.looptree import LoopKind, LoopTree
from tunegrad.ir.program import Barrier, CopyAsync, For, If, Instr, VType

from ..staging import StagedCopy
from .builder import Builder

__all__ = [
    "copies_ahead",
    "copy_by_items",
    "emit_copies",
    "this_item",
]


def copy_by_items(
    tree: LoopTree, b: Builder, p: StagedCopy, env: dict[str, Index], ahead: bool = False
) -> None:
    """Vector ``q`` of the source's order is copied by work-item ``q % items``.

    With ``ahead`` no item waits for a copy whose vectors are aligned in both places.

        B.k0[k1, n1, n2] = B[512*k1 + 4*n1 + n2]  of 16 x 16 x 4, by 256 items     -->

        q = item                                     one of 256 vectors, in the order of the source
        B.k0[4*q + <0..3>] = B[512*(q // 16) + 4*(q % 16) + <0..3>]

    Where the last index of a copy is not the one along which the source is contiguous, work-items
    follow the source, and its rows are one element longer, so that they write to banks of their
    own:

        A.k0[k1, m1, m2] = A[512*(4*m1 + m2) + k1]  of 16 x 16 x 4     -->

        A.k0[65*k1 + 4*m1 + m2] = ...                k1 = item % 16

    Where the items divide the rows of a copy, or rows the items, what changes from round to round
    is a sum: divisions stay outside the loop over rounds.
    """
    p = p if p.crossed else _joined(p)
    offset, valid = p.offset.substitute(env), p.valid.substitute(env)
    items, me = this_item(tree)
    ordered = _source_order(p, offset) if p.crossed else list(p.variables)
    width = _width(tree, p, ordered, offset, valid)
    if ahead:
        aligned = _aligned(p, ordered, width, offset)
        ahead = aligned > 0
        width = aligned or width
    vectors = p.count // width
    rounds = -(-vectors // items)
    name, lane = f"{p.staged.buffer}.i", f"{p.staged.buffer}.v" if width > 1 else ""
    q = var(name, rounds) * items + me
    within = var(lane, width) if lane else as_index(0)
    at, first = _digits(ordered, q, width, within, wraps=p.dense)
    target = q * width + within if p.dense else _target(p, at)
    b.open()
    source, where = offset.substitute(at), valid.substitute(at)
    if ahead:
        mask = None if where.always else b.test(where, "", 1)[0]
        moved = VType(p.dtype, width)
        b.add(CopyAsync(p.staged.buffer, target, p.source, source, moved, lane, mask))
    else:
        value = b.load(p.source, source, where, p.dtype, lane, width)
        b.store(p.staged.buffer, target, ALWAYS, value, p.dtype, lane, width)
    body = b.close()
    if q.hi >= vectors:
        body = (If(Valid((Range(q, 0, vectors) if p.dense else first,)), body),)
    if rounds > 1:
        body = (For(name, rounds, (as_index(rounds),), body),)
    for instr in body:
        b.add(instr)


def _joined(p: StagedCopy) -> StagedCopy:
    """The copy with variables joined that are one row in the source and in the copy.

    B.k0[k1, n1, n2] = B[512*k1 + 4*n1 + n2], n2 of 4  -->  B.k0[k1, n] = B[512*k1 + n]
    """
    variables, strides = list(p.variables), list(p.strides)
    offset, conditions = p.offset, p.valid.names()
    for i in reversed(range(len(variables) - 1)):
        (outer, count), (inner, extent) = variables[i : i + 2]
        far, near = offset.coefficient(outer), offset.coefficient(inner)
        apart = strides[i] != strides[i + 1] * extent or {outer, inner} & conditions
        if apart or not near or far != near * extent:
            continue
        joined = var(outer, count * extent)
        env = {outer: joined // extent, inner: joined % extent}
        offset = offset.substitute(env)
        variables[i : i + 2] = [(outer, count * extent)]
        strides[i : i + 2] = [strides[i + 1]]
    return replace(p, variables=tuple(variables), strides=tuple(strides), offset=offset)


def _source_order(p: StagedCopy, offset: Index) -> list[tuple[str, int]]:
    """The variables of a copy, those that move furthest in the source first."""
    return sorted(p.variables, key=lambda x: -abs(offset.coefficient(x[0]) or 0))


def _width(
    tree: LoopTree, p: StagedCopy, ordered: Sequence[tuple[str, int]], offset: Index, valid: Valid
) -> int:  # fmt: skip
    """Neighbours that are so in the source and in the copy, alike inside or outside: a vector."""
    if not ordered or ordered[-1] != p.variables[-1]:
        return 1
    last, extent = ordered[-1]
    if offset.coefficient(last) != 1 or last in valid.names():
        return 1
    width = tree.target.lanes(p.dtype.itemsize)
    while extent % width:
        width //= 2
    return width


_COPIED = (16, 8, 4)
"""Bytes that one asynchronous copy can move."""


def _aligned(
    p: StagedCopy, ordered: Sequence[tuple[str, int]], most: int, offset: Index
) -> int:  # fmt: skip
    """The most elements that are aligned to themselves in the source and in the copy; 0: too few.

    Every stride of the source is looked at, and every one of the copy but that of neighbours.
    """
    size = p.dtype.itemsize
    for nbytes in _COPIED:
        width = nbytes // size
        if width < 1 or width > most:
            continue
        if width == 1:
            return 1
        last = ordered[-1][0]
        apart = [c for atom, c in offset.terms if atom.names != {last}]
        rows = [s for (n, _), s in zip(p.variables, p.strides, strict=True) if n != last]
        if not any(c % width for c in (offset.const, *apart, *rows)):
            return width
    return 0


def this_item(tree: LoopTree) -> tuple[int, Index]:
    """Number of work-items that shared loops make, and the number of this one."""
    items, me = 1, as_index(0)
    for x in reversed(tree.loops):
        if x.kind is LoopKind.LOCAL and x.stage < 0:
            me = me + var(x.name, x.extent) * items
            items *= x.extent
    return items, me


def _digits(
    ordered: Sequence[tuple[str, int]], q: Index, width: int, within: Index, *, wraps: bool
) -> tuple[dict[str, Index], Range]:
    """The variables at lane ``within`` of vector ``q``, and that the first is within its extent.

    Without ``wraps`` the first one is past its extent where ``q`` is past the copy: what is asked
    of it then proves that two vectors have two places.
    """
    found: dict[str, Index] = {}
    left, digit, step = q, q, 1
    for i, (n, extent) in enumerate(reversed(ordered)):
        step = extent if i else extent // width
        digit = left % step if wraps or i < len(ordered) - 1 else left
        found[n] = digit if i else digit * width + within
        left = left // step
    return found, Range(digit, 0, step)


def _target(p: StagedCopy, at: dict[str, Index]) -> Index:
    target = as_index(0)
    for (n, _), stride in zip(reversed(p.variables), reversed(p.strides), strict=True):
        target = target + at[n] * stride
    return target


def copies_ahead(
    tree: LoopTree, b: Builder, plans: list[StagedCopy], env: dict[str, Index]
) -> tuple[Instr, ...]:
    """The copies of one iteration of a pipeline, without barriers."""
    b.open()
    for p in plans:
        if p.space != "pack":
            copy_by_items(tree, b, p, env, ahead=tree.target.copies_ahead)
    return b.close()


def emit_copies(
    tree: LoopTree, b: Builder, plans: list[StagedCopy], env: dict[str, Index], again: bool
) -> None:
    """The copies at one place, between barriers where others read them; ``again`` says the place
    runs repeatedly.
    """
    plans = [p for p in plans if p.space != "pack"]
    together = [p for p in plans if p.space != "thread"]
    if together and again:
        b.add(Barrier())
    for p in plans:
        if p.space == "shared":
            copy_by_items(tree, b, p, env)
        else:
            _by_loops(tree, b, p, env)
    if together:
        b.add(Barrier())


def _by_loops(tree: LoopTree, b: Builder, p: StagedCopy, env: dict[str, Index]) -> None:
    """Whole vectors along the last dimension, then what is left of it element by element."""
    offset, valid = p.offset.substitute(env), p.valid.substitute(env)
    if not p.variables:
        _nest(tree, b, p, [], (offset, valid, as_index(0)), ("", 1))
        return
    last, extent = p.variables[-1]
    lanes = _copy_lanes(tree, p, offset, last, extent)
    count = extent // lanes
    lane = f"{last}.v" if lanes > 1 else ""
    step = var(f"{last}.q", count) * lanes + var(lane, lanes) if lanes > 1 else var(last, extent)
    _part(
        tree,
        b,
        p,
        (offset, valid),
        step,
        [(f"{last}.q", count) if lanes > 1 else (last, extent)],
        (lane, lanes),
    )
    rest = extent - count * lanes
    if rest:
        _part(
            tree,
            b,
            p,
            (offset, valid),
            var(f"{last}.r", rest) + count * lanes,
            [(f"{last}.r", rest)],
            ("", 1),
        )


def _part(
    tree: LoopTree, b: Builder, p: StagedCopy, source: tuple[Index, Valid], step: Index,
    innermost: list[tuple[str, int]], vector: tuple[str, int],
) -> None:  # fmt: skip
    """The copy of the elements whose last dimension is ``step``, over the loops ``innermost``."""
    last = p.variables[-1][0]
    target, stride = as_index(0), 1
    for n, e in reversed(p.variables):
        target = target + (step if n == last else var(n, e)) * stride
        stride *= e
    offset, valid = source[0].substitute({last: step}), source[1].substitute({last: step})
    _nest(tree, b, p, [*p.variables[:-1], *innermost], (offset, valid, target), vector)


def _copy_lanes(tree: LoopTree, p: StagedCopy, offset: Index, last: str, extent: int) -> int:
    if not tree.target.has_vector_registers or not last or offset.coefficient(last) not in (0, 1):
        return 1
    lanes = tree.target.lanes(p.dtype.itemsize)
    while lanes > extent:
        lanes //= 2
    return lanes


def _nest(
    tree: LoopTree, b: Builder, p: StagedCopy, loops: list[tuple[str, int]],
    what: tuple[Index, Valid, Index], vector: tuple[str, int],
) -> None:  # fmt: skip
    offset, valid, target = what
    lane, lanes = vector
    loops = [x for x in loops if x[1] > 1]
    threads = prod(x.count for x in tree.loops if x.kind is LoopKind.THREAD)
    inner_names = {loops[-1][0], lane} if loops else {lane}
    outer = (
        Valid(r for r in valid if not (r.index.names() & inner_names)) if not valid.never else NEVER
    )
    inner = Valid(r for r in valid if r.index.names() & inner_names)

    def innermost(fill: bool) -> tuple:  # type: ignore[type-arg]
        b.open()
        b.open()
        value = (
            (b.number(0, p.dtype), 1)
            if fill
            else b.load(p.source, offset, inner, p.dtype, lane, lanes)
        )
        b.store(p.staged.buffer, target, ALWAYS, value, p.dtype, lane, lanes)
        body = b.close()
        if loops and not (len(loops) == 1 and p.space == "team"):
            n, e = loops[-1]
            b.add(For(n, e, (as_index(e),), body))
        else:
            for instr in body:
                b.add(instr)
        return b.close()

    body: tuple = ()  # type: ignore[type-arg]
    if outer.always:
        body = innermost(False)
    elif outer.never:
        body = innermost(True)
    else:
        body = (If(outer, innermost(False), innermost(True)),)
    around = loops if len(loops) == 1 and p.space == "team" else loops[:-1]
    for i, (n, e) in reversed(list(enumerate(around))):
        if i == 0 and p.space == "team" and threads > 1:
            body = (For(n, e, (as_index(e),), body, "thread", threads),)
        else:
            body = (For(n, e, (as_index(e),), body),)
    for instr in body:
        b.add(instr)
