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
from collections.abc import Callable

from tunegrad.errors import InternalError
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import BOOL, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Index, as_index
from tunegrad.ir.pipelines import expand_pipelines, is_aligned
from tunegrad.ir.program import Alloc, Buffer, Instr, Pack, Program, VType
from tunegrad.ir.verify_program import is_grouped

from .c_arithmetic import HELPED, wraps
from .c_dialect import Dialect
from .c_index import IndexPrinter, fits_32_bits
from .c_wide import Joined, joined

__all__ = ["arguments", "kernel_name", "launched_bytes", "render_c"]

_CHUNK_BYTES, _BANKS_BYTES = 16, 128
_PTX = {"i8": "s8", "i32": "s32"}
"""What wrappers of instructions call integers."""
_INFIX = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.LT: "<", Op.EQ: "==", Op.NE: "!=",
    Op.AND: "&", Op.OR: "|", Op.XOR: "^",
}  # fmt: skip
_CALLS = frozenset((Op.EXP, Op.LOG, Op.SQRT, Op.TANH, Op.ERF, Op.SIN, Op.FLOOR, Op.POW, Op.FMA))
_PAIRS = frozenset((Op.PAIR, Op.LOW, Op.HIGH, Op.DOT2, Op.DOT2_ADD))
_LANEWISE = frozenset((Op.LT, Op.EQ, Op.NE, Op.WHERE, Op.NOT, Op.FLOORDIV, Op.MOD)) | _PAIRS


def arguments(program: Program) -> tuple[Buffer | Pack | Alloc, ...]:
    """The kernel's arguments, in order: parameters, packs that are no parameters, scratch that
    groups share.
    """
    names = {b.name for b in program.params}
    packs = tuple(k for k in program.packs if k.name not in names)
    return (*program.params, *packs, *(a for a in program.allocs if a.space == "team"))


def kernel_name(program: Program) -> str:
    """The name of the kernel function; helpers begin with tg_, which no program's name does."""
    return f"kernel_{_word(program.name)}"


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
    return _Printer(expand_pipelines(program), dialect).text()


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


