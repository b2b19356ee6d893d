"""Tensors one after another in one buffer: the launches that make them write parts of it.

    buffer 5 f32[5] temp t5                              buffer 5 f32[5] view t5 of 8 from byte 0
    buffer 6 f32[96] temp t6                             buffer 6 f32[96] view t6 of 8 from byte 20
    buffer 8 f32[101] temp t8                            buffer 8 f32[101] temp t8
    launch sum 32x5->5 (5, 2)                    <-->    launch sum 32x5->5 (5, 2)
    launch matmul 16x6x32 (6, 3, 4)                      launch matmul 16x6x32 (6, 3, 4)
    launch elementwise where 101 (8, 5, 6)

So the gradients of many parameters are one tensor, which one kernel reads, without a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import cast

from ..dtypes import DType
from ..expr import Apply, Cast, Expr, Inside, Load, Op, equal
from ..index import Range, Valid
from ..kernel import Axis, Kernel, Param, Store
from ..layout import Layout
from .axes import params_of
from .plan import Buffer, Launch, LaunchPlan

_Piece = tuple[int, int, int]
"""A buffer, the first element of it in a whole, and its size."""


def joined(plan: LaunchPlan, view_bytes: int) -> LaunchPlan:
    """The plan without launches that only lay temporary buffers one after another: those that write
    these write parts of the whole. A launch that does more reads the whole instead.

    Parts begin at multiples of ``view_bytes``, and are no wholes of other parts: such a one is read
    before the rest of the larger whole is written. What no launch can write at its place, such as
    an input or a tensor that comes twice, is copied there. A plan without such a launch is the same
    object.
    """
    whole = _unchained(plan)
    if whole is not plan:
        found, deep = (
            _joined(whole, view_bytes),
            {*map(id, whole.launches)} - {*map(id, plan.launches)},
        )
        if deep.isdisjoint(map(id, found.launches)):
            return found
    return _joined(plan, view_bytes)


def _joined(plan: LaunchPlan, view_bytes: int) -> LaunchPlan:
    """``joined``, of concatenations in one launch each."""
    written = {i for x in plan.launches for i in x.writes}
    buffers = [*plan.buffers]
    wholes = set[int]()
    launches: list[Launch] = []
    for launch in plan.launches:
        left: Launch | None = launch
        args = {p.name: i for p, i in _args(launch)}
        for store in launch.kernel.stores:
            pieces = [(args[name], start, size)
                      for name, start, size in _concatenated(launch.kernel, store)]  # fmt: skip
            whole = args[store.param]
            free = {i for i in written - wholes if _is_plain(buffers[i])}
            places, runs = _placed(pieces, free, view_bytes, buffers[whole].dtype.itemsize)
            if len(places) <= len(runs) or not _is_plain(buffers[whole]):
                continue
            size = buffers[whole].dtype.itemsize
            buffers = [_moved(b, whole, places, size) for b in buffers]
            for run in runs:
                kernel = _concatenation([n for _, _, n in run], buffers[whole].dtype)
                layout = Layout.row_major((sum(n for _, _, n in run),))
                made = replace(
                    buffers[whole], id=len(buffers), shape=layout.shape, layout=layout, role="view",
                    name=f"t{len(buffers)}", base=whole, start=run[0][1] * size, node=None,
                )  # fmt: skip
                buffers.append(made)
                ids = made.id, *(i for i, _, _ in run)
                launches.append(Launch(kernel, ids, kernel.name, ()))
            wholes.add(whole)
            left = _reading(launch, store)
            break
        launches += [] if left is None else [left]
    if not wholes:
        return plan
    result = replace(plan, buffers=tuple(buffers), launches=tuple(launches))
    result.verify()
    return result


def _unchained(plan: LaunchPlan) -> LaunchPlan:
    """The plan with concatenations in one launch each that have so many inputs that they are
    several, each of which reads the one before where it has nothing itself; the same object where
    there are none.
    """
    writers = {x.writes[0]: x for x in plan.launches if len(x.kernel.stages) == 1}
    reads = Counter(i for x in plan.launches for i in x.reads)
    viewed = {b.base for b in plan.buffers}
    gone: dict[int, Launch | None] = {}
    for launch in writers.values():
        pieces, under, dropped = dict[_Piece, None](), launch, list[Launch]()
        while True:
            args = {p.name: i for p, i in _args(under)}
            found = _pieces(under.kernel, cast(Store, under.kernel.stages[0]))
            whole = [i for i in (args[n] for n, _, size in found if size == _extent(under))
                     if i in writers and reads[i] == 1 and i not in viewed]  # fmt: skip
            pieces |= dict.fromkeys((args[n], start, size) for n, start, size in found)
            if len(whole) != 1 or not _is_plain(plan.buffers[whole[0]]):
                break
            pieces.pop((whole[0], 0, _extent(under)))
            under = writers[whole[0]]
            dropped.append(under)
        ordered = sorted(pieces, key=itemgetter(1))
        sizes = [size for _, _, size in ordered]
        starts = [*(start for _, start, _ in ordered), _extent(launch)]
        if dropped and [*accumulate(sizes, initial=0)] == starts:
            kernel = _concatenation(sizes, plan.buffers[launch.writes[0]].dtype)
            ids = launch.writes[0], *(i for i, _, _ in ordered)
            gone |= {id(x): None for x in dropped}
            gone[id(launch)] = Launch(kernel, ids, kernel.name, ())
    if not gone:
        return plan
    launches = (gone.get(id(x), x) for x in plan.launches)
    return replace(plan, launches=tuple(x for x in launches if x is not None))


def _extent(launch: Launch) -> int:
    axes = launch.kernel.axes
    return axes[0].extent if len(axes) == 1 else -1


def _placed(
    pieces: Sequence[_Piece], free: Set[int], view_bytes: int, itemsize: int
) -> tuple[dict[int, int], list[list[_Piece]]]:
    """The first elements of the pieces that their launches can write at their places; the others in
    runs of neighbours, each of which begins where a part can.
    """
    slots: list[list[_Piece]] = []
    for piece in pieces:
        if slots and piece[1] * itemsize % view_bytes:
            slots[-1].append(piece)
        else:
            slots.append([piece])
    places: dict[int, int] = {}
    runs: list[list[_Piece]] = []
    follows = False
    for slot in slots:
        i, start, _ = slot[0]
        if len(slot) == 1 and i in free and i not in places:
            places[i], follows = start, False
        elif follows:
            runs[-1] += slot
        else:
            runs.append([*slot])
            follows = True
    return places, runs


def separated(plan: LaunchPlan) -> LaunchPlan:
    """The plan with a buffer for each part, and launches that join them; itself without parts."""
    parts = plan.parts
    if not parts:
        return plan
    inner = {i: (base, b.start) for base, of in parts.items() for i in of
             for b in (plan.buffers[i],)}  # fmt: skip
    pieces = plan.pieces

    def apart(b: Buffer) -> Buffer:
        if b.id in inner:
            return replace(b, role="temp", base=None, start=0)
        if b.base in parts and len(pieces[b.id]) == 1:  # it may be read before the rest is written
            (part,) = pieces[b.id]
            return replace(b, base=part, start=b.start - plan.buffers[part].start)
        return b

    buffers = tuple(map(apart, plan.buffers))
    launches: list[Launch] = []
    missing = {base: set(of) for base, of in parts.items()}
    for launch in plan.launches:
        launches.append(launch)
        for base in {inner[i][0] for i in launch.args if i in inner} & missing.keys():
            missing[base] -= {*launch.args}
            if not missing[base]:
                del missing[base]
                sizes = [plan.buffers[i].layout.size for i in parts[base]]
                kernel = _concatenation(sizes, plan.buffers[base].dtype)
                launches.append(Launch(kernel, (base, *parts[base]), kernel.name, ()))
    return replace(plan, buffers=buffers, launches=tuple(launches))


def sliced(plan: LaunchPlan, view_bytes: int) -> LaunchPlan:
    """The plan without launches that only copy a slice of an input: kernels read it where it lies.

    Slices begin at multiples of ``view_bytes``. A plan without such a launch is the same object.

        buffer 4 f32[8,12] temp t4                 buffer 4 f32[8,12] view t4 of 0 from byte 64
        launch copy 8x12 (4, 0)             -->
        launch matmul 8x12x16 (5, 4, 1)            launch matmul 8x12x16 (5, 4, 1)
    """
    buffers = plan.buffers
    launches: list[Launch] = []
    for launch in plan.launches:
        first = _first_copied(launch.kernel)
        out, source = (buffers[i] for i in launch.args) if first is not None else (None, None)
        if out is not None and source is not None and first is not None:
            base, start = plan.memory(source.id), source.start + first * source.dtype.itemsize
            lies = buffers[base].role == "input" and source.dtype == out.dtype
            if lies and _is_plain(out) and source.layout.is_row_major and start % view_bytes == 0:
                there = {out.id: start // out.dtype.itemsize}
                buffers = tuple(_moved(b, base, there, out.dtype.itemsize) for b in buffers)
                continue
        launches.append(launch)
    if buffers is plan.buffers:
        return plan
    views = (replace(b, node=None) if b.role == "view" else b for b in buffers)
    made = replace(plan, buffers=tuple(views), launches=tuple(launches))
    made.verify()
    return made


def _first_copied(k: Kernel) -> int | None:
    """The first element of a kernel's input that it copies, where it copies neighbours in order."""
    if k.fixed or k.reduces or len(k.axes) != 1 or len(k.params) != 2 or len(k.stores) != 1:
        return None
    (axis,), (store,), source = k.axes, k.stores, k.params[1]
    x = store.expr
    if store.axes or not store.valid.always or store.index != (axis.index,):
        return None
    if not isinstance(x, Load) or not x.valid.always or len(x.index) != 1 or source.role != "in":
        return None
    first = x.index[0] - axis.index
    return None if first.terms else first.const


