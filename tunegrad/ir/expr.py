"""Scalar expressions: what one element of a stage is, as a function of the stage's axes.

Meaning: floats follow IEEE-754 in their dtype, ``MAX``/``MIN`` propagate NaN, integers wrap around,
``ROUND`` is to the nearest whole number, of two the even one. ``FLOORDIV``/``MOD`` are Python's, of
integers by zero 0, of floats numpy's, ``DIV`` is for floats, comparisons give ``bool``, ``WHERE(c,
a, b)`` evaluates like numpy's. ``FMA(a, b, c)`` of floats is ``a * b + c``, rounded once where the
device can, else twice. ``POW`` of integers wraps around; to a negative power it is 0 but for 1 and
-1. ``SHL``/``SHR`` by a negative number of bits, or by all of them, leave nothing but the sign (of
SHR). A ``Load`` whose ``valid`` does not hold yields zero and touches no memory. f16 and bf16
appear only directly under a ``Cast`` to f32, or as a stored dtype.

Products of bf16 pairs: ``PAIR(x, y)`` is the upper halves of two f32, so exactly x and y where they
are bf16 values; ``LOW`` and ``HIGH`` of it are x and y again. ``DOT2(p, q)`` is ``low(p) * low(q) +
high(p) * high(q)`` in f32, and ``DOT2_ADD(p, q, c)``, of programs, is ``fma(low(p), low(q),
fma(high(p), high(q), c))``; in both, subnormal numbers, be they given, in between or the result,
may count as zero.

Products of bytes: ``QUAD(x0, x1, x2, x3)`` is four i8, or four u8, in a word. ``DOT4(p, q)`` is the
sum of the four products of p's bytes with q's in i32, each with or without a sign as its own type
says; ``DOT4_ADD(p, q, c)``, of programs, is that and c, which wraps around. ``EVEN`` of a word is
an i32 of two halves, its first and its third byte as numbers of 16 bits, ``ODD`` the other two.

``DOT2I(p, q)`` of two i32 is the sum of the products of their lower and of their upper halves,
which are signed numbers of 16 bits; ``DOT2I_ADD(p, q, c)``, of programs, is that and c. Both wrap
around.

``TF32(x)`` of f32 is the nearest number whose fraction has 10 bits, ties away from zero (PTX's
``cvt.rna.tf32.f32``); infinities and NaN stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import is_

from tunegrad.lazy import dataclass

from .dtypes import BF16, BF16X2, BOOL, F32, I8, I8X4, I32, U8, U8X4, DType
from .index import ALWAYS, Index, Valid


class Op(StrEnum):
    """The closed set of scalar operations."""

    __hash__ = (
        str.__hash__
    )  # that of an enumeration is a call of Python's, and lowering looks ops up all the time

    NEG = "neg"
    EXP = "exp"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    SQRT = "sqrt"
    RECIP = "recip"
    TANH = "tanh"
    ERF = "erf"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ABS = "abs"
    FLOOR = "floor"
    ROUND = "round"
    NOT = "not"
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    FLOORDIV = "floordiv"
    MOD = "mod"
    MAX = "max"
    MIN = "min"
    POW = "pow"
    LT = "lt"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"
    WHERE = "where"
    FMA = "fma"
    PAIR = "pair"
    LOW = "low"
    HIGH = "high"
    DOT2 = "dot2"
    DOT2_ADD = "dot2_add"
    QUAD = "quad"
    DOT4 = "dot4"
    DOT4_ADD = "dot4_add"
    EVEN = "even"
    ODD = "odd"
    DOT2I = "dot2i"
    DOT2I_ADD = "dot2i_add"
    TF32 = "tf32"

    arity: int
    compares: bool


_ARITY = {
    **dict.fromkeys(
        (Op.NEG, Op.EXP, Op.LOG, Op.LOG2, Op.LOG10,
         Op.SQRT, Op.RECIP, Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.TAN, Op.ABS,
         Op.FLOOR, Op.ROUND, Op.NOT, Op.LOW, Op.HIGH, Op.EVEN, Op.ODD, Op.TF32), 1,
    ),
    **dict.fromkeys((Op.WHERE, Op.FMA, Op.DOT2_ADD, Op.DOT4_ADD, Op.DOT2I_ADD), 3),
    Op.QUAD: 4,
}  # fmt: skip
"""Of operations that do not have two arguments."""

for _op in Op:  # once: each node of a graph asks
    _op.arity, _op.compares = _ARITY.get(_op, 2), _op in (Op.LT, Op.EQ, Op.NE)

FUNCTIONS = frozenset(
    (
        Op.EXP, Op.LOG, Op.LOG2, Op.LOG10, Op.SQRT, Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.TAN, Op.POW,
    )
)  # fmt: skip
"""Operations that devices approximate, each in many instructions."""

PRODUCTS = frozenset((Op.MUL, Op.DOT2, Op.DOT4, Op.DOT2I))
"""Operations whose sums are products of matrices."""


@dataclass(frozen=True, slots=True)
class Const:
    """A literal.

    ``value`` is a Python bool, int or float that ``dtype`` can hold (inf and nan too).
    """

    value: float | int | bool
    dtype: DType

    def __str__(self) -> str:
        return f"{self.value!r}:{self.dtype}"


@dataclass(frozen=True, slots=True)
class Load:
    """The element of ``param`` at ``index`` (one Index per logical dimension), or zero where
    ``valid`` fails.
    """

    param: str
    index: tuple[Index, ...]
    dtype: DType
    valid: Valid = ALWAYS

    def __str__(self) -> str:
        mask = "" if self.valid.always else f" if {self.valid}"
        return f"{self.param}[{', '.join(i.key for i in self.index)}{mask}]"


@dataclass(frozen=True, slots=True)
class Value:
    """The result of an earlier reduce stage, at this point of the shared axes; of a row, the
    element at ``index`` (one Index per axis of the row).
    """

    stage: str
    dtype: DType
    index: tuple[Index, ...] = ()

    def __str__(self) -> str:
        at = ", ".join(i.key for i in self.index)
        return f"{self.stage}[{at}]" if at else self.stage


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation on expressions."""

    op: Op
    args: tuple[Expr, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.op}({', '.join(str(a) for a in self.args)})"


