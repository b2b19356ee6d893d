"""A program: a loop tree lowered for one target.

Structured, typed, in execution order; ready to print.

It is SPMD: every thread of a team (CPU) or work-item of a group (GPU) runs the whole body. ``For``
loops of kind

    serial  all iterations are run by every thread or work-item
    thread  iterations split in contiguous shares over ``count`` CPU threads, or one per GPU
            work-group
    local   one iteration per GPU work-item of the group

so code outside ``thread`` and ``local`` loops runs everywhere, and may store only to memory that is
private or to the same values. ``Barrier`` waits for the whole team (CPU) or group (GPU).

Addresses are ``Index`` sums over loop variables, in elements. A vector instruction names its lane
variable: ``Load(lane="n2", offset=16*n0+n2)`` is a contiguous load of ``vtype.lanes`` elements; a
coefficient of 0 is a splat of one scalar, any other a strided gather. A value is an int id, defined
once, and visible in the blocks inside its own.

Buffers are the parameters and the ``Alloc``s. Spaces: ``thread`` is private to a thread, ``team``
shared by all of them, ``shared`` is a GPU group's local memory. ``Pack``s are extra constant
buffers, filled once when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Literal

from tunegrad.lazy import dataclass

from .dtypes import DType
from .expr import Op
from .index import Index, Valid
from .kernel import key_of
from .layout import Pack as Pack  # noqa: PLC0414 - a part of this form
from .target import MatrixUnit, TileUnit

Space = Literal["thread", "team", "shared"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A parameter of the program: ``size`` elements of memory, which those of ``over`` may be."""

    name: str
    dtype: DType
    size: int
    role: Literal["in", "const", "out", "pack"]
    over: str = ""


@dataclass(frozen=True, slots=True)
class Alloc:
    """Scratch memory, zero at no time: an element is written before it is read.

    ``swizzled`` is the bytes of a row, a power of two from 32 on, of shared memory whose chunks of
    16 bytes change places, so that chunk q of neighbouring rows lies in other banks: chunk q of row
    r lies at q ^ (r // max(1, 128 / swizzled) % min(8, swizzled / 16)). Offsets are those without
    it, and a vector lies within a chunk. 0: none do.
    """

    name: str
    dtype: DType
    size: int
    space: Space
    swizzled: int = 0


@dataclass(frozen=True, slots=True)
class VType:
    """A scalar type and a lane count; one lane is a scalar."""

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return str(self.dtype) if self.lanes == 1 else f"{self.dtype}x{self.lanes}"


@dataclass(frozen=True, slots=True)
class Number:
    """``id`` = a constant, in every lane."""

    id: int
    value: float | int | bool
    vtype: VType


@dataclass(frozen=True, slots=True)
class Load:
    """``id`` = ``buffer[offset]``; lanes where ``mask`` (a bool value id) is false read nothing and
    give zero.

    ``prefetch`` asks for the cache line that many bytes further on; a hint without meaning.
    """

    id: int
    buffer: str
    offset: Index
    vtype: VType
    lane: str = ""
    mask: int | None = None
    prefetch: int = 0


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[offset] = value`` in the lanes where ``mask`` is true.

    ``stream`` says that it is not read soon, so caches may be passed by; a hint without meaning.
    """

    buffer: str
    offset: Index
    value: int
    vtype: VType
    lane: str = ""
    mask: int | None = None
    stream: bool = False


ROUNDING = 1.5 * 2**23
"""A float to which and from which others are added to round them: its neighbours are integers."""


@dataclass(frozen=True, slots=True)
class Compute:
    """``id`` = ``op(args)``; arguments and result have equal lanes.

    ``FMA(a, b, c)`` is a*b + c, rounded once.
    """

    id: int
    op: Op
    args: tuple[int, ...]
    vtype: VType


@dataclass(frozen=True, slots=True)
class Convert:
    """``id`` = ``arg`` as another dtype, lanes unchanged."""

    id: int
    arg: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Splat:
    """``id`` = the scalar ``arg`` in every lane."""

    id: int
    arg: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Fold:
    """``id`` = the lanes of ``arg`` folded with ``op`` to a scalar."""

    id: int
    op: Op
    arg: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Select:
    """``id`` = ``yes`` where ``mask`` else ``no``."""

    id: int
    mask: int
    yes: int
    no: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Position:
    """``id`` = the number ``index`` (per lane when it depends on ``lane``)."""

    id: int
    index: Index
    vtype: VType
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Test:
    """``id`` = whether ``valid`` holds (per lane if it depends on ``lane``); ``lanes`` bools."""

    id: int
    valid: Valid
    lanes: int = 1
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """``id`` = ``arg`` of the work-item whose number within the warp differs in the bits of
    ``across``.

    Every item of the group runs it; ``across`` is a power of two below the warp's size.
    """

    id: int
    arg: int
    across: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class CopyAsync:
    """Starts a copy: ``buffer[into] = source[offset]``; zeros where ``mask`` (one lane) is false.

    ``vtype`` has as many lanes as it copies: 4, 8 or 16 bytes, aligned to as many on both sides.
    ``buffer`` is shared memory, ``source`` memory that the program never writes. Until the item
    that started it waits for its batch, no item may touch what it writes.
    """

    buffer: str
    into: Index
    source: str
    offset: Index
    vtype: VType
    lane: str = ""
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Ends a batch: all copies that the item started since its last one; it may be empty."""


