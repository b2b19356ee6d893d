"""Code that fills scratch: copies of operands, and sums on their way through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tunegrad.ir.index import ALWAYS, NEVER, Index, Range, Valid, as_index, var
from tunegrad.ir.kernel import Store
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree
from tunegrad.ir.program import Alloc, Barrier, CopyAsync, For, If, Instr, VType

from ..staging import StagedCopy, StagedEpilogue
from .builder import Builder
from .values import Point, Result, Values, fix, fix_valid, known

# ---- staged operands
#
# Copies of staged operands: vectors where the source is contiguous, over the team, zero-filled.


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
    inside = (Range(q, 0, vectors) if p.dense else first,) if q.hi >= vectors else ()
    _add_rounds(b, b.close(), inside, name, rounds)


def _add_rounds(
    b: Builder, body: tuple[Instr, ...], inside: tuple[Range, ...], name: str, rounds: int
) -> None:
    """Instructions of each item in every round, where it is still inside."""
    body = (If(Valid(inside), body),) if inside else body
    b.extend((For(name, rounds, (as_index(rounds),), body),) if rounds > 1 else body)


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
    """The copies at one place, between barriers; ``again`` says that it runs repeatedly."""
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
        _nest(tree, b, p, [], [(offset, as_index(0))], valid, ("", 1))
        return
    last, extent = p.variables[-1]
    lanes = _copy_lanes(tree, p, offset, last, extent)
    turned = _turned(tree, p, offset, valid)
    if turned is not None:
        lanes, valid = tree.target.lanes(p.dtype.itemsize), _whole(valid, last, extent)
    count = extent // lanes
    lane = f"{last}.v" if lanes > 1 else ""
    step = var(f"{last}.q", count) * lanes + var(lane, lanes) if lanes > 1 else var(last, extent)
    loop = (f"{last}.q", count) if lanes > 1 else (last, extent)
    _part(tree, b, p, (offset, valid), step, loop, (lane, lanes), turned)
    rest = extent - count * lanes
    if rest:
        left = var(f"{last}.r", rest) + count * lanes
        _part(tree, b, p, (offset, valid), left, (f"{last}.r", rest), ("", 1))


def _part(
    tree: LoopTree, b: Builder, p: StagedCopy, source: tuple[Index, Valid], step: Index,
    innermost: tuple[str, int], vector: tuple[str, int], turned: str | None = None,
) -> None:  # fmt: skip
    """The copy of the elements whose last dimension is ``step``, over ``innermost`` as well; as
    many steps of ``turned`` at once as there are lanes.
    """
    last = p.variables[-1][0]
    target, stride = as_index(0), 1
    for n, e in reversed(p.variables):
        target = target + (step if n == last else var(n, e)) * stride
        stride *= e
    offset, valid = source[0].substitute({last: step}), source[1].substitute({last: step})
    loops, points = [*p.variables[:-1], innermost], list[dict[str, Index]]([{}])
    if turned is not None:
        size = vector[1]
        blocks = f"{turned}.q", dict(loops)[turned] // size
        points = [{turned: var(*blocks) * size + j} for j in range(size)]
        loops = [*(x for x in loops if x[0] != turned), blocks]
    moved = [(offset.substitute(at), target.substitute(at)) for at in points]
    _nest(tree, b, p, loops, moved, valid, vector)


_TURNED = 16
"""Lanes of a vector that registers turn, at most: LLVM's text has a load for each number of others,
4,096 of a block of bytes.
"""


def _turned(tree: LoopTree, p: StagedCopy, offset: Index, valid: Valid) -> str | None:
    """The variable along which the source is contiguous, where that is not the last one: blocks of
    whole vectors of both are read by lines, and turned in registers.

        for k: for l: B[k, l] = W[512*l + k]   -->   for k.q: W[512*l + 16*k.q + <0..15>] of 16 l

    One number after the other, 16 rows of 2 KiB are more than the sets of a first cache hold, and
    each line is read 16 times.
    """
    if not tree.target.has_vector_registers:
        return None
    (last, extent), lanes = p.variables[-1], tree.target.lanes(p.dtype.itemsize)
    step = offset.coefficient(last) or 0
    if lanes > _TURNED or step < lanes or extent % lanes:
        return None
    if last in _whole(valid, last, extent).names():
        return None
    return next(
        (
            n for n, e in p.variables[:-1]
            if offset.coefficient(n) == 1 and e % lanes == 0 and n not in valid.names()
        ),
        None,
    )  # fmt: skip


def _whole(valid: Valid, last: str, extent: int) -> Valid:
    """The condition without ``last``, where it is one for all of a row of ``extent``: bounds of
    what runs in steps of the row, as of a tile that is not whole.
    """

    def same(r: Range) -> Range:
        rest = r.index.substitute({last: as_index(0)})
        alike = r.index.coefficient(last) == 1 and not any(
            n % extent for n in (rest.const - r.lo, rest.const - r.hi, *(c for _, c in rest.terms))
        )
        return Range(rest, r.lo, r.hi) if alike else r

    return valid if valid.never else Valid(same(r) for r in valid)


def _copy_lanes(tree: LoopTree, p: StagedCopy, offset: Index, last: str, extent: int) -> int:
    if not tree.target.has_vector_registers or not last or offset.coefficient(last) not in (0, 1):
        return 1
    lanes = tree.target.lanes(p.dtype.itemsize)
    while lanes > extent:
        lanes //= 2
    return lanes


def _nest(
    tree: LoopTree, b: Builder, p: StagedCopy, loops: list[tuple[str, int]],
    moved: Sequence[tuple[Index, Index]], valid: Valid, vector: tuple[str, int],
) -> None:  # fmt: skip
    """Loops around elements or vectors, each from an offset of the source to one of the copy."""
    lane, lanes = vector
    loops = [x for i, x in enumerate(loops, 1) if x[1] > 1 or (i == len(loops) and len(moved) > 1)]
    threads = prod(x.count for x in tree.loops if x.kind is LoopKind.THREAD)
    inner_names = {loops[-1][0], lane} if loops else {lane}
    outer = (
        Valid(r for r in valid if not (r.index.names() & inner_names)) if not valid.never else NEVER
    )
    inner = Valid(r for r in valid if r.index.names() & inner_names)

    def innermost(fill: bool) -> tuple:  # type: ignore[type-arg]
        b.open()
        b.open()
        values = [
            (b.number(0, p.dtype), 1)
            if fill
            else b.load(p.source, offset, inner, p.dtype, lane, lanes)
            for offset, _ in moved
        ]
        for value, (_, target) in zip(values, moved, strict=True):
            b.store(p.staged.buffer, target, ALWAYS, value, p.dtype, lane, lanes)
        body = b.close()
        if loops and not (len(loops) == 1 and p.space == "team"):
            n, e = loops[-1]
            b.add(For(n, e, (as_index(e),), body))
        else:
            b.extend(body)
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
    b.extend(body)


# ---- epilogues
#
# Stores through shared memory: the item that holds a sum passes it to the item that stores its
# neighbours.
#
# for each slice of the group's results:
#     barrier                                         but before the first one
#     slice[row, column] = sum                        what each item holds
#     barrier
#     for q, run by run, shared out over the items:
#         sums = slice[q // runs, run of columns]
#         out = epilogue(sums)                        a run of results side by side


Sums = Mapping[tuple[str, Point], Result]
ValuesAt = Callable[[int, dict[str, Index], frozenset[str]], Values]
"""The values of a stage where loops are fixed, and conditions are known to hold."""


def slice_alloc(e: StagedEpilogue) -> Alloc:
    """The shared memory of a slice."""
    return Alloc(e.buffer, e.reduce.dtype, e.size, "shared")


def store_by_slices(
    tree: LoopTree, b: Builder, e: StagedEpilogue, sums: Sums, values_at: ValuesAt
) -> None:
    """All stores of a tree, whose items hold ``sums``."""
    registers = [x.name for x in tree.shared_registers]
    mine = [x for x in e.columns if x.name in registers]
    again = any(x.kind is LoopKind.SERIAL and x.extent > 1 for x in tree.outer)
    for n, here in enumerate(_points(e.slices)):
        if n or again:
            b.add(Barrier())
        for there in _points(mine):
            at = dict(here + there)
            point = tuple((n, at[n]) for n in registers if n in at)
            row, column = (fix(i, point) for i in e.held())
            value = known(sums[e.reduce.name, point])
            b.store(e.buffer, e.place(row, column), ALWAYS, value, e.reduce.dtype, "", 1)
        b.add(Barrier())
        _finish(tree, b, e, here, values_at)


def _points(loops: list[Loop] | tuple[Loop, ...]) -> list[Point]:
    found = product(*([(x.name, v) for v in range(x.extent)] for x in loops))
    return [tuple(p) for p in found]


def _finish(
    tree: LoopTree, b: Builder, e: StagedEpilogue, here: Point, values_at: ValuesAt
) -> None:
    """The runs of one slice, shared out over the items of the group."""
    items, me = this_item(tree)
    rounds = -(-e.runs // items)
    name, lane = f"{e.buffer}.q", f"{e.buffer}.c"
    q = var(name, rounds) * items + me
    across = e.width // e.run
    row, first = q // across, q % across * e.run
    b.open()
    for i, s in enumerate(tree.kernel.stages):
        if isinstance(s, Store):
            _store(b, e, (i, s), (row, first + var(lane, e.run)), (here, lane), values_at)
    body = b.close()
    if not body:
        return
    inside = (Range(row, 0, e.height),) if q.hi >= e.runs else ()
    _add_rounds(b, body, inside, name, rounds)


def _store(
    b: Builder, e: StagedEpilogue, stage: tuple[int, Store], at: tuple[Index, Index],
    within: tuple[Point, str], values_at: ValuesAt,
) -> None:  # fmt: skip
    """A run of results: what is in shared memory first, then the values, then the stores, so that
    neighbours are one access. A condition that holds for a whole run is asked once.
    """
    i, s = stage
    here, lane = within
    env = e.loops_at(*at)
    values = values_at(i, env, frozenset())
    kernel = values.tree.kernel
    axes = {a.name for a in kernel.axes}
    asked = tuple(values.masks(axes) & values.needed(s.valid))
    whole = {r.key: _at(Valid((r,)), env, here) for r in asked}
    whole = {k: v for k, v in whole.items() if lane not in v.names()}
    if any(v.never for v in whole.values()):  # rows past the last one, of a tile that is not whole
        return
    around = Valid([r for v in whole.values() for r in v])
    b.open()
    values = values_at(i, env, frozenset(whole))
    values.registers = frozenset((*(n for n, _ in here), lane))
    points = [(*here, (lane, c)) for c in range(e.run)]
    for p in points:
        offset = fix(e.place(*at), p)
        found = b.load(e.buffer, offset, ALWAYS, e.reduce.dtype, "", 1)
        values.results[e.reduce.name, p] = found
    made = [values.emit(s.expr, p, None) for p in points]
    layout, dtype = kernel.param(s.param).layout, kernel.param(s.param).dtype
    # over the loops first: divisions that a fused loop makes are gone there, and stay so
    target = layout.offset([x.substitute(dict(values.tree.index)) for x in s.index]).substitute(env)
    valid = (values.masks(axes) & values.needed(s.valid)).substitute(env)
    for p, value in zip(points, made, strict=True):
        b.store(s.param, fix(target, p), fix_valid(valid, p), value, dtype, "", 1)
    body = b.close()
    b.extend(body if around.always else (If(around, body),))


def _at(valid: Valid, env: dict[str, Index], here: Point) -> Valid:
    return fix_valid(valid.substitute(env), here)