@dataclass(frozen=True, slots=True)
class Cast:
    """A value converted to ``dtype``: float to int truncates, to the nearest integer there is (NaN
    is 0), int to int wraps around; anything to bool is ``!= 0``.
    """

    x: Expr
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}({self.x})"


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index as a number (``arange``, positions)."""

    index: Index
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}({self.index})"


@dataclass(frozen=True, slots=True)
class Inside:
    """The truth of a condition on indices, as a bool: padding with a value other than zero."""

    valid: Valid

    @property
    def dtype(self) -> DType:
        return BOOL

    def __str__(self) -> str:
        return f"({self.valid})"


Expr = Const | Load | Value | Apply | Cast | IndexValue | Inside


def leaves(x: Expr) -> Iterator[Expr]:
    """Every expression without arguments, left to right, as often as distinct operations take it:
    twice in ``mul(x, x)``, and in the square of that.
    """
    stack, seen = [x], set[int]()
    while stack:
        node = stack.pop()
        if not isinstance(node, Apply | Cast):
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.extend(reversed(node.args) if isinstance(node, Apply) else [node.x])


def loads_in(x: Expr) -> list[Load]:
    """Every load of an expression: see ``leaves``."""
    return [leaf for leaf in leaves(x) if isinstance(leaf, Load)]


def nodes(x: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of, from left to right, shared parts once."""
    stack, seen = [x], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, Apply):
            stack.extend(reversed(node.args))
        elif isinstance(node, Cast):
            stack.append(node.x)


def equal(x: Expr, y: Expr) -> bool:
    """``x == y``, where shared parts are compared once."""
    stack, seen = [(x, y)], set[tuple[int, int]]()
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if isinstance(a, Apply) and isinstance(b, Apply):
            if (a.op, a.dtype, len(a.args)) != (b.op, b.dtype, len(b.args)):
                return False
            stack.extend(zip(a.args, b.args, strict=True))
        elif isinstance(a, Cast) and isinstance(b, Cast):
            if a.dtype != b.dtype:
                return False
            stack.append((a.x, b.x))
        elif a != b:
            return False
    return True


