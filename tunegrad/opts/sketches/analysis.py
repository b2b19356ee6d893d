"""Parts that sketches share: how loads walk memory along each axis, levels of split axes, threads,
and decisions about memory traffic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import field
from math import prod
from typing import TypeVar, cast

from tunegrad.ir.expr import FUNCTIONS, Apply, Expr, Op
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.kernel import Axis, Kernel, Stage, loads, on_both, own_axes
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

from ..actions import Action, Keep, Prefetch, Stream, Thread, Tile, Upcast, Vectorize
from ..decisions import Recorder
from ..staging import most_packed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Access:
    """One load of a stage: the elements it moves per step of each axis it depends on; None where
    that varies. ``indirect``: the place depends on data, and no copy can be made beforehand.
    """

    param: str
    role: str
    strides: tuple[tuple[str, int | None], ...]
    masked: bool
    nbytes: int
    indirect: bool = False
    boxed: bool = True
    guards: tuple[frozenset[str], ...] = ()
    _by_axis: dict[str, int | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_axis", dict(self.strides))

    def stride(self, axis: str) -> int | None:
        """Elements per step of ``axis``; 0 when the load does not depend on it."""
        return self._by_axis.get(axis, 0)

    def depends(self, axis: str) -> bool:
        return axis in self._by_axis


@dataclass(slots=True)
class _Known:
    """Facts found out about one kernel: a search draws thousands of schedules of it."""

    kernel: Kernel
    accesses: dict[int, tuple[Access, ...]] = field(default_factory=dict)
    output_strides: dict[str, int | None] = field(default_factory=dict)
    others: dict[Hashable, object] = field(default_factory=dict)


_KNOWN: OrderedDict[int, _Known] = OrderedDict()
"""By the kernel's identity: hashing its text would cost more than it saves; a few."""

_MOST_KNOWN = 128


def _known(kernel: Kernel) -> _Known:
    found = _KNOWN.get(id(kernel))
    if found is None:  # an entry keeps its kernel alive, so that no other one can have its identity
        found = _KNOWN[id(kernel)] = _Known(kernel)
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return found


def once(kernel: Kernel, key: Hashable, find: Callable[[], T]) -> T:
    """The answer of ``find`` about a kernel, asked for once; ``key`` names the question.

    No caller may change it.
    """
    others = _known(kernel).others
    if key not in others:
        others[key] = find()
    return cast("T", others[key])


def accesses(kernel: Kernel, stage: Stage) -> tuple[Access, ...]:
    """Every load of a stage."""
    known = _known(kernel).accesses
    place = next((i for i, s in enumerate(kernel.stages) if s is stage), -1)
    if place not in known:
        known[place] = _accesses(kernel, stage, ()) if place >= 0 else ()
    return known[place]


def accesses_of_terms(kernel: Kernel) -> tuple[Access, ...]:
    """Every load of the first reduction, where its terms are some (``on_both``)."""
    stage, given = kernel.reduces[0], on_both(kernel)
    if not given:
        return accesses(kernel, stage)
    return once(kernel, "terms", lambda: _accesses(kernel, stage, given))


def _accesses(kernel: Kernel, stage: Stage, given: Sequence[Range]) -> tuple[Access, ...]:
    found = []
    for s, x in loads(kernel):
        if s is stage:
            param = kernel.param(x.param)
            offset = param.layout.offset(x.index)
            valid = Valid(r for r in x.valid if r not in given) if given else x.valid
            names = sorted(offset.names() | valid.names())
            strides = tuple((n, offset.coefficient(n)) for n in names)
            indirect = any(True for _ in offset.elements())
            masked = not valid.always
            boxed = all(any(d.terms == r.index.terms for d in x.index) for r in x.valid)
            found.append(
                Access(
                    x.param,
                    param.role,
                    strides,
                    masked,
                    param.nbytes,
                    indirect,
                    boxed,
                    tuple(r.index.names() for r in valid),
                )
            )
    return tuple(found)


