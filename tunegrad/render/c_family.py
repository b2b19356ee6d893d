"""Program to text in a language of the C family. What differs between them is in a ``Dialect``.

    %4 = fma %1 %2 %3 f32x4   -->  const float4 v4 = fma(v1, v2, v3);   where the dialect has it
                                   const float v4_0 = fma(v1_0, v2_0, v3_0);  one a lane else
    for m0 in 8 thread(8,1):  -->  const int i_m0 = group % 8; if (...) {

Values are ``v`` and their id, loop variables ``i_``, registers ``r_``, buffers ``b_`` and their
names. The text is a function of the program alone. Masks guard each element's access.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tunegrad.errors import InternalError
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import BOOL, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Valid, Var, as_index
from tunegrad.ir.pipelines import expand_pipelines, is_aligned
from tunegrad.ir.program import Alloc, Buffer, Instr, Pack, Program, VType, indices, is_grouped
from tunegrad.ir.target import MatrixUnit

from .c_dialect import HELPED, Dialect, wraps

# ---- indices
#
# Indices and conditions as C text, in 32 bits wherever every intermediate result fits.


_LIMIT = 1 << 31


def fits_32_bits(program: Program) -> bool:
    """True if buffers have below 2**31 elements and no part of an index leaves 32 bits."""
    sizes = (
        [b.size for b in program.params]
        + [a.size for a in program.allocs]
        + [k.size for k in program.packs]
    )
    return max(sizes, default=0) < _LIMIT and not any(map(passes_32_bits, indices(program)))


def passes_32_bits(index: Index) -> bool:
    """True if a part of an index can leave 32 bits."""
    return _magnitude(index) >= _LIMIT


def _magnitude(index: Index) -> int:
    """A bound of every partial sum, and of every sum inside a division."""
    total = abs(index.const)
    inside = 0
    for atom, c in index.terms:
        total += abs(c) * max(abs(atom.lo), abs(atom.hi))
        if not isinstance(atom, Var):
            inside = max(inside, _magnitude(atom.num), atom.den)
    return max(total, inside)


class _Names(Protocol):
    def __getitem__(self, name: str, /) -> str: ...


class IndexPrinter:
    """Prints indices over C variables; ``used`` collects the helpers that the text calls."""

    __slots__ = ("_buffers", "_dtypes", "_suffix", "_truth", "names", "used")

    def __init__(
        self,
        suffix: str,
        used: set[str],
        buffers: _Names,
        dtypes: Mapping[str, DType],
        truth: tuple[str, str],
    ) -> None:
        """``buffers``: a buffer's C name; ``dtypes``: its type; ``truth``: words of false, true."""
        self._truth = truth
        self._buffers, self._dtypes = buffers, dtypes
        self.names: dict[str, str] = {}
        self._suffix = suffix
        self.used = used

    def number(self, value: int) -> str:
        """An integer literal of the index type."""
        return f"{value}{self._suffix}" if value >= 0 else f"({value}{self._suffix})"

    def index(self, index: Index) -> str:
        """A C expression, in parentheses unless it is one term."""
        text = self.sum(index)
        return (
            f"({text})"
            if len(index.terms) + bool(index.const) > 1 or text.startswith("-")
            else text
        )

    def sum(self, index: Index) -> str:
        """A C expression without parentheses around it."""
        parts: list[str] = []
        for atom, c in index.terms:
            text = self._atom(atom)
            sign = "-" if c < 0 else "+"
            scaled = text if abs(c) == 1 else f"{self.number(abs(c))} * {text}"
            parts.append(f" {sign} {scaled}" if parts else (f"-{scaled}" if c < 0 else scaled))
        if index.const or not parts:
            sign = "-" if index.const < 0 else "+"
            parts.append(
                f" {sign} {self.number(abs(index.const))}" if parts else self.number(index.const)
            )
        return "".join(parts)

    def condition(self, valid: Valid) -> str:
        """A C condition."""
        if valid.never:
            return self._truth[False]
        tests: list[str] = []
        for r in valid:
            text = self.index(r.index)
            if r.lo > r.index.lo:
                tests.append(f"{text} >= {self.number(r.lo)}")
            if r.hi <= r.index.hi:
                tests.append(f"{text} < {self.number(r.hi)}")
        return " && ".join(tests) or self._truth[True]

    def least(self, stops: tuple[Index, ...]) -> str:
        """The least of the stops."""
        text = self.index(stops[0])
        for stop in stops[1:]:
            text = f"tg_least({text}, {self.index(stop)})"
            self.used.add("least")
        return text

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            return self.names[atom.name]
        if isinstance(atom, Element):
            return self._element(atom)
        divides = isinstance(atom, FloorDiv)
        num, den = self.index(atom.num), self.number(atom.den)
        if atom.num.lo >= 0:
            return f"({num} {'/' if divides else '%'} {den})"
        helper = "index_floordiv" if divides else "index_mod"
        self.used.add(helper)
        return f"tg_{helper}({num}, {den})"

    def _element(self, e: Element) -> str:
        """An integer from memory as an index: wrapped once, then clamped."""
        at = self.sum(e.num)
        if not e.inside:
            self.used.add("index_inside")
            at = f"tg_index_inside({at}, {self.number(e.size)})"
        helper = "index_element" if self._dtypes[e.buffer].signed else "index_least"
        self.used.add(helper)
        return f"tg_{helper}({self._buffers[e.buffer]}[{at}], {self.number(e.den)})"


