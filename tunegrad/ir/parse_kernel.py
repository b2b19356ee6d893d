"""A kernel from its canonical text, which may be of any origin.

    text  -->  axes of every stage  -->  parameters, stages  -->  verified  -->  prints as that text

    kernel     := "kernel" param* axis stage+ ["  schedule " actions]            a line each
    param      := "  param p0 " dtype "[" extent, ... "] " ("in" | "const" | out) " " layout
    out        := "out" [" over p0"]                       in the memory of that input
    layout     := "row" | (dim ["/" step] [":" extent])*      by blanks, outermost first
    axis       := "  axis " (name ":" extent)*
    stage      := "  v0" [row] " = " op " over " (name ":" extent)* " in " dtype ": " expression
                | "  store " place [" over " (name ":" extent)*] " = " expression
                | "  t0 = " expression                        shared by stages, of several stores
    row        := "[" name, ... "]"                           the first of the axes
    place      := "p0[" index, ... [" if " condition] "]"
    expression := literal ":" dtype | place | "v0" ["[" index, ... "]"] | "t0"
                | op "(" expression, ... ")"
                | dtype "(" (expression | index) ")" | "(" condition ")"

The text has no dtypes of operations, since their arguments decide them; no extent of a layout's
innermost part, which is the step of the next one; and no name and origin of the kernel, which are
no part of it. In a kernel of one store it does not say which subexpressions are one node: equal
ones become one. Sizes and nesting are bounded, so whatever the text is takes some milliseconds: it
is a kernel or a KernelTextError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from itertools import count
from math import prod
from typing import TypeVar

from tunegrad.errors import KernelTextError, ShapeError, VerifyError
from tunegrad.lazy import dataclass

from . import dtypes
from .expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value, result_type
from .index import ALWAYS, Index, Valid
from .kernel import Axis, Kernel, Param, Reduce, Role, Stage, Store, axis_name
from .layout import Layout, Part
from .text.parse_index import LARGEST, NAME, Scanner, parse_condition, parse_index
from .verify.kernel import verify_kernel

__all__ = ["LONGEST_KERNEL", "parse_kernel", "read_back"]

LONGEST_KERNEL = 1 << 15
"""Characters; the longest of the named models' kernels, and of their variants', have 6,000."""

_DEPTH = 100
"""Operations inside operations."""

_NODES = 1 << 24
"""Operations, conversions and operands of the stages, those of shared expressions as often as they
are used: a few times what fusion puts into a kernel.
"""

_AXES = 64
_PARAMS = 256
_DIMENSIONS = 16
_STAGES = 512
_POINTS = 1 << 17
"""Points that the verifier may run through."""

_SHOWN = 300

_ROLES: tuple[Role, ...] = ("in", "const", "out")
_OPS = {op.value: op for op in Op}
_TYPES = {**dtypes.DTYPES, **dtypes.WORD_TYPES}
_LITERAL = re.compile(r"(?:True|False|nan|-?inf|-?[0-9][0-9.e+-]{0,31}):")
_CONDITION = re.compile(r"\((?:-?[0-9]+<=|never\)|always\))")


def parse_kernel(text: str) -> Kernel:
    """The kernel whose canonical text this is; it passes the verifier, and its ``text`` is this
    one.

    Raises KernelTextError, and nothing else, for every other text.
    """
    if len(text) > LONGEST_KERNEL:
        raise KernelTextError(
            LONGEST_KERNEL, f"{len(text)} characters", f"at most {LONGEST_KERNEL}"
        )
    kernel = _Reader(Scanner(text)).kernel()
    try:
        verify_kernel(kernel, _POINTS)
    except VerifyError as error:
        raise KernelTextError(
            0, f"what breaks a rule: {str(error)[:_SHOWN]}", "a sound kernel"
        ) from None
    if kernel.text != text:
        same = next(
            (i for i, (a, b) in enumerate(zip(kernel.text, text, strict=False)) if a != b),
            len(kernel.text),
        )
        raise KernelTextError(
            same,
            f"{text[same : same + 20]!a}",
            f"{kernel.text[same : same + 20]!a}, as it is printed",
        )
    return kernel


def read_back(text: str) -> Kernel | None:
    """The kernel of a stored text; None where this version can not read it."""
    try:
        return parse_kernel(text)
    except KernelTextError:
        return None


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Shared:
    """An expression with a line of its own: what it costs where it is used."""

    expr: Expr
    nodes: int
    depth: int


@dataclass(slots=True)
class _Reader:
    """Reads one text. Mutable.

    ``own`` are the axes of the stages by where they stand in the text, and where they end; ``once``
    the expressions of a kernel of one store by their texts. ``sizes`` are those of the parameters
    that indices may be read from. ``nodes`` and ``depth`` are those of
    the expressions read so far.
    """

    text: Scanner
    params: dict[str, Param] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    values: dict[str, dtypes.DType] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    shared: dict[str, _Shared] = field(default_factory=dict)
    own: dict[int, tuple[tuple[Axis, ...], int]] = field(default_factory=dict)
    once: dict[str, Expr] | None = None
    nodes: int = 0
    depth: int = 0

    def kernel(self) -> Kernel:
        text = self.text
        text.take("kernel\n")
        while text.skips("  param "):
            self._param()
        text.take("  axis ")
        axes = self._axes(count(), "")
        self._look_ahead()
        stages: list[Stage] = []
        fixed = ""
        while text.skips("\n  "):
            if text.skips("schedule "):
                fixed, text.at = text.text[text.at :], len(text.text)
                break
            stage = self._line()
            stages += [] if stage is None else [stage]
        if text.at < len(text.text) or not stages:
            text.fail("a stage on a line of its own")
        return Kernel(tuple(self.params.values()), axes, tuple(stages), fixed=fixed)

    # ---- parameters and axes

    def _param(self) -> None:
        text = self.text
        if len(self.params) == _PARAMS:
            text.fail(f"at most {_PARAMS} parameters")
        name = f"p{len(self.params)}"
        text.take(f"{name} ")
        dtype = self._dtype()
        text.take("[")
        at = text.at
        shape: list[int] = []
        while not text.skips("]"):
            if shape:
                text.take(",")
            shape.append(text.integer(low=0))
            if len(shape) > _DIMENSIONS or prod(shape) > LARGEST:
                text.fail(f"at most {_DIMENSIONS} dimensions and {LARGEST} elements", at)
        text.take(" ")
        role = next((r for r in _ROLES if text.skips(f"{r} ")), None)
        if role is None:
            text.fail(f"one of {', '.join(_ROLES)}")
        over = text.match(NAME, "a parameter") if role == "out" and text.skips("over ") else ""
        if over:
            text.take(" ")
        made = Param(name, dtype, tuple(shape), role, self._layout(tuple(shape)), over)
        self.params[name] = made
        if role != "out" and dtype.is_int:
            self.sizes[name] = made.size
        text.take("\n")

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        text, at = self.text, self.text.at
        if text.skips("row"):
            return Layout.row_major(shape)
        parts: list[tuple[int, int, int | None]] = []
        while not text.sees("\n"):
            if parts:
                text.take(" ")
            dim = text.integer(low=0)
            step = text.integer(low=2) if text.skips("/") else 1
            parts.append((dim, step, text.integer(low=0) if text.skips(":") else None))
            if (
                dim >= len(shape)
                or (step > 1 and parts[-1][2] is None)
                or len(parts) > 2 * _DIMENSIONS
            ):
                text.fail(f"a layout of {len(shape)} dimensions", at)
        layout = Layout(
            shape, tuple(Part(d, step, _extent(d, e, shape, parts)) for d, step, e in parts)
        )
        try:
            layout.verify()
        except ShapeError:
            text.fail("a layout that tells all positions apart", at)
        if layout.size > LARGEST:
            text.fail(f"a layout of at most {LARGEST} elements", at)
        return layout

    def _axes(self, numbers: count[int], kind: str) -> tuple[Axis, ...]:
        """The axes that stand here, whose names count on."""
        found: list[Axis] = []
        name = axis_name(next(numbers), kind)
        while self.text.skips(f" {name}:" if found else f"{name}:"):
            found.append(Axis(name, self.text.integer(low=1)))
            self.axes[name] = found[-1].extent
            if len(self.axes) > _AXES:
                self.text.fail(f"at most {_AXES} axes")
            name = axis_name(next(numbers), kind)
        return tuple(found)

    def _look_ahead(self) -> None:
        """Find every stage's own axes: they stand behind what uses them."""
        text, begin = self.text, self.text.at
        numbers = {"r": 0, "s": 0}
        stores = 0
        while text.at < len(text.text) and not text.sees("\n  schedule "):
            kind = "s" if text.sees("\n  store ") else "r"
            stores += kind == "s"
            end = text.text.find("\n", text.at + 1) % (len(text.text) + 1)
            over = text.text.find(" over ", text.at, end)
            if over >= 0:
                text.at = over + len(" over ")
                axes = self._axes(count(numbers[kind]), kind)
                numbers[kind] += len(axes)
                self.own[over] = axes, text.at
            text.at = end
        text.at = begin
        if stores < 2 and text.text.find("\n  t0 = ", begin) < 0:
            self.once = {}

    def _over(self) -> tuple[Axis, ...]:
        """A stage's own axes, which are known by now."""
        if self.text.at not in self.own:
            self.text.fail("' over '")
        axes, self.text.at = self.own[self.text.at]
        return axes

    # ---- stages

    def _line(self) -> Stage | None:
        """A stage, or None for a line that stages share."""
        text = self.text
        if len(self.values) + len(self.shared) > _STAGES:
            text.fail(f"at most {_STAGES} stages")
        if text.skips("store "):
            return self._store()
        if text.skips(f"v{len(self.values)} = "):
            return self._reduce(f"v{len(self.values)}", ())
        if text.skips(f"v{len(self.values)}["):
            return self._reduce(f"v{len(self.values)}", self._row())
        name = f"t{len(self.shared)}"
        if not text.skips(f"{name} = "):
            text.fail(f"'store', 'v{len(self.values)} = ' or '{name} = '")
        nodes, self.depth = self.nodes, 0
        expr = self._expr(1)
        self.shared[name] = _Shared(expr, self.nodes - nodes, self.depth)
        self.nodes = nodes  # they count where they are used
        return None

    def _row(self) -> tuple[str, ...]:
        """The names of the axes of a row, up to the operation."""
        names: list[str] = []
        while not self.text.skips("] = "):
            if names:
                self.text.take(", ")
            names.append(self.text.match(NAME, "an axis"))
            if len(names) > _DIMENSIONS:
                self.text.fail(f"at most {_DIMENSIONS} axes of a row")
        return tuple(names)

    def _reduce(self, name: str, row: tuple[str, ...]) -> Reduce:
        text = self.text
        op = self._named(_OPS, "an operation")
        begin = text.at
        axes = self._over()
        if tuple(a.name for a in axes[: len(row)]) != row:
            text.fail(f"'over' and first the axes of the row, {', '.join(row)}", begin)
        text.take(" in ")
        dtype = self._dtype()
        text.take(": ")
        expr = self._expr(1)
        self.values[name], self.rows[name] = dtype, len(row)
        return Reduce(name, op, axes, expr, dtype, len(row))

    def _store(self) -> Store:
        text = self.text
        param = self._known_param()
        index, valid = self._place()
        axes = self._over() if text.sees(" over ") else ()
        text.take(" = ")
        return Store(param.name, index, self._expr(1), axes, valid)

    # ---- expressions

    def _expr(self, level: int) -> Expr:
        """The expression that stands here, that many operations deep."""
        begin = self.text.at
        self._charge(1, level)
        x = self._read(level)
        return (
            x
            if self.once is None
            else self.once.setdefault(self.text.text[begin : self.text.at], x)
        )

    def _charge(self, nodes: int, depth: int) -> None:
        self.nodes += nodes
        self.depth = max(self.depth, depth)
        if self.nodes > _NODES or self.depth > _DEPTH:
            self.text.fail(f"at most {_NODES} operations, {_DEPTH} deep")

    def _read(self, level: int) -> Expr:
        text = self.text
        if text.skips("("):
            valid = parse_condition(text, self.axes, self.sizes)
            text.take(")")
            return Inside(valid)
        if text.find(_LITERAL):
            return self._literal()
        begin = text.at
        name = text.match(NAME, "an expression")
        if name in self.params:
            text.at = begin
            return self._load()
        if name in self.values:
            return Value(name, self.values[name], self._element(name))
        if name in self.shared:
            found = self.shared[name]
            self._charge(found.nodes, level + found.depth)
            return found.expr
        if name in _OPS:
            return self._apply(_OPS[name], level, begin)
        if name not in _TYPES:
            text.fail("a parameter, a value, an operation or a dtype", begin)
        return self._converted(_TYPES[name], level)

    def _literal(self) -> Const:
        text, begin = self.text, self.text.at
        shown = text.match(_LITERAL, "a literal")[:-1]
        dtype = self._dtype()
        try:
            value = (
                {"True": True, "False": False}[shown] if dtype.is_bool else _number(shown, dtype)
            )
        except (KeyError, ValueError, OverflowError):
            text.fail(f"a literal of {dtype}", begin)
        return Const(value, dtype)

    def _load(self) -> Load:
        param = self._known_param()
        index, valid = self._place()
        return Load(param.name, index, param.dtype, valid)

    def _known_param(self) -> Param:
        begin = self.text.at
        param = self.params.get(self.text.match(NAME, "a parameter"))
        if param is None:
            self.text.fail("a parameter", begin)
        return param

    def _place(self) -> tuple[tuple[Index, ...], Valid]:
        """Parse an index in brackets, and its condition."""
        text = self.text
        text.take("[")
        index: list[Index] = []
        while not (text.sees("]") or text.sees(" if ")):
            if index:
                text.take(", ")
            index.append(parse_index(text, self.axes, self.sizes))
            if len(index) > _DIMENSIONS:
                text.fail(f"at most {_DIMENSIONS} dimensions")
        valid = parse_condition(text, self.axes, self.sizes) if text.skips(" if ") else ALWAYS
        text.take("]")
        return tuple(index), valid

    def _element(self, name: str) -> tuple[Index, ...]:
        """Parse the index of an element in a row; () where the value is no row."""
        text = self.text
        index: list[Index] = []
        while len(index) < self.rows[name]:
            text.take(", " if index else "[")
            index.append(parse_index(text, self.axes, self.sizes))
        if index:
            text.take("]")
        return tuple(index)

    def _apply(self, op: Op, level: int, begin: int) -> Apply:
        text = self.text
        text.take("(")
        args = [self._expr(level + 1)]
        while len(args) < op.arity:
            text.take(", ")
            args.append(self._expr(level + 1))
        text.take(")")
        types = [a.dtype for a in args]
        dtype = result_type(op, types)
        if dtype is None:
            text.fail(f"arguments that {op} takes, not {', '.join(map(str, types))}", begin)
        return Apply(op, tuple(args), dtype)

    def _converted(self, dtype: dtypes.DType, level: int) -> Cast | IndexValue:
        """A cast, or an index as a number."""
        text = self.text
        text.take("(")
        found: Cast | IndexValue
        if self._sees_index():
            found = IndexValue(parse_index(text, self.axes, self.sizes), dtype)
        else:
            found = Cast(self._expr(level + 1), dtype)
        text.take(")")
        return found

    def _sees_index(self) -> bool:
        text = self.text
        if text.sees("("):
            return not text.find(_CONDITION)
        name = text.find(NAME)
        return name in self.axes if name else not text.find(_LITERAL)

    def _named(self, table: Mapping[str, T], what: str) -> T:
        """The meaning of the name that stands here."""
        begin = self.text.at
        found = table.get(self.text.match(NAME, what))
        if found is None:
            self.text.fail(f"one of {', '.join(table)}", begin)
        return found

    def _dtype(self) -> dtypes.DType:
        return self._named(_TYPES, "a dtype")


def _number(shown: str, dtype: dtypes.DType) -> float | int:
    return float(shown) if dtype.is_float else int(shown)


def _extent(
    dim: int, stated: int | None, shape: tuple[int, ...], parts: list[tuple[int, int, int | None]]
) -> int:
    """The extent of a part; without one in the text, the step of the dimension's next part."""
    if stated is not None:
        return stated
    return min((step for d, step, _ in parts if d == dim and step > 1), default=shape[dim])
