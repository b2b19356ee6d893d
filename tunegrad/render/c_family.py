"""Program to text in a language of the C family. What differs between them is in a ``Dialect``.

    %4 = fma %1 %2 %3 f32x4   -->  const float4 v4 = fma(v1, v2, v3);   where the dialect has it
                                   const float v4_0 = fma(v1_0, v2_0, v3_0);  one a lane else
    for m0 in 8 thread(8,1):  -->  const int i_m0 = group % 8; if (...) {

Values are ``v`` and their id, loop variables ``i_``, registers ``r_``, buffers ``b_`` and their
names. The text is a function of the program alone. Masks guard each element's access.
"""

from __future__ import annotations

from tunegrad.errors import InternalError
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import BOOL
from tunegrad.ir.index import as_index
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Alloc, Buffer, Instr, Pack, Program, VType
from tunegrad.ir.verify_program import is_grouped

from .c_dialect import Dialect
from .c_memory import fixed
from .c_units import CUnits
from .c_values import Names, word_of
from .c_wide import Joined, joined

__all__ = ["CPrinter", "arguments", "kernel_name", "launched_bytes", "render_c"]

_ROUNDS = 4
"""Of a copy that are unrolled where each finds its place by divisions. Compilers unroll all of
them, keep all places, which loops around do not change, in registers, and spill them.
"""


def arguments(program: Program) -> tuple[Buffer | Pack | Alloc, ...]:
    """The kernel's arguments, in order: parameters, packs that are no parameters, scratch that
    groups share.
    """
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


class CPrinter(CUnits):
    """Prints the whole, its blocks and loops. The program has no pipelines any more."""

    def __init__(self, program: Program, dialect: Dialect) -> None:
        super().__init__(program, dialect)
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
        return f"{' '.join(w for w in words if w)} *{self.dialect.restrict} {self.buffers[a.name]}"

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
        who = self._share("item" if i.kind == "local" else "group", i)
        if i.count >= i.extent:
            sure = all(s.lo >= i.count for s in i.stops)
            self.line("{")
            self.depth += 1
            self.line(self.constant(self.index_type, v, who))
            if sure:
                self.block(i.body)
            else:
                self._nest(f"if ({v} < {stop}) {{", i.body)
            self.depth -= 1
            self.line("}")
            return
        ends = [f"{stop} * {part} / {i.count}" for part in (f"({who})", f"({who} + 1)")]
        self._nest(self.loop(v, *ends), i.body)

    def loop(self, v: str, first: str, stop: str) -> str:
        """The head of a loop."""
        return f"for ({self.index_type} {v} = {first}; {v} < {stop}; ++{v}) {{"

    def _share(self, who: str, i: p.For) -> str:
        team = self.program.local if i.kind == "local" else self.program.threads
        text = who if i.inner == 1 else f"{who} / {i.inner}"
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


def _shares_global(program: Program) -> bool:
    """True if something stored to global memory is read back, so that barriers must order it."""
    outside = {b.name for b in program.params} | {
        a.name for a in program.allocs if a.space == "team"
    }
    stored = {i.buffer for i in p.walk(program.body) if isinstance(i, p.Store)}
    loaded = {i.buffer for i in p.walk(program.body) if isinstance(i, p.Load)}
    return bool(outside & stored & loaded)


def _copies_by_quotients(loop: p.For) -> bool:
    """True if a loop only copies, from places that are quotients of its variable: a box whose sides
    are no powers of two.
    """
    inside = tuple(p.walk(loop.body))
    copies = (p.Load, p.Store, p.CopyAsync, p.Test, p.If, p.Number, p.Splat)
    loads = [i for i in inside if isinstance(i, p.Load | p.CopyAsync)]
    return all(isinstance(i, copies) for i in inside) and any(
        i.offset.coefficient(loop.var) is None for i in loads
    )