def _args(launch: Launch) -> zip[tuple[Param, int]]:
    return zip(launch.kernel.params, launch.args, strict=True)


def _is_plain(b: Buffer) -> bool:
    return b.role == "temp" and b.layout.is_row_major and b.layout.size > 0


def _moved(b: Buffer, whole: int, places: dict[int, int], size: int) -> Buffer:
    """A buffer that is a part of the whole now, or a view of one that is."""
    if b.id in places:
        return replace(b, role="view", base=whole, start=places[b.id] * size)
    if b.base in places:
        return replace(b, base=whole, start=b.start + places[b.base] * size)
    return b


def _concatenated(k: Kernel, store: Store) -> list[tuple[str, int, int]]:
    """The inputs that a store of a kernel lays one after another, each with the first element of it
    in the output and its size, in order; nothing for any other store.

        where(3<=a<8, q[a-3], p[a])
    """
    found = sorted(_pieces(k, store), key=itemgetter(1))
    ends = [0, *(start + size for _, start, size in found)]
    tiled = bool(found) and ends == [*(start for _, start, _ in found), k.axes[0].extent]
    return found if tiled and len(found) > 1 else []


def _pieces(k: Kernel, store: Store) -> list[tuple[str, int, int]]:
    """The inputs that a store lays at places of their own, the last maybe everywhere; or none."""
    if k.fixed or k.reduces or len(k.axes) != 1:
        return []
    (axis,) = k.axes
    if any(s.axes or not s.valid.always or s.index != (axis.index,) for s in k.stores):
        return []
    found: list[tuple[str, int, int]] = []
    for condition, x in _choices(store.expr):
        if not isinstance(x, Load) or len(x.index) != 1:
            return []
        p, gap = k.param(x.param), axis.index - x.index[0]
        inside = Valid((Range(axis.index, gap.const, gap.const + p.size),))
        if gap.terms or p.shape != (p.size,) or p.role != "in" or x.dtype != store.expr.dtype:
            return []
        if condition not in (None, inside) or not (x.valid.always or x.valid == inside):
            return []
        found.append((x.param, gap.const, p.size))
    return found