def tree_size(*exprs: Expr) -> int:
    """Operations of expressions, shared parts as often as they are used."""
    known: dict[int, int] = {}
    stack = [*exprs]
    while stack:
        node = stack[-1]
        args = node.args if isinstance(node, Apply) else (node.x,) if isinstance(node, Cast) else ()
        missing = [a for a in args if id(a) not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        known[id(node)] = sum(known[id(a)] for a in args) + isinstance(node, Apply)
    return sum(known[id(x)] for x in exprs)


def names_of(leaf: Expr) -> frozenset[str]:
    """The variables that the indices and the condition of a leaf depend on."""
    if isinstance(leaf, Load | Value):
        found = frozenset[str]().union(*(i.names() for i in leaf.index))
        return found | leaf.valid.names() if isinstance(leaf, Load) else found
    if isinstance(leaf, IndexValue):
        return leaf.index.names()
    return leaf.valid.names() if isinstance(leaf, Inside) else frozenset()


def substituting(env: Mapping[str, Index]) -> Callable[[Expr], Expr]:
    """For ``rebuild``: leaves with variables of their indices and conditions replaced."""

    def leaf(x: Expr) -> Expr:
        if isinstance(x, Load):
            index = tuple(i.substitute(env) for i in x.index)
            return Load(x.param, index, x.dtype, x.valid.substitute(env))
        if isinstance(x, Value) and x.index:
            return Value(x.stage, x.dtype, tuple(i.substitute(env) for i in x.index))
        if isinstance(x, IndexValue):
            return IndexValue(x.index.substitute(env), x.dtype)
        return Inside(x.valid.substitute(env)) if isinstance(x, Inside) else x

    return leaf


def rebuild(x: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """``x`` with every leaf replaced by ``leaf(it)``; sharing and unchanged objects stay."""
    return rebuilder(leaf)(x)


def rebuilder(leaf: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """``rebuild`` for several expressions: nodes that they share stay shared in the results."""
    memo: dict[int, tuple[Expr, Expr]] = {}

    def visit(node: Expr) -> Expr:
        done = memo.get(id(node))
        if done is not None:
            return done[1]
        new: Expr
        if isinstance(node, Apply):
            args = tuple(map(visit, node.args))
            same = all(map(is_, args, node.args))
            new = node if same else Apply(node.op, args, node.dtype)
        elif isinstance(node, Cast):
            inner = visit(node.x)
            new = node if inner is node.x else Cast(inner, node.dtype)
        else:
            new = leaf(node)
        memo[id(node)] = (node, new)
        return new

    return visit


_FLOAT_ONLY = FUNCTIONS - {Op.POW} | {Op.RECIP, Op.DIV, Op.FMA, Op.ROUND}

_INT_ONLY = frozenset((Op.SHL, Op.SHR))

_NUMBERS = frozenset(
    (Op.NEG, Op.ABS, Op.FLOOR, Op.ADD, Op.SUB, Op.MUL, Op.POW, Op.FLOORDIV, Op.MOD)
)

_BITS = frozenset((Op.NOT, Op.AND, Op.OR, Op.XOR))


def result_type(op: Op, args: Sequence[DType]) -> DType | None:
    """The dtype of ``op`` on arguments of these dtypes; None where it is not defined on them."""
    if len(args) != op.arity:
        return None
    if op is Op.WHERE:
        return args[1] if args[0].is_bool and args[1] == args[2] else None
    if op is Op.DOT2_ADD:
        return F32 if tuple(args) == (BF16X2, BF16X2, F32) else None
    if op in (Op.DOT4, Op.DOT4_ADD):
        return I32 if args[0].is_quad and args[1].is_quad and (*args[2:],) in ((), (I32,)) else None
    if any(a != args[0] for a in args):
        return None
    if op is Op.QUAD:
        return {I8: I8X4, U8: U8X4}.get(args[0])
    if op in (Op.EVEN, Op.ODD):
        return I32 if args[0].is_quad else None
    if op in (Op.DOT2I, Op.DOT2I_ADD):
        return I32 if args[0] == I32 else None
    if op is Op.PAIR:
        return BF16X2 if args[0] in (F32, BF16) else None
    if op in (Op.LOW, Op.HIGH, Op.DOT2):
        return F32 if args[0] == BF16X2 else None
    if op is Op.TF32:
        return F32 if args[0] == F32 else None
    kind = args[0].category
    if (
        kind in ("pair", "quad")
        or (op in _FLOAT_ONLY and kind != "float")
        or (op in _INT_ONLY and kind != "int")
        or (op in _NUMBERS and kind == "bool")
        or (op in _BITS and kind == "float")
    ):
        return None
    return BOOL if op.compares else args[0]


def fold_takes(op: Op, dtype: DType) -> bool:
    """True if reductions fold values of ``dtype`` with ``op``: bool by max (any), min (all)."""
    if op not in (Op.ADD, Op.MUL, Op.MAX, Op.MIN):
        return False
    return not dtype.is_bool or op in (Op.MAX, Op.MIN)
