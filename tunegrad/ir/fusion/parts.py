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

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..dtypes import DType
from ..expr import Apply, Expr, Inside, Load, Op
from ..index import Range, Valid
from ..kernel import Axis, Kernel, Param, Store
from .plan import Buffer, Launch, LaunchPlan

__all__ = ["joined", "separated"]


def joined(plan: LaunchPlan, view_bytes: int) -> LaunchPlan:
    """The plan without launches that only lay temporary buffers one after another: those that write
    these write parts of the whole.

    Parts begin at multiples of ``view_bytes``. A plan without such a launch is the same object.
    """
    writers = {i for x in plan.launches for p, i in _args(x) if p.role == "out"}
    gone: set[int] = set()
    for n, launch in enumerate(plan.launches):
        starts = _concatenated(launch.kernel)
        if starts is None:
            continue
        whole, parts = launch.args[0], launch.args[1:]
        size = plan.buffers[whole].dtype.itemsize
        fits = all(
            i in writers and _is_plain(plan.buffers[i]) and start * size % view_bytes == 0
            for i, start in zip(parts, starts, strict=True)
        )
        if fits and len(set(parts)) == len(parts) and _is_plain(plan.buffers[whole]):
            gone.add(n)
            places = dict(zip(parts, starts, strict=True))
            buffers = tuple(_moved(b, whole, places, size) for b in plan.buffers)
            plan = replace(plan, buffers=buffers)
    if not gone:
        return plan
    left = tuple(x for n, x in enumerate(plan.launches) if n not in gone)
    made = replace(plan, launches=left)
    made.verify()
    return made


def separated(plan: LaunchPlan) -> LaunchPlan:
    """The plan with a buffer for each part, and a launch that lays them one after another; the same
    object where there are none.
    """
    parts = plan.parts
    if not parts:
        return plan
    inner = {i: (base, b.start) for base, of in parts.items() for i in of
             for b in (plan.buffers[i],)}  # fmt: skip
    buffers = tuple(
        replace(b, role="temp", base=None, start=0) if b.id in inner else b for b in plan.buffers
    )
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


def _concatenated(k: Kernel) -> list[int] | None:
    """The first element of each input in the output of a kernel that lays inputs one after another;
    None for any other kernel.

        where(3<=a<8, q[a-3], p[a])
    """
    if len(k.stages) != 1 or len(k.axes) != 1 or len(k.params) < 3:
        return None
    (store,), (axis,), (out, *params) = k.stores, k.axes, k.params
    if k.fixed or store.axes or not store.valid.always or store.index != (axis.index,):
        return None
    starts: dict[str, int] = {}
    for condition, x in _choices(store.expr):
        if not isinstance(x, Load) or x.param in starts or len(x.index) != 1:
            return None
        gap = axis.index - x.index[0]
        start, size = gap.const, k.param(x.param).size
        if gap.terms or k.param(x.param).shape != (size,) or x.dtype != out.dtype:
            return None
        inside = Valid((Range(axis.index, start, start + size),))
        if condition not in (None, inside) or not (x.valid.always or x.valid == inside):
            return None
        starts[x.param] = start
    ends = sorted((s, s + k.param(name).size) for name, s in starts.items())
    tiled = [0, *(e for _, e in ends)] == [*(s for s, _ in ends), axis.extent]
    roles = {p.role for p in params}
    known = len(starts) == len(params) and roles == {"in"} and out.shape == (axis.extent,)
    return [starts[p.name] for p in params] if tiled and known else None


def _choices(x: Expr) -> Iterator[tuple[Valid | None, Expr]]:
    """What nested choices give, each with its condition; the last one is what else is left."""
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
