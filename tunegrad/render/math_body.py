"""A writer of straight-line LLVM IR over vectors of one width, for the elementary functions.

Only instructions that every SIMD target has as such are offered: no rounding, minimum, absolute
value or sign intrinsic, because without SSE4.1 some of those become library calls. ``llvm.fmuladd``
is fused where the target fuses, a multiplication and an addition where not (``llvm.fma`` would be a
call to ``fmaf`` there). Code for one kind of target only asks for its ``intrinsic`` by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Literal

from tunegrad.lazy import dataclass

Scalar = Literal["i1", "i32", "i64", "float", "double"]


@dataclass(frozen=True, slots=True)
class Val:
    """An SSA name or a literal, and its scalar type."""

    text: str
    scalar: Scalar


@dataclass(slots=True)
class Body:
    """The lines of one function so far (mutable), ``lanes`` wide.

    A Python number is an operand too: the same in every lane.
    """

    lanes: int
    lines: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)

    def add(self, a: Val, b: Val | float) -> Val:
        return self._arith("add", a, b)

    def sub(self, a: Val, b: Val | float) -> Val:
        return self._arith("sub", a, b)

    def mul(self, a: Val, b: Val | float) -> Val:
        return self._arith("mul", a, b)

    def div(self, a: float | Val, b: Val) -> Val:
        return self._emit(f"fdiv {self._type(b)} {self._operand(a, b).text}, {b.text}", b.scalar)

    def bits(
        self, op: Literal["and", "or", "xor", "shl", "ashr", "lshr", "mul"], a: Val, b: Val | int
    ) -> Val:
        """A bitwise operation on integers or booleans, or a product that wraps around."""
        return self._emit(f"{op} {self._type(a)} {a.text}, {self._operand(b, a).text}", a.scalar)

    def fma(self, a: Val, b: Val | float, c: Val | float) -> Val:
        """``a * b + c``, rounded once if the target fuses and twice if not."""
        kind = self._type(a)
        suffix = ("" if self.lanes == 1 else f"v{self.lanes}") + (
            "f32" if a.scalar == "float" else "f64"
        )
        self.declared.add(f"declare {kind} @llvm.fmuladd.{suffix}({kind}, {kind}, {kind})")
        operands = ", ".join(f"{kind} {self._operand(v, a).text}" for v in (a, b, c))
        return self._emit(f"call {kind} @llvm.fmuladd.{suffix}({operands})", a.scalar)

    def polynomial(self, t: Val, coefficients: Sequence[float]) -> Val:
        """The polynomial in ``t``, lowest power first, by Horner's rule."""
        *rest, last_but_one, last = coefficients
        total = self.fma(t, last, last_but_one)
        for c in reversed(rest):
            total = self.fma(total, t, c)
        return total

    def compare(
        self,
        relation: Literal["oeq", "one", "olt", "ogt", "oge", "uno", "slt"],
        a: Val,
        b: Val | float,
    ) -> Val:
        """A comparison of floats, with ``slt`` of integers.

        All but ``uno`` are false where either is NaN; ``uno`` is true just there.
        """
        kind = "icmp" if relation == "slt" else "fcmp"
        return self._emit(
            f"{kind} {relation} {self._type(a)} {a.text}, {self._operand(b, a).text}", "i1"
        )

    def where(
        self, condition: Val, a: Val | float, b: Val | float, scalar: Scalar = "float"
    ) -> Val:
        """``a`` in lanes where ``condition`` holds, else ``b``.

        ``scalar`` is their type if both are numbers.
        """
        like = a if isinstance(a, Val) else b if isinstance(b, Val) else Val("", scalar)
        kind = self._type(like)
        text = f"{kind} {self._operand(a, like).text}, {kind} {self._operand(b, like).text}"
        return self._emit(f"select {self._type(condition)} {condition.text}, {text}", like.scalar)

    def at_most(self, x: Val, top: float) -> Val:
        """The smaller of the two; NaN stays NaN."""
        return self.where(self.compare("ogt", x, top), top, x)

    def at_least(self, x: Val, low: float) -> Val:
        """The larger of the two; NaN stays NaN."""
        return self.where(self.compare("olt", x, low), low, x)

    def cast(
        self,
        op: Literal["bitcast", "fpext", "fptrunc", "sitofp", "trunc", "zext"],
        x: Val,
        to: Scalar,
    ) -> Val:
        return self._emit(f"{op} {self._type(x)} {x.text} to {vector_type(to, self.lanes)}", to)

    def rarely(self, condition: Val, otherwise: Callable[[], Val], result: Val) -> Val:
        """``result``, but where ``condition`` holds what ``otherwise`` computes: by a branch that
        is taken where it holds in one lane, so all others pay a test.
        """
        some = condition.text
        if self.lanes > 1:
            kind = self._type(condition)
            name = f"llvm.vector.reduce.or.v{self.lanes}i1"
            self.declared.add(f"declare i1 @{name}({kind})")
            some = self._emit(f"call i1 @{name}({kind} {some})", "i1").text
        self.lines += [f"  br i1 {some}, label %rare, label %usual", "rare:"]
        mixed = self.where(condition, otherwise(), result)
        self.lines += [f"  ret {self._type(mixed)} {mixed.text}", "usual:"]
        return result

    def lane(self, x: Val, index: int) -> Val:
        """One lane, as a scalar."""
        if self.lanes == 1:
            return x
        return self._emit(f"extractelement {self._type(x)} {x.text}, i32 {index}", x.scalar)

    def insert(self, into: Val | None, x: Val, index: int) -> Val:
        """The vector ``into`` (None: undefined) with the scalar ``x`` in one lane."""
        if self.lanes == 1:
            return x
        vector = "poison" if into is None else into.text
        return self._emit(
            f"insertelement {self._type(x)} {vector}, {x.scalar} {x.text}, i32 {index}", x.scalar
        )

    def call(self, name: str, arguments: Sequence[Val]) -> Val:
        """A call of a scalar f64 function of the C library."""
        self.declared.add(f"declare double @{name}({', '.join('double' for _ in arguments)})")
        return self._emit(
            f"call double @{name}({', '.join(f'double {a.text}' for a in arguments)})", "double"
        )

    def intrinsic(self, name: str, arguments: Sequence[tuple[str, str]], result: Scalar) -> Val:
        """A call of an intrinsic of the target; ``arguments`` are types and operands."""
        kind = vector_type(result, self.lanes)
        self.declared.add(f"declare {kind} @{name}({', '.join(t for t, _ in arguments)})")
        return self._emit(
            f"call {kind} @{name}({', '.join(f'{t} {a}' for t, a in arguments)})", result
        )

    def vector(self, numbers: Sequence[float]) -> str:
        """A constant of ``lanes`` different floats."""
        return "<" + ", ".join(f"float {_literal(n, 'float')}" for n in numbers) + ">"

    def literal(self, value: float, scalar: Scalar) -> Val:
        """A number in every lane."""
        return self._operand(value, Val("", scalar))

    def _arith(self, op: str, a: Val, b: Val | float) -> Val:
        prefix = "f" if a.scalar in ("float", "double") else ""
        return self._emit(
            f"{prefix}{op} {self._type(a)} {a.text}, {self._operand(b, a).text}", a.scalar
        )

    def _type(self, x: Val) -> str:
        return vector_type(x.scalar, self.lanes)

    def _operand(self, x: Val | float, like: Val) -> Val:
        if isinstance(x, Val):
            return x
        literal = _literal(x, like.scalar)
        if self.lanes > 1:
            literal = f"<{', '.join([f'{like.scalar} {literal}'] * self.lanes)}>"
        return Val(literal, like.scalar)

    def _emit(self, text: str, scalar: Scalar) -> Val:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return Val(name, scalar)


def vector_type(scalar: Scalar, lanes: int) -> str:
    """``<lanes x scalar>``, or the scalar alone."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def nearest_f32(value: float) -> float:
    """The number of f32 that ``value`` is rounded to."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _literal(value: float, scalar: Scalar) -> str:
    if scalar == "i1":
        return "true" if value else "false"
    if scalar in ("i32", "i64"):
        return str(int(value))
    if scalar == "float":
        value = nearest_f32(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