@dataclass(frozen=True, slots=True)
class Await:
    """Waits until at most ``left`` of the item's batches, the newest, are in flight."""

    left: int


@dataclass(frozen=True, slots=True)
class Register:
    """Declares the mutable register variable ``name``; its first use writes it."""

    name: str
    vtype: VType


@dataclass(frozen=True, slots=True)
class Read:
    """``id`` = the register's value now."""

    id: int
    name: str
    vtype: VType


@dataclass(frozen=True, slots=True)
class Write:
    """The register's value from now on."""

    name: str
    value: int
    vtype: VType


@dataclass(frozen=True, slots=True)
class Barrier:
    """All actors' stores before it are seen by all actors after it."""


Valued = (
    Number | Load | Compute | Convert | Splat | Fold | Select | Position | Test | Shuffle | Read
)
"""Instructions that define one value."""

Single = Valued | Store | CopyAsync | Commit | Await | Register | Write | Barrier
"""Instructions that hold no others, those of matrix units left out."""


@dataclass(frozen=True, slots=True)
class MatMul:
    """``ids`` = ``c`` + a * b, small matrices that the items of a warp hold together.

    ``unit`` says which item holds what: registers of ``a`` step by step, those of a step by rows;
    registers of ``b`` step by step; ``c``, and so ``ids``, row by row, neighbours in pairs. Every
    item of the group runs it. ``vtype`` is that of one result.
    """

    ids: tuple[int, ...]
    unit: MatrixUnit
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    vtype: VType


@dataclass(frozen=True, slots=True)
class MatLoad:
    """``ids`` = rows of small matrices in shared memory, spread over the items of a warp.

    A matrix has 8 rows of 16 bytes. Item ``8*j + r`` of a warp gives the ``offset`` where row ``r``
    of matrix ``j`` begins. Item ``i`` gets, of matrix ``j``, neighbours ``p`` of row ``i // 4``
    from ``p*(i % 4)`` on, as one value of ``vtype`` in ``ids[j]``, where ``p`` are the lanes of
    ``vtype`` (4 bytes). ``transposed`` (2 bytes an element alone) gives it neighbours of column ``i
    // 4``. There are 1, 2 or 4 ids; offsets of items past them are not looked at. Every item of the
    group runs it.
    """

    ids: tuple[int, ...]
    buffer: str
    offset: Index
    vtype: VType
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class TileConfig:
    """Tile registers of a thread from here on: ``rows`` of each, by number; 0: it is not used.

    Forgets what they held. Tiles are used after it in its block, or inside that.
    """

    unit: TileUnit
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileZero:
    """Tile register ``tile`` = zeros."""

    tile: int