# ---- wide accesses
#
# Scalars that lie side by side, as one access: what unrolled loops read and write.
#
#     %1 = x[8*i], %2 = x[8*i+1], %3 = x[8*i+2], %4 = x[8*i+3]     -->    one load of 16 bytes
#
# Loads are made at the place of the first of them, stores at that of the last, within a stretch of
# code that has no loop, branch, barrier, or access between that could tell. Only what is proved to
# be aligned is joined.


Widths = Callable[[p.Load | p.Store], Iterable[int]]
"""The widths that an access may begin, the widest first; none where neighbours are not joined."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Accesses of one buffer, each an element after the one before."""

    parts: tuple[p.Load, ...] | tuple[p.Store, ...]


def joined(body: tuple[Instr, ...], widths: Widths) -> Iterator[Instr | Joined]:
    """The block, with accesses that are side by side joined."""
    starts: dict[int, Joined] = {}
    gone: set[int] = set()
    for stretch in _stretches(body):
        for group in (*_loads(body, stretch), *_stores(body, stretch)):
            for parts in _windows(body, group, widths):
                made = tuple(body[n] for n in parts)
                at = min(parts) if isinstance(made[0], p.Load) else max(parts)
                starts[at] = Joined(made)  # type: ignore[arg-type]  # of one kind, as groups are
                gone.update(parts)
    for n, i in enumerate(body):
        if n in starts:
            yield starts[n]
        elif n not in gone:
            yield i


def _stretches(body: tuple[Instr, ...]) -> Iterator[range]:
    """Runs of instructions between loops, branches, barriers and what warps do together."""
    first = 0
    parting = p.For | p.If | p.Pipeline | p.Barrier | p.CopyAsync | p.Commit | p.Await
    for n, i in enumerate(body):
        if isinstance(i, parting):
            yield range(first, n)
            first = n + 1
    yield range(first, len(body))


_Key = tuple[str, tuple[object, ...]]


def _key(i: p.Load | p.Store) -> _Key:
    return i.buffer, i.offset.terms


def _alone(i: p.Load | p.Store) -> bool:
    return i.vtype.lanes == 1 and i.mask is None


def _loads(body: tuple[Instr, ...], stretch: range) -> Iterator[list[int]]:
    """Loads that may change places: nothing is stored to their buffer between them."""
    open_: dict[_Key, list[int]] = {}
    for n in stretch:
        i = body[n]
        if isinstance(i, p.Load) and _alone(i):
            open_.setdefault(_key(i), []).append(n)
        elif isinstance(i, p.Store):
            for key in [k for k in open_ if k[0] == i.buffer]:
                yield open_.pop(key)
    yield from open_.values()


def _stores(body: tuple[Instr, ...], stretch: range) -> Iterator[list[int]]:
    """Stores that may change places: their buffer is not touched otherwise between them."""
    open_: dict[_Key, list[int]] = {}
    for n in stretch:
        i = body[n]
        if isinstance(i, p.Store) and _alone(i):
            for key in [k for k in open_ if k[0] == i.buffer and k != _key(i)]:
                yield open_.pop(key)
            open_.setdefault(_key(i), []).append(n)
        elif isinstance(i, p.Load | p.Store | p.MatLoad):
            for key in [k for k in open_ if k[0] == i.buffer]:
                yield open_.pop(key)
    yield from open_.values()


def _windows(body: tuple[Instr, ...], group: list[int], widths: Widths) -> Iterator[list[int]]:
    """Places of neighbours that one access takes, in the order of their elements."""
    at: dict[int, int] = {}
    for n in group:
        i = body[n]
        assert isinstance(i, p.Load | p.Store)
        if i.offset.const in at:  # an element twice over stays as it is
            return
        at[i.offset.const] = n
    for const in sorted(at):
        if const not in at:
            continue
        first = body[at[const]]
        assert isinstance(first, p.Load | p.Store)
        for width in widths(first):
            parts = [at.get(const + k) for k in range(width)]
            if None not in parts:
                yield [n for n in parts if n is not None]
                for k in range(width):
                    del at[const + k]
                break


# ---- programs


def word_of(name: str) -> str:
    """A name as a C identifier, or the end of one."""
    return re.sub(r"\W", "_", name)