class _Names:
    """Distinct C identifiers for names of one kind."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._made: dict[str, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, name: str) -> str:
        made = self._made.get(name)
        if made is None:
            made = word = f"{self._prefix}{_word(name)}"
            n = 0
            while made in self._taken:
                n += 1
                made = f"{word}__{n}"
            self._taken.add(made)
            self._made[name] = made
        return made


class _Printer:
    def __init__(self, program: Program, dialect: Dialect) -> None:
        self.program, self.dialect = program, dialect
        self.used: set[str] = set()
        self.wrapped: set[str] = set()
        narrow = fits_32_bits(program)
        self.index_type = "int" if narrow else dialect.long_type
        self.buffers, self.loops, self.registers = _Names("b_"), _Names("i_"), _Names("r_")
        dtypes = {b.name: b.dtype for b in program.params}
        suffix = "" if narrow else dialect.long_suffix
        self.at = IndexPrinter(suffix, self.used, self.buffers, dtypes)
        self.spaces: dict[str, str] = {}
        self.types: dict[int, VType] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.global_fence = _shares_global(program)
        self.swizzled = {a.name: a for a in program.allocs if a.swizzled}

    # the whole

    def text(self) -> str:
        d = self.dialect
        declared = [self._argument(a) for a in arguments(self.program)]
        launched = launched_bytes(self.program, d)
        if launched:
            self._line(d.shared_array)
        at = 0
        for a in self.program.allocs:
            if a.space == "shared" and launched:
                self._line(self._part(a, at))
                at += _padded(a, d)
            elif a.space != "team":
                self._line(self._scratch(a))
        self._line(f"const {self.index_type} group = ({self.index_type}){d.group_id};")
        self._line(f"const {self.index_type} item = ({self.index_type}){d.local_id};")
        self._line("(void)group; (void)item;")
        self._block(self.program.body)
        kernel = d.kernel.replace("ITEMS", str(self.program.local))
        head = f"{kernel} {kernel_name(self.program)}({', '.join(declared)})"
        helpers = [d.helpers[name].replace("INDEX", self.index_type) for name in sorted(self.used)]
        if d.wrappers is not None and self.wrapped:
            helpers.append(d.wrappers(self.wrapped))
        parts = [d.prologue] if d.prologue else []
        return "\n".join([*parts, *helpers, head, "{", *self.lines, "}", ""])

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
        return f"{' '.join(w for w in words if w)} *{self.dialect.restrict} {self.buffers[a.name]}"

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    # blocks

    def _block(self, body: tuple[Instr, ...]) -> None:
        for i in joined(body, self._widths):
            match i:
                case Joined():
                    self._joined(i)
                case p.For():
                    self._for(i)
                case p.If():
                    self._if(i)
                case p.Barrier():
                    if self.program.threads > 1 and not is_grouped(self.program):
                        raise InternalError(
                            f"program {self.program.name}: {self.dialect.name} has no team barrier"
                        )
                    self._line(self.dialect.barrier(self.global_fence))
                case p.Store():
                    self._store(i)
                case p.CopyAsync():
                    self._copy_async(i)
                case p.Commit():
                    self._line(f"{self._wrapper('cp_commit', i)}();")
                case p.Await(batches):
                    self._line(f"{self._wrapper('cp_wait', i)}<{batches}>();")
                case p.Register(name, t):
                    self._line(
                        f"{self._c_type(t)} {', '.join(self._parts(self.registers[name], t))};"
                    )
                case p.Write(name, value, t):
                    for left, right in zip(
                        self._parts(self.registers[name], t), self._names(value), strict=True
                    ):
                        self._line(f"{left} = {right};")
                case _:
                    self._value(i)

    def _nest(self, head: str, body: tuple[Instr, ...], tail: str = "}") -> None:
        self._line(head)
        self.depth += 1
        self._block(body)
        self.depth -= 1
        self._line(tail)

    def _if(self, i: p.If) -> None:
        self._nest(f"if ({self.at.condition(i.valid)}) {{", i.body, "} else {" if i.orelse else "}")
        if i.orelse:
            self.lines.pop()
            self._nest("} else {", i.orelse)

    def _for(self, i: p.For) -> None:
        v, stop = self.loops[i.var], self.at.least(i.stops)
        self.at.names[i.var] = v
        if i.kind == "serial":
            self._nest(f"for ({self.index_type} {v} = 0; {v} < {stop}; ++{v}) {{", i.body)
            return
        who = self._share("item" if i.kind == "local" else "group", i)
        if i.count >= i.extent:
            sure = all(s.lo >= i.count for s in i.stops)
            self._line("{")
            self.depth += 1
            self._line(f"const {self.index_type} {v} = {who};")
            if sure:
                self._block(i.body)
            else:
                self._nest(f"if ({v} < {stop}) {{", i.body)
            self.depth -= 1
            self._line("}")
            return
        ends = [f"{stop} * {part} / {i.count}" for part in (f"({who})", f"({who} + 1)")]
        self._nest(f"for ({self.index_type} {v} = {ends[0]}; {v} < {ends[1]}; ++{v}) {{", i.body)

    def _share(self, who: str, i: p.For) -> str:
        team = self.program.local if i.kind == "local" else self.program.threads
        text = who if i.inner == 1 else f"{who} / {i.inner}"
        return f"{text} % {i.count}" if i.inner * i.count < team else text

    # values

    def _parts(self, name: str, t: VType) -> list[str]:
        """The C variables that hold a value: one, or one a lane."""
        if t.lanes == 1 or self.dialect.is_vector(t.dtype, t.lanes):
            return [name]
        return [f"{name}_{k}" for k in range(t.lanes)]

    def _names(self, value: int) -> list[str]:
        return self._parts(f"v{value}", self.types[value])

    def _lane(self, value: int, k: int) -> str:
        """Lane ``k`` of a value."""
        t = self.types[value]
        if t.lanes == 1:
            return f"v{value}"
        return (
            self.dialect.lane(f"v{value}", k)
            if self.dialect.is_vector(t.dtype, t.lanes)
            else f"v{value}_{k}"
        )

    def _c_type(self, t: VType) -> str:
        scalar = self.dialect.values[t.dtype.name]
        return self.dialect.vector(scalar, t.lanes) if self._is_vector(t) else scalar

    def _is_vector(self, t: VType) -> bool:
        return t.lanes > 1 and self.dialect.is_vector(t.dtype, t.lanes)

    def _define(self, number: int, t: VType, lane: Callable[[int], str], whole: str = "") -> None:
        """Value ``number`` = ``whole`` where its type is a vector and ``whole`` is given, else lane
        by lane.
        """
        self.types[number] = t
        kind = f"const {self._c_type(t)}"
        if self._is_vector(t):
            scalar = self.dialect.values[t.dtype.name]
            built = whole or self.dialect.build(scalar, t.lanes, [lane(k) for k in range(t.lanes)])
            self._line(f"{kind} v{number} = {built};")
        else:
            for k, name in enumerate(self._parts(f"v{number}", t)):
                self._line(f"{kind} {name} = {lane(k)};")

    def _value(self, i: Instr) -> None:
        match i:
            case p.Number(id, value, t):
                text = self._literal(value, t.dtype)
                self._define(id, t, lambda _: text, self._splat(text, t))
            case p.Load():
                self._load(i)
            case p.Compute():
                self._compute(i)
            case p.Convert(id, arg, t):
                source = self.types[arg].dtype
                self._define(id, t, lambda k: self._converted(self._lane(arg, k), source, t.dtype))
            case p.Splat(id, arg, t):
                self._define(id, t, lambda _: f"v{arg}", self._splat(f"v{arg}", t))
            case p.Fold(id, op, arg, t):
                text = self._lane(arg, 0)
                for k in range(1, self.types[arg].lanes):
                    text = self._scalar(op, [text, self._lane(arg, k)], t.dtype)
                self._define(id, t, lambda _: text)
            case p.Select(id, mask, yes, no, t):
                self._define(
                    id,
                    t,
                    lambda k: f"{self._lane(mask, k)} ? {self._lane(yes, k)} : {self._lane(no, k)}",
                )
            case p.Position(id, index, t, lane):
                kind = self.dialect.values[t.dtype.name]
                self._define(id, t, lambda k: f"({kind}){self.at.index(_fixed(index, lane, k))}")
            case p.Test(id, valid, lanes, lane):
                self._define(
                    id, VType(BOOL, lanes),
                    lambda k: self.at.condition(
            valid.substitute({lane: as_index(k)}) if lane else valid
        ),
                )  # fmt: skip
            case p.Shuffle(id, arg, across, t):
                if self.dialect.shuffle is None:
                    raise InternalError(f"{self.dialect.name} has no text for {i!r}")
                shuffle, c = self.dialect.shuffle, self.dialect.values[t.dtype.name]
                self._define(id, t, lambda k: shuffle(c, self._lane(arg, k), across))
            case p.MatMul():
                self._matrices(i)
            case p.MatLoad():
                self._mat_load(i)
            case p.Read(id, name, t):
                parts = self._parts(self.registers[name], t)
                self._define(id, t, lambda k: parts[k], parts[0])
            case _:
                raise InternalError(f"{self.dialect.name} has no text for {i!r}")

    def _splat(self, text: str, t: VType) -> str:
        return self.dialect.build(self.dialect.values[t.dtype.name], t.lanes, [text])

    def _literal(self, value: float | int | bool, dtype: DType) -> str:
        if dtype.is_bool:
            return "1" if value else "0"
        if dtype.is_pair:
            return f"{int(value)}u"
        if dtype.is_int:
            suffix = self.dialect.long_suffix if dtype.bits == 64 else ""
            if not dtype.signed:
                return f"{int(value)}{'u' if dtype.bits >= 32 else ''}{suffix}"
            if value == -(1 << (dtype.bits - 1)):
                return f"(-{int(value) * -1 - 1}{suffix} - 1)"
            return f"{int(value)}{suffix}" if value >= 0 else f"({int(value)}{suffix})"
        if dtype.is_half:
            return self._converted(self._literal(value, dtype.compute), dtype.compute, dtype)
        kind = self.dialect.values[dtype.name]
        if not math.isfinite(value):
            word = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
            return f"(({kind}){word})"
        text = float(value).hex() + ("f" if dtype.bits == 32 else "")
        return f"({text})" if text.startswith("-") else text

    def _converted(self, text: str, source: DType, to: DType) -> str:
        if source == to:
            return text
        if source.is_half:
            self.used.add(f"from_{source}")
            return self._converted(f"tg_from_{source}({text})", source.compute, to)
        if to.is_bool:
            return f"({text} != 0)"
        if to.is_half:
            self.used.add(f"to_{to}")
            return f"tg_to_{to}({self._converted(text, source, to.compute)})"
        if to.is_int and source.is_float:
            self.used.add(f"{source}_to_{to}")
            return f"tg_{source}_to_{to}({text})"
        return f"({self.dialect.values[to.name]}){text}"

    def _compute(self, i: p.Compute) -> None:
        work = self.types[i.args[-1]]
        whole = ""
        if (
            self._is_vector(i.vtype)
            and i.op not in _LANEWISE
            and all(self._is_vector(self.types[a]) for a in i.args)
        ):
            whole = self._vector(i.op, [f"v{a}" for a in i.args], work.dtype, work.lanes)
        self._define(
            i.id,
            i.vtype,
            lambda k: self._scalar(i.op, [self._lane(a, k) for a in i.args], work.dtype),
            whole,
        )

    def _vector(self, op: Op, args: list[str], dtype: DType, lanes: int) -> str:
        """``op`` on whole vectors, '' where it has no such text."""
        if op in (Op.MAX, Op.MIN):
            return self.dialect.vector_max(op, args[0], args[1]) if dtype.is_float else ""
        if not dtype.is_float and op in (Op.ABS, *HELPED):
            return ""
        return self._scalar(op, args, dtype, lanes)

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

    def _scalar(self, op: Op, args: list[str], dtype: DType, lanes: int = 1) -> str:
        """``op`` on scalars of ``dtype``, or on vectors of them."""
        if wraps(op, dtype):
            return self._wrapped(op, args, dtype, lanes)
        if op in HELPED and not (op is Op.POW and dtype.is_float):
            self.used.add(f"{op}_{dtype}")
            return f"tg_{op}_{dtype}({', '.join(args)})"
        if op in _INFIX:
            return f"({args[0]} {_INFIX[op]} {args[1]})"
        if op in _CALLS and not (op is Op.FLOOR and dtype.is_int):
            return f"{self.dialect.function(op, dtype)}({', '.join(args)})"
        match op:
            case Op.NEG:
                return f"(-{args[0]})"
            case Op.FLOOR:
                return args[0]
            case Op.NOT:
                return f"(!{args[0]})" if dtype.is_bool else f"(~{args[0]})"
            case Op.RECIP:
                return f"({self._literal(1.0, dtype)} / {args[0]})"
            case Op.WHERE:
                return f"({args[0]} ? {args[1]} : {args[2]})"
            case Op.ABS if dtype.is_float:
                return f"{self.dialect.function('fabs', dtype)}({args[0]})"
            case Op.MAX | Op.MIN if dtype.is_bool:
                return f"({args[0]} {'|' if op is Op.MAX else '&'} {args[1]})"
            case Op.MAX | Op.MIN | Op.ABS | Op.PAIR | Op.LOW | Op.HIGH | Op.DOT2 | Op.DOT2_ADD:
                self.used.add(f"{op}_{dtype}")
                return f"tg_{op}_{dtype}({', '.join(args)})"
            case _:
                raise InternalError(f"{self.dialect.name} has no text for {op} on {dtype}")

    def _matrices(self, i: p.MatMul) -> None:
        """A product of a matrix unit: registers of operands in, sums in and out of an array."""
        d, word = self.dialect, f"m{i.ids[0]}"
        shape, *types = i.unit.name.split("_")
        call = self._wrapper("_".join(["mma", shape, *(_PTX.get(t, t) for t in types)]), i)
        stored = d.stored[self.types[i.a[0]].dtype.name]
        for name, values in (("a", i.a), ("b", i.b)):
            lanes = ([self._lane(v, k) for k in range(i.unit.packed)] for v in values)
            kinds, held = zip(*(d.register(stored, x) for x in lanes), strict=True)
            self._line(f"const {kinds[0]} {word}{name}[{len(held)}] = {{{', '.join(held)}}};")
        sums = ", ".join(f"v{c}" for c in i.c)
        self._line(f"{self._c_type(i.vtype)} {word}[{len(i.c)}] = {{{sums}}};")
        self._line(f"{call}({word}, {word}a, {word}b);")
        for k, new in enumerate(i.ids):
            self._define(new, i.vtype, lambda _, k=k: f"{word}[{k}]")  # type: ignore[misc]

    def _wrapper(self, name: str, i: Instr) -> str:
        """The function that does what ``i`` is, which the text then has."""
        if self.dialect.wrappers is None:
            raise InternalError(f"{self.dialect.name} has no text for {i!r}")
        self.wrapped.add(f"tg_{name}")
        return f"tg_{name}"

    # memory

    def _place(self, buffer: str, index: Index) -> str:
        """An offset, as text: where the element lies."""
        text, a = self.at.sum(index), self.swizzled.get(buffer)
        if a is None:
            return text
        chunk = _CHUNK_BYTES // a.dtype.itemsize
        row = max(_BANKS_BYTES, a.swizzled) // a.dtype.itemsize
        others = min(_BANKS_BYTES, a.swizzled) // _CHUNK_BYTES - 1
        self.used.add("swizzle")
        return f"tg_swizzle({text}, {row.bit_length() - 1}, {others}, {chunk.bit_length() - 1})"

    def _address(self, buffer: str, at: Index, i: Instr) -> str:
        """Of an element in shared memory, in 32 bits."""
        address = self._wrapper("shared_address", i)
        return f"{address}(&{self.buffers[buffer]}[{self._place(buffer, at)}])"

    def _copy_async(self, i: p.CopyAsync) -> None:
        nbytes = i.vtype.lanes * i.vtype.dtype.itemsize
        call = self._wrapper(f"cp_async{nbytes}", i)
        to = self._address(i.buffer, _fixed(i.into, i.lane, 0), i)
        source = f"&{self.buffers[i.source]}[{self.at.sum(_fixed(i.offset, i.lane, 0))}]"
        given = str(nbytes) if i.mask is None else f"{self._lane(i.mask, 0)} ? {nbytes} : 0"
        self._line(f"{call}({to}, {source}, {given});")

    def _mat_load(self, i: p.MatLoad) -> None:
        n, word = len(i.ids), f"m{i.ids[0]}"
        call = self._wrapper(f"ldmatrix_x{n}{'_trans' if i.transposed else ''}", i)
        self._line(f"unsigned int {word}[{n}];")
        self._line(f"{call}({word}, {self._address(i.buffer, i.offset, i)});")
        kind, bits = self.dialect.values[i.vtype.dtype.name], i.vtype.dtype.bits
        for j, new in enumerate(i.ids):
            self._define(
                new,
                i.vtype,
                lambda k, j=j: f"({kind})({word}[{j}] >> {bits * k})",  # type: ignore[misc]
            )

    def _load(self, i: p.Load) -> None:
        t, b = i.vtype, self.buffers[i.buffer]
        step = i.offset.coefficient(i.lane) if i.lane else 0

        def lane(k: int) -> str:
            text = f"{b}[{self._place(i.buffer, _fixed(i.offset, i.lane, k))}]"
            text = f"({text} != 0)" if t.dtype.is_bool else text
            return (
                text
                if i.mask is None
                else f"{self._lane(i.mask, k)} ? {text} : {self._literal_zero(t.dtype)}"
            )

        whole = ""
        if i.mask is None and self._is_vector(t):
            if step == 1:
                whole = self._vector_load(i, 0, t.lanes)
            elif step == 0:
                whole = self._splat(lane(0), t)
        elif pieces := self._pieces(i):
            self._load_pieces(i, pieces)
            return
        self._define(i.id, t, lane, whole)

    def _widths(self, i: p.Load | p.Store) -> list[int]:
        """Lanes of the vectors that may begin at a scalar access, the widest first."""
        t, d = i.vtype, self.dialect
        if t.dtype.is_bool or t.dtype.is_pair or i.buffer not in self.spaces:
            return []
        fits = [n for n in d.widths if n * t.dtype.itemsize <= d.vector_bytes]
        return [n for n in sorted(fits, reverse=True) if is_aligned(i.offset, n)]

    def _joined(self, i: Joined) -> None:
        """Neighbours in one access."""
        first, lanes = i.parts[0], len(i.parts)
        stored = self.dialect.stored[first.vtype.dtype.name]
        at = self._place(first.buffer, first.offset)
        if isinstance(first, p.Load):
            word = f"w{first.id}"
            vector = self.dialect.vector(stored, lanes)
            self._line(f"const {vector} {word} = {self._wide(first, 'const', lanes, at)};")
            for k, part in enumerate(i.parts):
                assert isinstance(part, p.Load)
                text = self.dialect.lane(word, k)
                self._define(part.id, part.vtype, lambda _, text=text: text)  # type: ignore[misc]
        else:
            values = [self._lane(part.value, 0) for part in i.parts if isinstance(part, p.Store)]
            built = self.dialect.build(stored, lanes, values)
            self._line(f"{self._wide(first, '', lanes, at)} = {built};")

    def _pieces(self, i: p.Load | p.Store) -> range:
        """First lanes of the vectors in memory that neighbours are, which are no vector as values.

        One a step of the range; empty where they are moved one by one.
        """
        t, d = i.vtype, self.dialect
        if i.mask is not None or t.dtype.is_bool or i.offset.coefficient(i.lane) != 1:
            return range(0)
        for lanes in sorted(d.widths, reverse=True):
            fits = lanes * t.dtype.itemsize <= d.vector_bytes and t.lanes % lanes == 0
            if fits and (d.unaligned or self._is_aligned(i, lanes)):
                return range(0, t.lanes, lanes)
        return range(0)

    def _is_aligned(self, i: p.Load | p.Store, lanes: int) -> bool:
        """Whether the first neighbour always lies at a multiple of so many elements."""
        first = _fixed(i.offset, i.lane, 0)
        known = i.buffer in self.spaces
        return known and not (first.const % lanes or any(c % lanes for _, c in first.terms))

    def _load_pieces(self, i: p.Load, pieces: range) -> None:
        kind, lanes = self.dialect.stored[i.vtype.dtype.name], pieces.step
        words = [f"w{i.id}_{k}" if len(pieces) > 1 else f"w{i.id}" for k in pieces]
        for k, word in zip(pieces, words, strict=True):
            vector = self.dialect.vector(kind, lanes)
            self._line(f"const {vector} {word} = {self._vector_load(i, k, lanes)};")
        self._define(i.id, i.vtype, lambda k: self.dialect.lane(words[k // lanes], k % lanes))

    def _vector_load(self, i: p.Load, first: int, lanes: int) -> str:
        """So many neighbours from lane ``first`` on, as a vector."""
        kind, b, at = self._moved(i, first)
        if self._is_aligned(i, lanes):
            return self._wide(i, "const", lanes, at)
        return self.dialect.load(kind, lanes, b, at)

    def _vector_store(self, i: p.Store, first: int, lanes: int, value: str) -> None:
        """Store so many neighbours from lane ``first`` on."""
        kind, b, at = self._moved(i, first)
        if self._is_aligned(i, lanes):
            self._line(f"{self._wide(i, '', lanes, at)} = {value};")
        else:
            self._line(self.dialect.store(kind, lanes, b, at, value))

    def _moved(self, i: p.Load | p.Store, first: int) -> tuple[str, str, str]:
        """The type in memory, the buffer and the offset of lane ``first``, as text."""
        at = self._place(i.buffer, _fixed(i.offset, i.lane, first))
        return self.dialect.stored[i.vtype.dtype.name], self.buffers[i.buffer], at

    def _wide(self, i: p.Load | p.Store, qualifier: str, lanes: int, at: str) -> str:
        """So many neighbours at ``at``, which is aligned."""
        vector = self.dialect.vector(self.dialect.stored[i.vtype.dtype.name], lanes)
        where = f"{self.spaces[i.buffer]} {qualifier}".strip()
        return self.dialect.wide(where, vector, self.buffers[i.buffer], at)

    def _literal_zero(self, dtype: DType) -> str:
        return "0" if dtype.is_half else self._literal(0, dtype)

    def _store(self, i: p.Store) -> None:
        t, b = i.vtype, self.buffers[i.buffer]
        if i.mask is None and self._is_vector(t) and i.offset.coefficient(i.lane) == 1:
            self._vector_store(i, 0, t.lanes, f"v{i.value}")
            return
        if pieces := self._pieces(i):
            for first in pieces:
                lanes = [self._lane(i.value, first + k) for k in range(pieces.step)]
                kind = self.dialect.stored[t.dtype.name]
                built = self.dialect.build(kind, pieces.step, lanes)
                self._vector_store(i, first, pieces.step, built)
            return
        for k in range(t.lanes):
            guard = "" if i.mask is None else f"if ({self._lane(i.mask, k)}) "
            self._line(
                f"{guard}{b}[{self._place(i.buffer, _fixed(i.offset, i.lane, k))}] = "
                f"{self._lane(i.value, k)};"
            )


def _fixed(index: Index, lane: str, k: int) -> Index:
    return index.substitute({lane: as_index(k)}) if lane else index


def _shares_global(program: Program) -> bool:
    """Whether something stored to global memory is read back, so that barriers must order it."""
    outside = {b.name for b in program.params} | {
        a.name for a in program.allocs if a.space == "team"
    }
    stored = {i.buffer for i in p.walk(program.body) if isinstance(i, p.Store)}
    loaded = {i.buffer for i in p.walk(program.body) if isinstance(i, p.Load)}
    return bool(outside & stored & loaded)