@dataclass(frozen=True, slots=True)
class TileLoad:
    """Tile register ``tile`` = ``buffer[offset]``, for ``row`` in ``rows`` and ``lane`` in
    ``vtype.lanes``.

    Neighbours along ``lane`` are neighbours in memory, rows some elements apart. ``prefetch`` asks
    for the cache line so many bytes behind each row; a hint without meaning.
    """

    tile: int
    buffer: str
    offset: Index
    vtype: VType
    row: str
    lane: str
    rows: int
    prefetch: int = 0

    def line(self, row: int) -> Load:
        """The load of one row."""
        return Load(-1, self.buffer, self.offset.at({self.row: row}), self.vtype, self.lane)


@dataclass(frozen=True, slots=True)
class TileMul:
    """Tile register ``tile`` += ``a`` * ``b``, by ``unit``."""

    tile: int
    a: int
    b: int
    unit: TileUnit


@dataclass(frozen=True, slots=True)
class TileStore:
    """``buffer[offset]`` = tile register ``tile``, as TileLoad reads; to a thread's own scratch."""

    tile: int
    buffer: str
    offset: Index
    vtype: VType
    row: str
    lane: str
    rows: int

    def line(self, row: int, value: int = -1) -> Store:
        """The store of one row, of a ``value``."""
        return Store(self.buffer, self.offset.at({self.row: row}), value, self.vtype, self.lane)