def stored_accesses(kernel: Kernel) -> tuple[Access, ...]:
    """The loads of the first store of each output."""
    first = {s.param: s for s in reversed(kernel.stores)}
    stages = [s for s in kernel.stores if first[s.param] is s]
    return tuple(x for s in stages for x in accesses(kernel, s))


def stored_itemsize(kernel: Kernel) -> int:
    """Bytes of the widest element that is stored."""
    return max(p.dtype.itemsize for p in kernel.outputs)


def can_be_packed(kernel: Kernel, reduces: Sequence[Axis], x: Access) -> bool:
    """True if a copy of a constant by its loops is of a legal size, whatever tails pad it.

    Loops that read an element again copy it again: ``w[i % 2]`` by ``i`` is as long as ``i``.
    """
    reads = prod(a.extent for a in (*kernel.axes, *reduces) if x.depends(a.name))
    return 2 * reads * kernel.param(x.param).dtype.itemsize <= most_packed(x.nbytes)


def contiguous_itemsize(kernel: Kernel, stage: Stage, axis: Axis) -> int:
    """Bytes of the widest element that a stage loads side by side along an axis; 0: none are."""
    beside = (x for x in accesses(kernel, stage) if x.stride(axis.name) == 1)
    return max((kernel.param(x.param).dtype.itemsize for x in beside), default=0)


def output_stride(kernel: Kernel, axis: str) -> int | None:
    """Elements that the first store moves per step of ``axis``."""
    known = _known(kernel).output_strides
    if axis not in known:
        s = kernel.stores[0]
        known[axis] = kernel.param(s.param).layout.offset(s.index).coefficient(axis)
    return known[axis]


def contiguous_axes(kernel: Kernel, names: list[str]) -> list[str]:
    """The axes along which the first store is contiguous."""
    return [n for n in names if output_stride(kernel, n) == 1]