def _reading(launch: Launch, store: Store) -> Launch | None:
    """The launch without a store, whose value it reads from memory; None where that was all."""
    k = launch.kernel
    if len(k.stages) == 1:
        return None
    (axis,), whole = k.axes, Param.dense("whole", store.expr.dtype, (k.axes[0].extent,), "in")
    load = Load(whole.name, (axis.index,), whole.dtype)
    stages = tuple(
        replace(s, expr=_swapped(s.expr, store.expr, load, {})) for s in k.stages if s is not store
    )
    made = replace(k, params=(*k.params, whole), stages=stages)
    used, _ = params_of(made)
    pairs = [*_args(launch), (whole, {p.name: i for p, i in _args(launch)}[store.param])]
    kept = [(p, i) for p, i in pairs if p.name in used]
    made = replace(made, params=tuple(p for p, _ in kept)).canonical()
    return replace(launch, kernel=made.named(k.name, k.origin), args=tuple(i for _, i in kept))


def _swapped(x: Expr, old: Expr, new: Load, known: dict[int, Expr]) -> Expr:
    """An expression with a part of it as a load."""
    found = known.get(id(x))
    if found is None:
        if equal(x, old):
            found = new
        elif isinstance(x, Apply):
            args = tuple(_swapped(a, old, new, known) for a in x.args)
            found = Apply(x.op, args, x.dtype)
        elif isinstance(x, Cast):
            found = Cast(_swapped(x.x, old, new, known), x.dtype)
        else:
            found = x
        known[id(x)] = found
    return found


def _choices(x: Expr) -> Iterator[tuple[Valid | None, Expr]]:
    """Values of nested choices, each with its condition; the last one has none."""
    while isinstance(x, Apply) and x.op is Op.WHERE and isinstance(x.args[0], Inside):
        yield x.args[0].valid, x.args[1]
        x = x.args[2]
    yield None, x


def _concatenation(sizes: Sequence[int], dtype: DType) -> Kernel:
    """The kernel that lays inputs of these sizes one after another."""
    axis = Axis("a", sum(sizes))
    params = [Param.dense("p0", dtype, (axis.extent,), "out")]
    made: Expr | None = None
    start = 0
    for n, size in enumerate(sizes, 1):
        params.append(Param.dense(f"p{n}", dtype, (size,), "in"))
        inside = Valid((Range(axis.index, start, start + size),))
        load = Load(f"p{n}", (axis.index - start,), dtype, inside)
        made = load if made is None else Apply(Op.WHERE, (Inside(inside), load, made), dtype)
        start += size
    assert made is not None, sizes
    store = Store("p0", (axis.index,), made)
    return Kernel(tuple(params), (axis,), (store,), f"concatenation {axis.extent}").canonical()