class Names:
    """Distinct C identifiers for names of one kind."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._made: dict[str, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, name: str) -> str:
        made = self._made.get(name)
        if made is None:
            made = word = f"{self._prefix}{word_of(name)}"
            n = 0
            while made in self._taken:
                n += 1
                made = f"{word}__{n}"
            self._taken.add(made)
            self._made[name] = made
        return made


_INFIX = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.LT: "<", Op.EQ: "==", Op.NE: "!=",
    Op.AND: "&", Op.OR: "|", Op.XOR: "^",
}  # fmt: skip

_CALLS = frozenset(
    (
        Op.EXP,
        Op.LOG,
        Op.LOG2,
        Op.LOG10,
        Op.SQRT,
        Op.TANH,
        Op.ERF,
        Op.SIN,
        Op.COS,
        Op.TAN,
        Op.FLOOR,
        Op.ROUND,
        Op.POW,
        Op.FMA,
    )
)

_HELPERS = frozenset(
    (
        Op.PAIR, Op.LOW, Op.HIGH, Op.DOT2, Op.DOT2_ADD, Op.TF32, Op.QUAD, Op.EVEN, Op.ODD,
        Op.DOT2I, Op.DOT2I_ADD,
    )
)  # fmt: skip

_DOTS = (Op.DOT4, Op.DOT4_ADD)

_LANEWISE = _HELPERS | {*_DOTS, Op.LT, Op.EQ, Op.NE, Op.WHERE, Op.NOT, Op.FLOORDIV, Op.MOD}

_CHUNK_BYTES, _BANKS_BYTES = 16, 128


def fixed(index: Index, lane: str, k: int) -> Index:
    """An index at lane ``k``."""
    return index.substitute({lane: as_index(k)}) if lane else index


_PTX = {"i8": "s8", "i32": "s32"}
"""Names of integers in wrappers of instructions."""


def product_wrapper(unit: MatrixUnit) -> str:
    """The wrapper of a unit's instruction, without its prefix: ``mma_m16n8k32_s8_s32``."""
    shape, *types = unit.name.split("_")
    return "_".join(["mma", shape, *(_PTX.get(t, t) for t in types)])


_ROUNDS = 4
"""Of a copy that are unrolled where each finds its place by divisions. Compilers unroll all of
them, keep all places, which loops around do not change, in registers, and spill them.
"""


def arguments(program: Program) -> tuple[Buffer | Pack | Alloc, ...]:
    """The kernel's arguments in order: parameters, packs, scratch that groups share."""
    names = {b.name for b in program.params}
    packs = tuple(k for k in program.packs if k.name not in names)
    return (*program.params, *packs, *(a for a in program.allocs if a.space == "team"))


def kernel_name(program: Program) -> str:
    """The name of the kernel function; helpers begin with tg_, which no program's name does."""
    return f"kernel_{word_of(program.name)}"


def launched_bytes(program: Program, dialect: Dialect) -> int:
    """Bytes that a group shares and that the launch must give; 0 where the text declares them."""
    allocs = expand_pipelines(program).allocs
    total = sum(_padded(a, dialect) for a in allocs if a.space == "shared")
    return total if total > dialect.declared_shared_bytes else 0