class Levels:
    """Builds ``tile`` actions. Each axis is split at most once, by sizes from the outside in."""

    def __init__(self, kernel: Kernel) -> None:
        self.actions: list[Action] = []
        self.loops: dict[str, int] = {a.name: a.extent for a in kernel.all_axes()}

    def split(self, axis: str, sizes: Sequence[int]) -> list[str]:
        """Loop names: what is outside every size, then what runs inside each size.

        "" where there is no such loop. Each size must be a multiple of the next. Sizes of 0 and 1,
        and sizes that hold all that is left, make no loop of their own, but a power of two at the
        end that is larger than the axis does (vector lanes).
        """
        extent = self.loops.pop(axis)
        found = [""] * (len(sizes) + 1)
        slot, covered, current, level = 0, extent, axis, 0
        for i, size in enumerate(sizes):
            last = i == len(sizes) - 1
            if 1 < size < covered or (last and size > extent and covered == extent):
                self.actions.append(Tile(current, size))
                outer = f"{axis}{level}"
                found[slot] = outer
                self.loops[outer] = -(-covered // size)
                level, covered, current = level + 1, size, f"{axis}{level + 1}"
                slot = i + 1
            elif size >= covered > 1:
                slot = i + 1
        found[slot] = current
        self.loops[current] = covered
        return found

    def extent(self, loop: str) -> int:
        """Iterations of a loop; 1 where there is none."""
        return self.loops.get(loop, 1) if loop else 1

    def each(self, action: Callable[[str], Action], *loops: str) -> list[Action]:
        """An action for each loop that has several iterations."""
        return [action(x) for x in loops if self.extent(x) > 1]


@dataclass(frozen=True, slots=True)
class Sketch:
    """One kernel whose decisions are being asked for, and the levels its axes have so far."""

    kernel: Kernel
    target: Target
    ask: Recorder
    levels: Levels

    def layout(self, x: Access, loops: Sequence[str]) -> tuple[str, ...]:
        """Those of the loops that an operand depends on and that have several iterations."""
        return tuple(n for n in loops if self.levels.extent(n) > 1 and x.depends(axis_of(n)))


def axis_of(loop: str) -> str:
    """The axis of a loop that ``Levels`` made."""
    return loop.rstrip("0123456789")


def vector_lanes(extent: int, widest: int) -> int:
    """Lanes for an axis: the widest vector, or the least power of two for a small extent."""
    lanes = 1
    while lanes < min(extent, widest):
        lanes *= 2
    return lanes


def item_lanes(ask: Recorder, levels: Levels, loop: str, most: int) -> list[Action]:
    """Give a work-item its part of ``loop``: a vector, where one of ``most`` lanes holds it all and
    ``ask`` decides so; else registers.
    """
    if levels.extent(loop) < 2:
        return []
    vector = levels.extent(loop) <= most and ask.pick("lane.vector", [False, True], 1)
    return [Vectorize(loop) if vector else Upcast(loop)]


def blocks(extent: int, unit: int, most: int = 5) -> list[int]:
    """Cache-block sizes for an axis tiled by ``unit``: multiples of it.

    0 (none: the loop over tiles stands with the outer loops), then doublings of the unit, largest
    sensible first, then sizes that make 2, 4, 8 or 16 even blocks, then one block (the loop over
    tiles stands with the inner loops).
    """
    found: list[int] = []
    size = unit
    while size < extent and len(found) < 12:
        size *= 2
        if size < extent:
            found.append(size)
    even = {-(-extent // (count * unit)) * unit for count in (2, 4, 8, 16)}
    even = {n for n in even if unit < n < extent} - set(found)
    return [
        0,
        *reversed(found[-most:]),
        *sorted(even, reverse=True),
        *([extent] if extent > unit else []),
    ]


def balance(extent: int, threads: int) -> float:
    """Evenness with which iterations split over threads, 0 to 1."""
    return extent / (-(-extent // threads) * threads) if extent else 0.0


_DISTANCES = (0, 256, 512, 1024, 4096)
_NEXT = (0, 64, 256, 1024)
PAGE = 4096
"""Bytes after which the sets of a first cache come round, and at which its prefetcher ends."""


def memory_hints(
    kernel: Kernel,
    target: Target,
    ask: Recorder,
    *,
    partial: bool = False,
    row_bytes: int = 0,
    asked: Collection[str] = (),
    streamed: bool = False,
) -> list[Action]:
    """Streaming stores of outputs and prefetches of inputs where the last-level cache does not hold
    all of them.

    The hardware asks ahead within a page. By default a kernel does so beyond it where the core
    would not reach the next page meanwhile: it computes much for each element, or ``streamed`` says
    that one fold reads all. Copies, and kernels of few operations, reach it: more costs bandwidth.
    ``partial``: the outputs hold partial sums, which are read again. ``row_bytes``: of an input
    that is read row by row in several stages; while one row is computed on, the next one may come
    into the first cache. ``asked``: operands that ``ahead_of`` or ``next_lines`` is asked about.
    """
    actions: list[Action] = []
    sizes = once(kernel, "bytes", lambda: [p.nbytes for p in kernel.params])
    everything = sum(sizes)
    for p, nbytes in zip(kernel.params, sizes, strict=True):
        if nbytes <= (
            target.l2_bytes if row_bytes and p.role == "in" else target.cached_bytes // 4
        ):
            continue
        if p.role == "out":
            # over its input: the line was read already, so passing the caches by gains nothing
            past = int(everything >= target.cached_bytes and not p.over)
            can = target.can_stream and not partial
            if can and ask.pick(f"stream.{p.name}", [False, True], past):
                actions.append(Stream(p.name))
        elif p.name in asked:
            continue
        elif target.can_prefetch and (nbytes > target.cached_bytes // 2 or row_bytes):
            usual = PAGE if streamed or _computes_much(kernel) else row_bytes
            near = next((i for i, d in enumerate(_DISTANCES) if d >= usual), 0)
            actions += _prefetch(p.name, ask, _DISTANCES, near)
    return actions


def _computes_much(kernel: Kernel) -> bool:
    """True for an elementwise kernel of four operations and more an element, or of a costly one.

    A core of 512 instructions in flight does not reach the next 64 vectors then. Inputs of 40 to
    256 MB on two threads of a Xeon, a page ahead: functions 1.2 to 1.5 times as fast, polynomials
    of four and six operations 1.1 and 1.2, one or two operations 0.9 to 1.1 (not asked for).
    """
    return not kernel.reduces and (
        kernel.flops >= 4 * kernel.points or any(costly(s.expr) for s in kernel.stages)
    )


def ahead_of(x: Access, target: Target, ask: Recorder) -> list[Prefetch]:
    """Asks how far ahead of the vectors of a packed constant the lines behind are asked for.

    Its copy is one stream, and a tile takes it faster than memory brings it; prefetchers start
    anew at each page. By default a page ahead, where the operand takes a good part of a core's own
    cache. Products of ResNet-18 and of an encoder with weights that lay in no cache: 1.03 to 1.5
    times as fast, in the second cache 1.0 (two threads of a Xeon).
    """
    if not target.can_prefetch:
        return []
    usual = _DISTANCES.index(PAGE) if x.nbytes > target.l2_bytes // 4 else 0
    return _prefetch(x.param, ask, _DISTANCES, usual)


def next_lines(x: Access, target: Target, ask: Recorder) -> list[Prefetch]:
    """Asks whether the lines behind those of an operand whose numbers each meet a whole vector are
    asked for, by default the next ones where the first cache does not hold the operand.

    Between two of its lines are hundreds of multiply-adds, more than a core looks ahead, and rows
    are too short, or too far apart, for its prefetchers.
    """
    if not target.can_prefetch or x.nbytes <= target.l1_bytes:
        return []
    return _prefetch(x.param, ask, _NEXT, 1)


def _prefetch(param: str, ask: Recorder, distances: tuple[int, ...], usual: int) -> list[Prefetch]:
    """Asks for one of several distances, of which 0 is none."""
    ahead = ask.pick(f"prefetch.{param}", distances, usual)
    return [Prefetch(param, ahead)] if ahead else []


def keep_hints(
    kernel: Kernel, target: Target, ask: Recorder, rows: int, part: int = 2
) -> list[Action]:
    """Keeping what a later stage would compute again; by default where that is costly.

    ``rows`` are kept at a time; half of a core's own cache, or another ``part``, has to hold them.
    """
    if not target.can_keep:
        return []
    actions: list[Action] = []
    for i, stage in enumerate(kernel.stages):
        nbytes = rows * prod(a.extent for a in own_axes(stage)) * stage.expr.dtype.itemsize
        again = nbytes <= target.l2_bytes // part and bool(kernel.made_again(i))
        if again and ask.pick(f"keep{i}", [False, True], int(costly(stage.expr))):
            actions.append(Keep(i))
    return actions


def costly(x: Expr) -> bool:
    """True if an expression is made of operations that take many instructions."""
    return isinstance(x, Apply) and (
        x.op in FUNCTIONS or x.op is Op.DIV or any(costly(a) for a in x.args)
    )


def on_threads(outer: Sequence[str], levels: Levels, target: Target, ask: Recorder) -> list[Thread]:
    """Asks for the loop on threads: the outermost of some that splits evenly over them."""
    loops = [x for x in outer if levels.extent(x) > 1]
    if target.threads < 2 or not loops:
        return []
    even = [balance(levels.extent(x), target.threads) > 0.9 for x in loops]
    best = even.index(True) if any(even) else 0
    chosen = ask.pick("thread", [*loops[:3], "none"], min(best, 2))
    if chosen == "none":
        return []
    return [Thread(chosen, min(target.threads, levels.extent(chosen)))]