TileInstr = TileConfig | TileZero | TileLoad | TileMul | TileStore
"""Instructions of a thread's tile registers."""


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(0, min(stops))``; ``inner`` is the number of threads nested inside each
    share (two axes).

    ``extent`` bounds every stop (the variable's range is ``[0, extent)``).
    """

    var: str
    extent: int
    stops: tuple[Index, ...]
    body: tuple[Instr, ...]
    kind: Literal["serial", "thread", "local"] = "serial"
    count: int = 1
    inner: int = 1


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``for var in range(extent): barrier; copies; barrier; body``, so that copies run ahead.

    That loop says what it means. ``copies`` write only to shared memory that nothing else writes,
    and read what the program never writes. That memory has ``slots`` places, one for each iteration
    that is copied or in use; an offset in ``copies`` and ``body`` is that of the first.
    ``expand_pipelines`` makes it the loop that runs:

        copies of iterations 0 to slots-2, a batch each
        for var:
            wait for this iteration's batch; barrier
            copies of iteration var + slots-1, a batch
            body
    """

    var: str
    extent: int
    slots: int
    copies: tuple[Instr, ...]
    body: tuple[Instr, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Runs ``body`` where ``valid`` holds, else ``orelse``."""

    valid: Valid
    body: tuple[Instr, ...]
    orelse: tuple[Instr, ...] = ()


Instr = Single | MatMul | MatLoad | TileInstr | For | If | Pipeline


_BLOCKS: dict[type, tuple[str, ...]] = {
    For: ("body",),
    If: ("orelse", "body"),
    Pipeline: ("body", "copies"),
}
"""Blocks of the instructions that hold others, the last one first."""


def walk(body: tuple[Instr, ...]) -> Iterator[Instr]:
    """Every instruction, outer before inner."""
    left = [iter(body)]
    while left:
        for i in left[-1]:
            yield i
            if blocks := _BLOCKS.get(type(i)):
                left += [iter(getattr(i, name)) for name in blocks]
                break
        else:
            left.pop()


def mapped(i: Instr, block: Callable[[tuple[Instr, ...]], tuple[Instr, ...]]) -> Instr:
    """An instruction with each block it holds mapped by ``block``; without one, the same object."""
    if isinstance(i, For):
        return replace(i, body=block(i.body))
    if isinstance(i, If):
        return replace(i, body=block(i.body), orelse=block(i.orelse))
    if isinstance(i, Pipeline):
        return replace(i, copies=block(i.copies), body=block(i.body))
    return i


USES = ("arg", "args", "value", "mask", "yes", "no", "a", "b", "c")
"""Fields of instructions that name values; ``value`` of a Number is none, nor are tiles."""


def used(i: Instr) -> Iterator[int]:
    """The values that an instruction reads, as often as it does."""
    for name in () if isinstance(i, Number | TileInstr) else USES:
        found = getattr(i, name, None)
        if found is not None:
            yield from found if isinstance(found, tuple) else (found,)


def defined(i: Instr) -> tuple[int, ...]:
    """The values that an instruction defines."""
    if isinstance(i, MatMul | MatLoad):
        return i.ids
    return (i.id,) if isinstance(i, Valued) else ()


def is_grouped(program: Program) -> bool:
    """True if a program uses what only work-groups of a GPU have, not a team of CPU threads."""
    if program.local > 1 or any(a.space == "shared" for a in program.allocs):
        return True
    return any(isinstance(i, For) and i.kind == "local" for i in walk(program.body))


def size(body: tuple[Instr, ...]) -> int:
    """Number of instructions that ``walk`` finds."""
    held = (getattr(i, name) for i in body for name in _BLOCKS.get(type(i), ()))
    return len(body) + sum(map(size, held))


def body_lines(body: tuple[Instr, ...], pad: str) -> Iterator[str]:
    """The lines of ``body``, each after ``pad``."""
    for i in body:
        if isinstance(i, For):
            how = "" if i.kind == "serial" else f" {i.kind}({i.count},{i.inner})"
            yield f"{pad}for {i.var} in {' min '.join(s.key for s in i.stops)}{how}:"
            yield from body_lines(i.body, pad + "  ")
        elif isinstance(i, If):
            yield f"{pad}if {i.valid}:"
            yield from body_lines(i.body, pad + "  ")
            if i.orelse:
                yield f"{pad}else:"
                yield from body_lines(i.orelse, pad + "  ")
        elif isinstance(i, Pipeline):
            yield f"{pad}pipeline {i.var} in {i.extent} slots {i.slots}:"
            yield from body_lines(i.copies, pad + "  ")
            yield f"{pad}then:"
            yield from body_lines(i.body, pad + "  ")
        else:
            yield pad + _line(i)


def _line(i: Instr) -> str:
    match i:
        case Number(id, value, t):
            return f"%{id} = {value!r} {t}"
        case Load(id, buffer, offset, t, lane, mask, ahead):
            hint = f" prefetch {ahead}" if ahead else ""
            return (
                f"%{id} = {buffer}[{offset}] "
                f"{t}{f' lane {lane}' if lane else ''}{_masked(mask)}{hint}"
            )
        case Store(buffer, offset, value, t, lane, mask, stream):
            hint = " stream" if stream else ""
            return (
                f"{buffer}[{offset}] = %{value} "
                f"{t}{f' lane {lane}' if lane else ''}{_masked(mask)}{hint}"
            )
        case Compute(id, op, args, t):
            return f"%{id} = {op} {' '.join(f'%{a}' for a in args)} {t}"
        case Convert(id, arg, t):
            return f"%{id} = convert %{arg} {t}"
        case Splat(id, arg, t):
            return f"%{id} = splat %{arg} {t}"
        case Fold(id, op, arg, t):
            return f"%{id} = fold {op} %{arg} {t}"
        case Select(id, mask, yes, no, t):
            return f"%{id} = select %{mask} %{yes} %{no} {t}"
        case Position(id, index, t, lane):
            return f"%{id} = position {index} {t}{f' lane {lane}' if lane else ''}"
        case Test(id, valid, lanes, lane):
            return f"%{id} = test {valid} x{lanes}{f' lane {lane}' if lane else ''}"
        case Register(name, t):
            return f"register {name} {t}"
        case Read(id, name, t):
            return f"%{id} = {name} {t}"
        case Write(name, value, t):
            return f"{name} = %{value} {t}"
        case _:
            return _group_line(i)


def _group_line(i: Instr) -> str:
    match i:
        case MatMul(ids, unit, a, b, c, _):
            parts = (" ".join(f"%{x}" for x in given) for given in (a, b, c))
            return f"{' '.join(f'%{x}' for x in ids)} = matmul {unit} {', '.join(parts)}"
        case MatLoad(ids, buffer, offset, t, transposed):
            how = " transposed" if transposed else ""
            return f"{' '.join(f'%{x}' for x in ids)} = matrices {buffer}[{offset}] {t}{how}"
        case Shuffle(id, arg, across, t):
            return f"%{id} = shuffle %{arg} across {across} {t}"
        case CopyAsync(buffer, into, source, offset, t, lane, mask):
            what = f"{buffer}[{into}] = {source}[{offset}]"
            return f"async {what} {t}{f' lane {lane}' if lane else ''}{_masked(mask)}"
        case TileConfig(unit, rows):
            return f"tiles {unit} rows {' '.join(map(str, rows))}"
        case TileZero(tile):
            return f"tile{tile} = 0"
        case TileLoad(tile, buffer, offset, t, row, lane, rows, ahead):
            hint = f" prefetch {ahead}" if ahead else ""
            return f"tile{tile} = {buffer}[{offset}] {t} lane {lane} rows {row}:{rows}{hint}"
        case TileMul(tile, a, b, unit):
            return f"tile{tile} += tile{a} * tile{b} {unit}"
        case TileStore(tile, buffer, offset, t, row, lane, rows):
            return f"{buffer}[{offset}] = tile{tile} {t} lane {lane} rows {row}:{rows}"
        case Commit():
            return "commit"
        case Await(left):
            return f"await {left}"
        case _:
            return "barrier"


def _masked(mask: int | None) -> str:
    return "" if mask is None else f" mask %{mask}"


@dataclass(frozen=True, slots=True)
class Program:
    """``threads``: the CPU team's size, or work-groups; ``local``: work-items of a group."""

    name: str
    params: tuple[Buffer, ...]
    allocs: tuple[Alloc, ...]
    packs: tuple[Pack, ...]
    body: tuple[Instr, ...]
    threads: int = 1
    local: int = 1

    @property
    def text(self) -> str:
        """Its canonical print."""
        return "\n".join(_lines(self))

    @property
    def overwritten(self) -> dict[str, str]:
        """Outputs that may be the memory of an input, by the name of that input."""
        return {b.over: b.name for b in self.params if b.over}

    @property
    def hash(self) -> str:
        """32 hex digits that identify the program; equal ones are compiled and measured once."""
        return key_of(self.text)

    def __str__(self) -> str:
        return self.text


def indices(program: Program) -> Iterator[Index]:
    """Every index of a program's instructions: offsets, stops, conditions and positions."""
    for i in walk(program.body):
        match i:
            case Load() | Store() | MatLoad():
                yield i.offset
            case CopyAsync():
                yield i.offset
                yield i.into
            case For():
                yield from i.stops
                yield Index((), i.extent * max(1, i.count))
            case If() | Test():
                yield from (r.index for r in i.valid)
            case Position():
                yield i.index
            case _:
                pass


def indexed(program: Program) -> dict[str, int]:
    """The buffers whose elements are indices, with the least extent that they are indices of."""
    found: dict[str, int] = {}
    if not any(b.dtype.is_int for b in program.params):
        return found
    for index in set(indices(program)):
        for e in index.elements():
            found[e.buffer] = min(e.den, found.get(e.buffer, e.den))
    return found


def _lines(p: Program) -> Iterator[str]:
    yield f"program threads={p.threads} local={p.local}"
    for b in p.params:
        over = f" over {b.over}" if b.over else ""
        yield f"  {b.role} {b.name} {b.dtype}[{b.size}]{over}"
    for a in p.allocs:
        rows = f" swizzled {a.swizzled}" if a.swizzled else ""
        yield f"  alloc {a.name} {a.dtype}[{a.size}] {a.space}{rows}"
    for k in p.packs:
        over = " ".join(f"{v}:{e}" for v, e in zip(k.variables, k.extents, strict=True))
        yield f"  pack {k.name} {k.dtype} over {over} = {k.source}[{k.offset}] if {k.valid}"
    yield from body_lines(p.body, "  ")


# ---- counts


_FLOPS = {Op.FMA: 2, Op.DOT2: 3, Op.DOT2_ADD: 4, Op.LOW: 0, Op.HIGH: 0, Op.TF32: 0}

_MAX_STEPS = 200_000
"""Most blocks that are visited: loops whose bodies ignore them are multiplied, others run."""


def executed_flops(program: Program) -> int | None:
    """Operations of one run, all lanes and all threads: arithmetic and selections count 1, FMA 2,
    DOT2_ADD 4, a fold 1.

    None for a program of work-items, and for one whose conditions take too long to follow.

    for a in 5:
        if a < 4:  fma f32x16       4 times 2 x 16 operations, of masked lanes too
    """
    if program.local != 1:
        return None
    try:
        return _Counter().block(program.body, {}, program.threads)
    except _TooManyError:
        return None


class _TooManyError(Exception):
    """More blocks than are worth visiting."""


class _Counter:
    """Remembers what a block costs under the loop variables that its conditions mention.

    Mutable.
    """

    def __init__(self) -> None:
        self._names: dict[int, frozenset[str]] = {}
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._steps = 0

    def block(self, body: tuple[Instr, ...], env: Mapping[str, int], team: int) -> int:
        """Operations of a block; ``team`` threads run it, each the whole of it."""
        key = id(body), tuple(env[name] for name in sorted(self.names(body)))
        if key not in self._known:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise _TooManyError
            self._known[key] = sum(self._one(i, env, team) for i in body)
        return self._known[key]

    def names(self, body: tuple[Instr, ...]) -> frozenset[str]:
        """Variables of loops outside that decide what runs in a block."""
        if id(body) not in self._names:
            found: frozenset[str] = frozenset()
            for i in body:
                if isinstance(i, For):
                    found |= self.names(i.body) - {i.var}
                    found |= {name for stop in i.stops for name in stop.names()}
                elif isinstance(i, If):
                    found |= self.names(i.body) | self.names(i.orelse)
                    found |= i.valid.names()
            self._names[id(body)] = found
        return self._names[id(body)]

    def _one(self, i: Instr, env: Mapping[str, int], team: int) -> int:
        match i:
            case Compute() if i.vtype.dtype.is_float:
                return _FLOPS.get(i.op, 1) * i.vtype.lanes * team
            case Select() if i.vtype.dtype.is_float:
                return i.vtype.lanes * team
            case Fold() if i.vtype.dtype.is_float:
                return team
            case TileMul(_, _, _, unit) if not unit.takes_bytes:
                return _FLOPS[Op.DOT2_ADD] * prod(unit.shape) * team
            case For():
                return self._loop(i, env, team)
            case If():
                return self.block(i.body if i.valid.holds(env) else i.orelse, env, team)
            case _:
                return 0

    def _loop(self, i: For, env: Mapping[str, int], team: int) -> int:
        trips = max(0, min(stop.evaluate(env) for stop in i.stops))
        # the iterations of a thread loop are shared out: together its threads run each of them once
        inside = max(1, team // i.count) if i.kind == "thread" else team
        if i.var not in self.names(i.body):
            return trips * self.block(i.body, env, inside) if trips else 0
        return sum(self.block(i.body, {**env, i.var: value}, inside) for value in range(trips))


_WORD = 4


def carried_registers(program: Program) -> int:
    """The most registers of 32 bits that one serial loop carries; a compiler needs more.

    for k in 64:           c0 to c7 are read and written by each iteration,
      c0 = c0 + a0 * b0    so all of them are alive while it runs: 8 registers
      ...
    """
    words = {
        i.name: -(-i.vtype.lanes * i.vtype.dtype.itemsize // _WORD)
        for i in walk(program.body)
        if isinstance(i, Register)
    }
    return max((sum(words.get(n, 0) for n in c) for c in _carried(program.body)), default=0)


def _carried(body: tuple[Instr, ...]) -> list[frozenset[str]]:
    """For every serial loop, the variables declared outside, and read and written inside."""
    found: list[frozenset[str]] = []
    for i in body:
        if isinstance(i, If):
            found += _carried(i.body) + _carried(i.orelse)
        elif isinstance(i, For | Pipeline):
            inside = i.copies + i.body if isinstance(i, Pipeline) else i.body
            found += _carried(inside)
            if isinstance(i, Pipeline) or i.kind == "serial":
                all_of = list(walk(inside))
                own = {x.name for x in all_of if isinstance(x, Register)}
                read = {x.name for x in all_of if isinstance(x, Read)}
                written = {x.name for x in all_of if isinstance(x, Write)}
                found.append(frozenset((read & written) - own))
    return found