def _padded(a: Alloc, dialect: Dialect) -> int:
    """Bytes of an array, up to where a vector may begin."""
    return -(-a.size * a.dtype.itemsize // dialect.vector_bytes) * dialect.vector_bytes


def render_c(program: Program, dialect: Dialect) -> str:
    """The program as one translation unit.

    Raises InternalError for a barrier of a CPU team: a GPU has none.
    """
    return CPrinter(expand_pipelines(program), dialect).text()


class CPrinter:
    """The lines of a program that has no pipelines any more, and the types of the values that they
    define.

    ``used`` and ``wrapped`` collect the helper functions and wrappers that the text calls.
    """

    def __init__(self, program: Program, dialect: Dialect) -> None:
        self.dialect = dialect
        self.used: set[str] = set()
        self.wrapped: set[str] = set()
        self.types: dict[int, VType] = {}
        self.lines: list[str] = []
        self.depth = 1
        narrow = fits_32_bits(program)
        self.index_type = dialect.int_type if narrow else dialect.long_type
        self.buffers = Names("b_")
        dtypes = {b.name: b.dtype for b in program.params}
        suffix = "" if narrow else dialect.long_suffix
        self.at = IndexPrinter(suffix, self.used, self.buffers, dtypes, dialect.truth)
        self.spaces: dict[str, str] = {}
        self.swizzled = {a.name: a for a in program.allocs if a.swizzled}
        self.program = program
        self.loops, self.registers = Names("i_"), Names("r_")
        self.global_fence = _shares_global(program)

    # the whole

    def text(self) -> str:
        d = self.dialect
        declared = [self._argument(a) for a in arguments(self.program)]
        launched = launched_bytes(self.program, d)
        if launched:
            self.line(d.shared_array)
        at = 0
        for a in self.program.allocs:
            if a.space == "shared" and launched:
                self.line(self._part(a, at))
                at += _padded(a, d)
            elif a.space != "team":
                self.line(self._scratch(a))
        self.line(f"const {self.index_type} group = ({self.index_type}){d.group_id};")
        self.line(f"const {self.index_type} item = ({self.index_type}){d.local_id};")
        self.line("(void)group; (void)item;")
        self.block(self.program.body)
        kernel = d.kernel.replace("ITEMS", str(self.program.local))
        head = f"{kernel} {kernel_name(self.program)}({', '.join(declared)})"
        helpers = self.helpers()
        if d.wrappers is not None and self.wrapped:
            helpers.append(d.wrappers(self.wrapped))
        parts = [d.prologue] if d.prologue else []
        return "\n".join([*parts, *helpers, head, "{", *self.lines, "}", ""])

    def helpers(self) -> list[str]:
        """The texts of the helper functions that were used."""
        texts = self.dialect.helpers
        return [texts[name].replace("INDEX", self.index_type) for name in sorted(self.used)]

    def _scratch(self, a: Alloc) -> str:
        """The declaration of an array of the kernel's own; vectors fit shared ones."""
        d, name = self.dialect, f"{self.buffers[a.name]}[{a.size}]"
        stored = d.stored[a.dtype.name]
        if a.space != "shared":
            return f"{stored} {name};"
        self.spaces[a.name] = d.shared_space
        return f"{d.shared_space} {stored} {name} __attribute__((aligned({d.vector_bytes})));"

    def _part(self, a: Alloc, start: int) -> str:
        """The declaration of a part of the array that the launch gives."""
        d, stored = self.dialect, self.dialect.stored[a.dtype.name]
        self.spaces[a.name] = d.shared_space
        return f"{stored} *const {self.buffers[a.name]} = ({stored} *)(tg_shared + {start});"

    def _argument(self, a: Buffer | Pack | Alloc) -> str:
        self.spaces[a.name] = self.dialect.global_space
        writes = isinstance(a, Alloc) or (isinstance(a, Buffer) and a.role == "out")
        words = (
            self.dialect.global_space,
            "" if writes else "const",
            self.dialect.stored[a.dtype.name],
        )
        over = self.program.overwritten
        alone = a.name not in over and a.name not in over.values()
        restrict = self.dialect.restrict if alone else ""
        return f"{' '.join(w for w in words if w)} *{restrict} {self.buffers[a.name]}"

    # blocks

    def block(self, body: tuple[Instr, ...]) -> None:
        for i in joined(body, self.widths):
            match i:
                case Joined():
                    self.joined(i)
                case p.For():
                    self._for(i)
                case p.If():
                    self._if(i)
                case p.Barrier():
                    if self.program.threads > 1 and not is_grouped(self.program):
                        raise InternalError(
                            f"program {self.program.name}: {self.dialect.name} has no team barrier"
                        )
                    self.line(self.dialect.barrier(self.global_fence))
                case p.Store():
                    self.store(i)
                case p.CopyAsync():
                    self.copy_async(i)
                case p.Commit():
                    self.line(f"{self.wrapper('cp_commit', i)}();")
                case p.Await(batches):
                    self.line(f"{self.wrapper('cp_wait', i)}<{batches}>();")
                case p.Register(name, t):
                    names = self.parts(self.registers[name], t)
                    self.line(self.variables(self.c_type(t), names))
                case p.Write(name, value, t):
                    for left, right in zip(
                        self.parts(self.registers[name], t), self.names(value), strict=True
                    ):
                        self.line(f"{left} = {right};")
                case _:
                    self._value(i)

    def _nest(self, head: str, body: tuple[Instr, ...], tail: str = "}") -> None:
        self.line(head)
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line(tail)

    def _if(self, i: p.If) -> None:
        self._nest(f"if ({self.at.condition(i.valid)}) {{", i.body, "} else {" if i.orelse else "}")
        if i.orelse:
            self.lines.pop()
            self._nest("} else {", i.orelse)

    def _for(self, i: p.For) -> None:
        v, stop = self.loops[i.var], self.at.least(i.stops)
        self.at.names[i.var] = v
        if i.kind == "serial":
            if self.dialect.unroll and _copies_by_quotients(i):
                self.line(self.dialect.unroll.format(_ROUNDS))
            self._nest(self.loop(v, "0", stop), i.body)
            return
        share = self._share("item" if i.kind == "local" else "group", i)
        if i.count >= i.extent:
            sure = all(s.lo >= i.count for s in i.stops)
            self.line("{")
            self.depth += 1
            self.line(self.constant(self.index_type, v, share))
            if sure:
                self.block(i.body)
            else:
                self._nest(f"if ({v} < {stop}) {{", i.body)
            self.depth -= 1
            self.line("}")
            return
        ends = [f"{stop} * {part} / {i.count}" for part in (f"({share})", f"({share} + 1)")]
        self._nest(self.loop(v, *ends), i.body)

    def loop(self, v: str, first: str, stop: str) -> str:
        """The head of a loop."""
        return f"for ({self.index_type} {v} = {first}; {v} < {stop}; ++{v}) {{"

    def _share(self, place: str, i: p.For) -> str:
        team = self.program.local if i.kind == "local" else self.program.threads
        text = place if i.inner == 1 else f"{place} / {i.inner}"
        return f"{text} % {i.count}" if i.inner * i.count < team else text

    def _value(self, i: Instr) -> None:
        match i:
            case p.Number(id, value, t):
                text = self.literal(value, t.dtype)
                self.define(id, t, lambda _: text, self.splat(text, t))
            case p.Load():
                self.load(i)
            case p.Compute():
                self.compute(i)
            case p.Convert(id, arg, t):
                source = self.types[arg].dtype
                self.define(id, t, lambda k: self.converted(self.lane(arg, k), source, t.dtype))
            case p.Splat(id, arg, t):
                self.define(id, t, lambda _: f"v{arg}", self.splat(f"v{arg}", t))
            case p.Fold(id, op, arg, t):
                text = self.lane(arg, 0)
                for k in range(1, self.types[arg].lanes):
                    text = self.scalar(op, [text, self.lane(arg, k)], t.dtype)
                self.define(id, t, lambda _: text)
            case p.Select(id, mask, yes, no, t):
                self.define(
                    id,
                    t,
                    lambda k: self.choice(*(self.lane(x, k) for x in (mask, yes, no))),
                )
            case p.Position(id, index, t, lane):
                self.define(
                    id, t, lambda k: self.cast(t.dtype, self.at.index(fixed(index, lane, k)))
                )
            case p.Test(id, valid, lanes, lane):
                self.define(
                    id, VType(BOOL, lanes),
                    lambda k: self.at.condition(
            valid.substitute({lane: as_index(k)}) if lane else valid
        ),
                )  # fmt: skip
            case p.Shuffle(id, arg, across, t):
                if self.dialect.shuffle is None:
                    raise InternalError(f"{self.dialect.name} has no text for {i!r}")
                shuffle, c = self.dialect.shuffle, self.dialect.values[t.dtype.name]
                self.define(id, t, lambda k: shuffle(c, self.lane(arg, k), across))
            case p.MatMul():
                self.matrices(i)
            case p.MatLoad():
                self.mat_load(i)
            case p.Read(id, name, t):
                parts = self.parts(self.registers[name], t)
                self.define(id, t, lambda k: parts[k], parts[0])
            case _:
                raise InternalError(f"{self.dialect.name} has no text for {i!r}")

    # products by matrix units

    def matrices(self, i: p.MatMul) -> None:
        """A product of a matrix unit: registers of operands in, sums in and out of an array."""
        d, word = self.dialect, f"m{i.ids[0]}"
        call = self.wrapper(product_wrapper(i.unit), i)
        stored = d.stored[self.types[i.a[0]].dtype.name]
        for name, values in (("a", i.a), ("b", i.b)):
            lanes = ([self.lane(v, k) for k in range(i.unit.packed)] for v in values)
            kinds, held = zip(*(d.register(stored, x) for x in lanes), strict=True)
            self.line(f"const {kinds[0]} {word}{name}[{len(held)}] = {{{', '.join(held)}}};")
        sums = ", ".join(f"v{c}" for c in i.c)
        self.line(f"{self.c_type(i.vtype)} {word}[{len(i.c)}] = {{{sums}}};")
        self.line(f"{call}({word}, {word}a, {word}b);")
        for k, new in enumerate(i.ids):
            self.define(new, i.vtype, lambda _, k=k: f"{word}[{k}]")  # type: ignore[misc]

    def _address(self, buffer: str, at: Index, i: Instr) -> str:
        """Of an element in shared memory, in 32 bits."""
        address = self.wrapper("shared_address", i)
        return f"{address}(&{self.buffers[buffer]}[{self.place(buffer, at)}])"

    def copy_async(self, i: p.CopyAsync) -> None:
        nbytes = i.vtype.lanes * i.vtype.dtype.itemsize
        call = self.wrapper(f"cp_async{nbytes}", i)
        to = self._address(i.buffer, fixed(i.into, i.lane, 0), i)
        source = f"&{self.buffers[i.source]}[{self.at.sum(fixed(i.offset, i.lane, 0))}]"
        given = str(nbytes) if i.mask is None else f"{self.lane(i.mask, 0)} ? {nbytes} : 0"
        self.line(f"{call}({to}, {source}, {given});")

    def mat_load(self, i: p.MatLoad) -> None:
        n, word = len(i.ids), f"m{i.ids[0]}"
        call = self.wrapper(f"ldmatrix_x{n}{'_trans' if i.transposed else ''}", i)
        self.line(f"unsigned int {word}[{n}];")
        self.line(f"{call}({word}, {self._address(i.buffer, i.offset, i)});")
        kind, bits = self.dialect.values[i.vtype.dtype.name], i.vtype.dtype.bits
        for j, new in enumerate(i.ids):

            def part(k: int, j: int = j) -> str:
                return self.dialect.part(kind, f"{word}[{j}]", bits * k)

            self.define(new, i.vtype, part)

    # memory

    def place(self, buffer: str, index: Index) -> str:
        """An offset, as text: where the element lies."""
        text, a = self.at.sum(index), self.swizzled.get(buffer)
        if a is None:
            return text
        chunk = _CHUNK_BYTES // a.dtype.itemsize
        row = max(_BANKS_BYTES, a.swizzled) // a.dtype.itemsize
        others = min(_BANKS_BYTES, a.swizzled) // _CHUNK_BYTES - 1
        self.used.add("swizzle")
        return f"tg_swizzle({text}, {row.bit_length() - 1}, {others}, {chunk.bit_length() - 1})"

    def load(self, i: p.Load) -> None:
        t, b = i.vtype, self.buffers[i.buffer]
        step = i.offset.coefficient(i.lane) if i.lane else 0

        def lane(k: int) -> str:
            text = f"{b}[{self.place(i.buffer, fixed(i.offset, i.lane, k))}]"
            text = f"({text} != 0)" if t.dtype.is_bool else text
            return (
                text
                if i.mask is None
                else f"{self.lane(i.mask, k)} ? {text} : {self._literal_zero(t.dtype)}"
            )

        whole = ""
        if i.mask is None and self.is_vector(t):
            if step == 1:
                whole = self._vector_load(i, 0, t.lanes)
            elif step == 0:
                whole = self.splat(lane(0), t)
        elif pieces := self._pieces(i):
            self._load_pieces(i, pieces)
            return
        self.define(i.id, t, lane, whole)

    def widths(self, i: p.Load | p.Store) -> list[int]:
        """Lanes of the vectors that may begin at a scalar access, the widest first."""
        t, d = i.vtype, self.dialect
        if t.dtype.is_bool or t.dtype.is_word or i.buffer not in self.spaces:
            return []
        fits = [n for n in d.widths if n * t.dtype.itemsize <= d.vector_bytes]
        return [n for n in sorted(fits, reverse=True) if is_aligned(i.offset, n)]

    def joined(self, i: Joined) -> None:
        """Neighbours in one access."""
        first, lanes = i.parts[0], len(i.parts)
        stored = self.dialect.stored[first.vtype.dtype.name]
        at = self.place(first.buffer, first.offset)
        if isinstance(first, p.Load):
            word = f"w{first.id}"
            vector = self.dialect.vector(stored, lanes)
            self.line(f"const {vector} {word} = {self._wide(first, 'const', lanes, at)};")
            for k, part in enumerate(i.parts):
                assert isinstance(part, p.Load)
                text = self.dialect.lane(word, k)
                self.define(part.id, part.vtype, lambda _, text=text: text)  # type: ignore[misc]
        else:
            values = [self.lane(part.value, 0) for part in i.parts if isinstance(part, p.Store)]
            built = self.dialect.build(stored, lanes, values)
            self.line(f"{self._wide(first, '', lanes, at)} = {built};")

    def _pieces(self, i: p.Load | p.Store) -> range:
        """First lanes of the vectors in memory that neighbours are, which are no vector as values.

        One a step of the range; empty where they are moved one by one.
        """
        t, d = i.vtype, self.dialect
        if i.mask is not None or t.dtype.is_bool or i.offset.coefficient(i.lane) != 1:
            return range(0)
        for lanes in sorted(d.widths, reverse=True):
            fits = lanes * t.dtype.itemsize <= d.vector_bytes and t.lanes % lanes == 0
            if fits and (d.unaligned or self.is_aligned(i, lanes)):
                return range(0, t.lanes, lanes)
        return range(0)

    def is_aligned(self, i: p.Load | p.Store, lanes: int) -> bool:
        """True if the first neighbour always lies at a multiple of so many elements."""
        first = fixed(i.offset, i.lane, 0)
        known = i.buffer in self.spaces
        return known and not (first.const % lanes or any(c % lanes for _, c in first.terms))

    def _load_pieces(self, i: p.Load, pieces: range) -> None:
        kind, lanes = self.dialect.stored[i.vtype.dtype.name], pieces.step
        words = [f"w{i.id}_{k}" if len(pieces) > 1 else f"w{i.id}" for k in pieces]
        for k, word in zip(pieces, words, strict=True):
            vector = self.dialect.vector(kind, lanes)
            self.line(f"const {vector} {word} = {self._vector_load(i, k, lanes)};")
        self.define(i.id, i.vtype, lambda k: self.dialect.lane(words[k // lanes], k % lanes))

    def _vector_load(self, i: p.Load, first: int, lanes: int) -> str:
        """So many neighbours from lane ``first`` on, as a vector."""
        kind, b, at = self._moved(i, first)
        if self.is_aligned(i, lanes):
            return self._wide(i, "const", lanes, at)
        return self.dialect.load(kind, lanes, b, at)

    def _vector_store(self, i: p.Store, first: int, lanes: int, value: str) -> None:
        """Store so many neighbours from lane ``first`` on."""
        kind, b, at = self._moved(i, first)
        if self.is_aligned(i, lanes):
            self.line(f"{self._wide(i, '', lanes, at)} = {value};")
        else:
            self.line(self.dialect.store(kind, lanes, b, at, value))

    def _moved(self, i: p.Load | p.Store, first: int) -> tuple[str, str, str]:
        """The type in memory, the buffer and the offset of lane ``first``, as text."""
        at = self.place(i.buffer, fixed(i.offset, i.lane, first))
        return self.dialect.stored[i.vtype.dtype.name], self.buffers[i.buffer], at

    def _wide(self, i: p.Load | p.Store, qualifier: str, lanes: int, at: str) -> str:
        """So many neighbours at ``at``, which is aligned."""
        vector = self.dialect.vector(self.dialect.stored[i.vtype.dtype.name], lanes)
        where = f"{self.spaces[i.buffer]} {qualifier}".strip()
        return self.dialect.wide(where, vector, self.buffers[i.buffer], at)

    def _literal_zero(self, dtype: DType) -> str:
        return "0" if dtype.is_half else self.literal(0, dtype)

    def store(self, i: p.Store) -> None:
        t, b = i.vtype, self.buffers[i.buffer]
        if i.mask is None and self.is_vector(t) and i.offset.coefficient(i.lane) == 1:
            self._vector_store(i, 0, t.lanes, f"v{i.value}")
            return
        if pieces := self._pieces(i):
            for first in pieces:
                lanes = [self.lane(i.value, first + k) for k in range(pieces.step)]
                kind = self.dialect.stored[t.dtype.name]
                built = self.dialect.build(kind, pieces.step, lanes)
                self._vector_store(i, first, pieces.step, built)
            return
        for k in range(t.lanes):
            guard = "" if i.mask is None else f"if ({self.lane(i.mask, k)}) "
            self.line(
                f"{guard}{b}[{self.place(i.buffer, fixed(i.offset, i.lane, k))}] = "
                f"{self.lane(i.value, k)};"
            )

    # operations

    def compute(self, i: p.Compute) -> None:
        work = self.types[i.args[-1]]
        whole = ""
        if (
            self.is_vector(i.vtype)
            and i.op not in _LANEWISE
            and all(self.is_vector(self.types[a]) for a in i.args)
        ):
            whole = self._vector(i.op, [f"v{a}" for a in i.args], work.dtype, work.lanes)
        if i.op in _DOTS:
            self.define(i.id, i.vtype, lambda k: self._dot4(i, k))
            return
        self.define(
            i.id,
            i.vtype,
            lambda k: self.scalar(i.op, [self.lane(a, k) for a in i.args], work.dtype),
            whole,
        )

    def _dot4(self, i: p.Compute, k: int) -> str:
        """One lane of a sum of products of bytes: what its factors are is in the helper's name."""
        kinds = "_".join(self.types[a].dtype.name for a in i.args[:2])
        self.used.add(f"dot4_{kinds}")
        total = self.lane(i.args[2], k) if i.op is Op.DOT4_ADD else "0"
        factors = ", ".join(self.lane(a, k) for a in i.args[:2])
        return f"tg_dot4_{kinds}({factors}, {total})"

    def _vector(self, op: Op, args: list[str], dtype: DType, lanes: int) -> str:
        """``op`` on whole vectors, '' where it has no such text."""
        if op in (Op.MAX, Op.MIN):
            return self.dialect.vector_max(op, args[0], args[1]) if dtype.is_float else ""
        if f"{op}_{dtype}" in self.dialect.helpers:
            return ""
        return self.scalar(op, args, dtype, lanes)

    def _wrapped(self, op: Op, args: list[str], dtype: DType, lanes: int) -> str:
        """A sum or product by numbers without a sign, which wrap around; of u16 by those of u32."""
        d, word = self.dialect, "u64" if dtype.bits == 64 else "u32"
        u, c = d.values[word], d.values[dtype.name]
        if lanes > 1:
            u, c = d.vector(u, lanes), d.vector(c, lanes)
        elif dtype.bits == 16:
            return f"({c})(({u}){args[0]} {_INFIX[op]} ({u}){args[1]})"
        if op is Op.NEG:
            return d.reinterpret(c, f"-{d.reinterpret(u, args[0])}")
        a, b = (d.reinterpret(u, x) for x in args)
        return d.reinterpret(c, f"{a} {_INFIX[op]} {b}")

    def scalar(self, op: Op, args: list[str], dtype: DType, lanes: int = 1) -> str:
        """``op`` on scalars of ``dtype``, or on vectors of them."""
        if wraps(op, dtype) and not self.dialect.wraps:
            return self._wrapped(op, args, dtype, lanes)
        if op in HELPED and not (op is Op.POW and dtype.is_float):
            self.used.add(f"{op}_{dtype}")
            return f"tg_{op}_{dtype}({', '.join(args)})"
        if op in _INFIX:
            return f"({args[0]} {_INFIX[op]} {args[1]})"
        if op in _CALLS and f"{op}_{dtype}" in self.dialect.helpers:
            self.used.add(f"{op}_{dtype}")
            return f"tg_{op}_{dtype}({args[0]})"
        if op in _CALLS and not (op is Op.FLOOR and dtype.is_int):
            name = "rint" if op is Op.ROUND else op
            return f"{self.dialect.function(name, dtype)}({', '.join(args)})"
        match op:
            case Op.NEG:
                return f"(-{args[0]})"
            case Op.FLOOR:
                return args[0]
            case Op.NOT:
                return f"(!{args[0]})" if dtype.is_bool else f"(~{args[0]})"
            case Op.RECIP:
                return f"({self.literal(1.0, dtype)} / {args[0]})"
            case Op.WHERE:
                return f"({self.choice(*args)})"
            case Op.ABS if dtype.is_float:
                return f"{self.dialect.function('fabs', dtype)}({args[0]})"
            case Op.MAX | Op.MIN if dtype.is_bool:
                return f"({args[0]} {'|' if op is Op.MAX else '&'} {args[1]})"
            case _ if op in (Op.MAX, Op.MIN, Op.ABS) or op in _HELPERS:
                self.used.add(f"{op}_{dtype}")
                return f"tg_{op}_{dtype}({', '.join(args)})"
            case _:
                raise InternalError(f"{self.dialect.name} has no text for {op} on {dtype}")

    # values as C variables: one for a scalar or a vector, one a lane where there is no such vector

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def parts(self, name: str, t: VType) -> list[str]:
        """The C variables that hold a value: one, or one a lane."""
        if t.lanes == 1 or self.dialect.is_vector(t.dtype, t.lanes):
            return [name]
        return [f"{name}_{k}" for k in range(t.lanes)]

    def names(self, value: int) -> list[str]:
        return self.parts(f"v{value}", self.types[value])

    def lane(self, value: int, k: int) -> str:
        """Lane ``k`` of a value."""
        t = self.types[value]
        if t.lanes == 1:
            return f"v{value}"
        return (
            self.dialect.lane(f"v{value}", k)
            if self.dialect.is_vector(t.dtype, t.lanes)
            else f"v{value}_{k}"
        )

    def c_type(self, t: VType) -> str:
        scalar = self.dialect.values[t.dtype.name]
        return self.dialect.vector(scalar, t.lanes) if self.is_vector(t) else scalar

    def is_vector(self, t: VType) -> bool:
        return t.lanes > 1 and self.dialect.is_vector(t.dtype, t.lanes)

    # syntax, which is C's here

    def constant(self, kind: str, name: str, text: str) -> str:
        """The statement that names a value."""
        return f"const {kind} {name} = {text};"

    def variables(self, kind: str, names: list[str]) -> str:
        """The statement that declares variables."""
        return f"{kind} {', '.join(names)};"

    def choice(self, condition: str, yes: str, no: str) -> str:
        return f"{condition} ? {yes} : {no}"

    def cast(self, dtype: DType, text: str) -> str:
        """A value of another type, where the language has that conversion."""
        return f"({self.dialect.values[dtype.name]}){text}"

    # values

    def define(self, number: int, t: VType, lane: Callable[[int], str], whole: str = "") -> None:
        """Value ``number`` = ``whole`` (a vector type, and given), else lane by lane."""
        self.types[number] = t
        kind = self.c_type(t)
        if self.is_vector(t):
            scalar = self.dialect.values[t.dtype.name]
            built = whole or self.dialect.build(scalar, t.lanes, [lane(k) for k in range(t.lanes)])
            self.line(self.constant(kind, f"v{number}", built))
        else:
            for k, name in enumerate(self.parts(f"v{number}", t)):
                self.line(self.constant(kind, name, lane(k)))

    def splat(self, text: str, t: VType) -> str:
        return self.dialect.build(self.dialect.values[t.dtype.name], t.lanes, [text])

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        if dtype.is_bool:
            return self.dialect.truth[bool(value)]
        if dtype.is_word:
            return f"{int(value) & 0xFFFFFFFF}u"
        if dtype.is_int:
            suffix = self.dialect.long_suffix if dtype.bits == 64 else ""
            if not dtype.signed:
                return f"{int(value)}{'u' if dtype.bits >= 32 else ''}{suffix}"
            if value == -(1 << (dtype.bits - 1)):
                return f"(-{int(value) * -1 - 1}{suffix} - 1)"
            return f"{int(value)}{suffix}" if value >= 0 else f"({int(value)}{suffix})"
        if dtype.is_half:
            return self.converted(self.literal(value, dtype.compute), dtype.compute, dtype)
        kind = self.dialect.values[dtype.name]
        if not math.isfinite(value):
            word = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
            return f"(({kind}){word})"
        text = float(value).hex() + ("f" if dtype.bits == 32 else "")
        return f"({text})" if text.startswith("-") else text

    def converted(self, text: str, source: DType, to: DType) -> str:
        if source == to:
            return text
        if source.is_half:
            self.used.add(f"from_{source}")
            return self.converted(f"tg_from_{source}({text})", source.compute, to)
        if to.is_bool:
            return f"({text} != 0)"
        if to.is_half:
            self.used.add(f"to_{to}")
            return f"tg_to_{to}({self.converted(text, source, to.compute)})"
        if to.is_int and source.is_float:
            self.used.add(f"{source}_to_{to}")
            return f"tg_{source}_to_{to}({text})"
        return self.cast(to, text)

    def wrapper(self, name: str, i: Instr) -> str:
        """The function that does what ``i`` is, which the text then has."""
        if self.dialect.wrappers is None:
            raise InternalError(f"{self.dialect.name} has no text for {i!r}")
        self.wrapped.add(f"tg_{name}")
        return f"tg_{name}"


def _shares_global(program: Program) -> bool:
    """True if something stored to global memory is read back, so that barriers must order it."""
    outside = {b.name for b in program.params} | {
        a.name for a in program.allocs if a.space == "team"
    }
    stored = {i.buffer for i in p.walk(program.body) if isinstance(i, p.Store)}
    loaded = {i.buffer for i in p.walk(program.body) if isinstance(i, p.Load)}
    return bool(outside & stored & loaded)


def _copies_by_quotients(loop: p.For) -> bool:
    """True if a loop only copies a box whose sides are no powers of two: by quotients."""
    inside = tuple(p.walk(loop.body))
    copies = (p.Load, p.Store, p.CopyAsync, p.Test, p.If, p.Number, p.Splat)
    loads = [i for i in inside if isinstance(i, p.Load | p.CopyAsync)]
    return all(isinstance(i, copies) for i in inside) and any(
        i.offset.coefficient(loop.var) is None for i in loads
    )
