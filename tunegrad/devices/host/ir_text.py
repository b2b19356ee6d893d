"""A writer of LLVM IR text for the few functions of our own that are native code: expressions,
loops and branches as Python says them.

    @functions.define("void @double(ptr %at, i64 %n)")
    def _(f, at, n):
        with f.range(0, n) as i:                   a block for the head, one for the body, one after
            place = f.element("i64", at, i)
            f.store(f.load("i64", place) * 2, place)

Integers have no sign: comparisons and divisions are of numbers from 0 up. A value may be used where
its block was passed; what a loop changes is in its ``values``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PARAMETER = re.compile(r"([^\s(,]+) %(\w+)")
_NAME = re.compile(r"@([\w.]+)\(")


def _operation(name: str) -> Callable[[Value, Value | float], Value]:
    def operate(a: Value, b: Value | float) -> Value:
        word = f"f{name}" if a.is_real and name in ("add", "sub", "mul") else name
        return a.writer.emit(a.type, f"{word} {a.type} {a.text}, {a.beside(b)}")

    return operate


def _relation(name: str) -> Callable[[Value, Value | float | str], Value]:
    def relate(a: Value, b: Value | float | str) -> Value:
        kind = re.sub(r"\w+>$", "i1>", a.type) if a.type.startswith("<") else "i1"
        word = f"fcmp o{name}" if a.is_real else f"icmp {'u' * (name not in ('eq', 'ne'))}{name}"
        return a.writer.emit(kind, f"{word} {a.type} {a.text}, {a.beside(b)}")

    return relate


class Value:
    """A name or a constant with its LLVM type. A Python number beside it has that type too."""

    __slots__ = ("text", "type", "writer")

    def __init__(self, writer: Writer, kind: str, text: str) -> None:
        self.writer, self.type, self.text = writer, kind, text

    @property
    def is_real(self) -> bool:
        return "float" in self.type or "double" in self.type

    def beside(self, other: Value | float | str) -> str:
        """The text of another operand of the same type."""
        return self.writer.constant(self.type, other).text

    __add__, __sub__, __mul__ = _operation("add"), _operation("sub"), _operation("mul")
    __floordiv__, __mod__ = _operation("udiv"), _operation("urem")
    __and__, __xor__ = _operation("and"), _operation("xor")
    __lshift__, __rshift__ = _operation("shl"), _operation("lshr")
    __lt__, __le__ = _relation("lt"), _relation("le")
    __gt__, __ge__ = _relation("gt"), _relation("ge")
    equals, differs = _relation("eq"), _relation("ne")


class Loop:
    """A loop that is being written; ``values`` are those of this turn, and after it the last."""

    def __init__(self, writer: Writer, starts: list[Value]) -> None:
        self._f, before = writer, writer.block
        self._head, self._after = writer.label("loop"), writer.label("after")
        writer.jump(self._head)
        self._phis = len(writer.lines)
        self._starts = [(s, before) for s in starts]
        writer.lines += [""] * len(starts)
        self.values = [Value(writer, s.type, f"%{writer.label('v')}") for s in starts]

    def only_while(self, condition: Value) -> None:
        """Leave the loop where this does not hold."""
        self._f.branch(condition, self._f.label("turn"), self._after)

    def again(self, *values: Value) -> None:
        """Take another turn, with these values; what is written next is after the loop."""
        f, turns = self._f, zip(self.values, self._starts, values, strict=True)
        for at, (mine, (start, before), value) in enumerate(turns, self._phis):
            ways = f"[ {start.text}, %{before} ], [ {value.text}, %{f.block} ]"
            f.lines[at] = f"  {mine.text} = phi {mine.type} {ways}"
        f.jump(self._head, then=self._after)


class Writer:
    """The lines of one function so far; ``words`` are settings that its text depends on."""

    def __init__(self, words: Any) -> None:
        self.words = words
        self.lines: list[str] = ["entry:"]
        self.block = "entry"
        self.called: set[str] = set()
        self._names = 0

    # ---- values

    def label(self, word: str) -> str:
        self._names += 1
        return f"{word}{self._names}"

    def emit(self, kind: str, text: str) -> Value:
        """An instruction that has a result."""
        name = f"%{self.label('t')}"
        self.lines.append(f"  {name} = {text}")
        return Value(self, kind, name)

    def constant(self, kind: str, value: Value | float | str) -> Value:
        """A constant of a type, in every lane of a vector; a value as it is."""
        if isinstance(value, Value):
            return value
        text = f"{value:.17e}" if isinstance(value, float) else str(value)
        if kind.startswith("<") and not isinstance(value, str):
            text = f"splat ({kind.split(' x ')[1][:-1]} {text})"
        return Value(self, kind, text)

    def cast(self, op: str, value: Value, kind: str) -> Value:
        return self.emit(kind, f"{op} {value.type} {value.text} to {kind}")

    def select(self, condition: Value, yes: Value, no: Value | float) -> Value:
        kinds = f"{condition.type} {condition.text}, {yes.type} {yes.text}, {yes.type}"
        return self.emit(yes.type, f"select {kinds} {yes.beside(no)}")

    # ---- memory

    def element(self, kind: str, base: Value, index: Value | int) -> Value:
        """The place of an element of an array."""
        at = self.constant("i64", index)
        return self.emit("ptr", f"getelementptr {kind}, ptr {base.text}, i64 {at.text}")

    def field(self, base: Value, offset: Value | int) -> Value:
        """The place so many bytes on."""
        return self.element("i8", base, offset)

    def pointer(self, address: Value) -> Value:
        return self.cast("inttoptr", address, "ptr")

    def load(self, kind: str, at: Value, how: str = "") -> Value:
        """``how``: an alignment (``align 1``), or of an atomic read its order (``acquire``)."""
        word, end = _way(how)
        return self.emit(kind, f"load {word}{kind}, ptr {at.text}{end}")

    def store(self, value: Value, at: Value, how: str = "") -> None:
        """``how`` as in ``load``."""
        word, end = _way(how)
        self.lines.append(f"  store {word}{value.type} {value.text}, ptr {at.text}{end}")

    def change(self, op: str, at: Value, order: str) -> Value:
        """``atomicrmw`` of an i32 by 1; what was there before."""
        return self.emit("i32", f"atomicrmw {op} ptr {at.text}, i32 1 {order}")

    def claim(self, at: Value, old: Value, new: Value) -> Value:
        """Change an i32 from one value to another, ordered as a lock; false where it is a third."""
        ways = f"i32 {old.text}, i32 {new.text} acq_rel acquire"
        pair = self.emit("", f"cmpxchg ptr {at.text}, {ways}")
        return self.emit("i1", f"extractvalue {{ i32, i1 }} {pair.text}, 1")

    def room(self, kind: str, align: int = 8) -> Value:
        """Memory of this call, for a function's first block."""
        return self.emit("ptr", f"alloca {kind}, align {align}")

    # ---- calls

    def call(self, kind: str, name: str, *arguments: Value) -> Value:
        """A call of a function by its name, which is declared unless the module has it."""
        types = ", ".join(a.type for a in arguments)
        self.called.add(f"declare {kind} @{name}({types})")
        return self._called(f"{kind} @{name}", kind, arguments)

    def system(self, *arguments: Value) -> None:
        """A system call."""
        self.called.add("declare i64 @syscall(i64, ...)")
        self._called("i64 (i64, ...) @syscall", "i64", arguments)

    def enter(self, function: Value, *arguments: Value, kind: str = "void") -> Value:
        """A call of a function by its address."""
        return self._called(f"{kind} {function.text}", kind, arguments)

    def _called(self, what: str, kind: str, arguments: tuple[Value, ...]) -> Value:
        text = f"call {what}({', '.join(f'{a.type} {a.text}' for a in arguments)})"
        if kind != "void":
            return self.emit(kind, text)
        self.lines.append(f"  {text}")
        return Value(self, kind, "")

    def asm(self, text: str, *operands: Value) -> None:
        """An instruction of the machine that may touch any memory."""
        ways = ",".join(["r"] * len(operands) + ["~{memory}"])
        given = ", ".join(f"{a.type} {a.text}" for a in operands)
        self.lines.append(f'  call void asm sideeffect "{text}", "{ways}"({given})')

    # ---- control

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str, then: str | None = None) -> None:
        """Go there; ``then`` (default: there) is written next."""
        if self.block:
            self.lines.append(f"  br label %{label}")
        self.start(then or label)

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Go one of two ways; ``yes`` is written next."""
        self.lines.append(f"  br i1 {condition.text}, label %{yes}, label %{no}")
        self.start(yes)

    def give(self, value: Value | None = None) -> None:
        """Return; nothing of this block follows."""
        self.lines.append("  ret void" if value is None else f"  ret {value.type} {value.text}")
        self.block = ""

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        after = self.label("after")
        self.branch(condition, self.label("when"), after)
        yield
        self.jump(after)

    @contextmanager
    def loop(self, *starts: Value) -> Iterator[Loop]:
        """A loop, which ends where its block ends: ``again`` is the last thing in it."""
        yield Loop(self, [*starts])

    @contextmanager
    def range(self, start: Value | int, stop: Value, step: int = 1) -> Iterator[Value]:
        """Each number from ``start`` up to ``stop``."""
        loop = Loop(self, [self.constant("i64", start)])
        loop.only_while(loop.values[0] < stop)
        yield loop.values[0]
        loop.again(loop.values[0] + step)


def _way(how: str) -> tuple[str, str]:
    """The word and the end of an access of an alignment, or of an order of atomic ones."""
    if not how or how.startswith("align"):
        return "", f", {how}" if how else ""
    return "atomic ", f" {how}, align 4"


Body = Callable[..., None]


class Functions:
    """The functions of one module, in order; a body is written when the text is asked for."""

    def __init__(self) -> None:
        self._bodies: list[tuple[str, Body]] = []

    def define(self, head: str) -> Callable[[Body], Body]:
        """A function by its LLVM head, after ``define``; ``body`` takes a writer and parameters."""

        def add(body: Body) -> Body:
            self._bodies.append((head, body))
            return body

        return add

    def text(self, words: Any = None) -> str:
        """The module: what is called and not defined, then all functions."""
        made: list[str] = []
        called: set[str] = set()
        defined: set[str] = set()
        for head, body in self._bodies:
            writer = Writer(words)
            body(writer, *(Value(writer, k, f"%{n}") for k, n in _PARAMETER.findall(head)))
            if writer.block:
                writer.give()
            defined.update(_NAME.findall(head))
            called |= writer.called
            made += [f"define {head} {{", *writer.lines, "}", ""]
        needed = [line for line in sorted(called) if _NAME.findall(line)[0] not in defined]
        return "\n".join([*needed, "", *made])
