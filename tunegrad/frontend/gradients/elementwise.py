"""Local derivatives of elementwise operations: what flows to each source, given what flows in."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType

from tunegrad.ir import graph
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp, Node

from ..nodes.elementwise import binary, compare, unary, where
from .cotangent import Cotangent, is_full, narrow

Flow = tuple[Cotangent | None, ...]
"""For each source, what flows to it."""
Rule = Callable[[Node, Cotangent], Flow]


def _neg(_: Node, g: Cotangent) -> Flow:
    """d(-x) = -dx"""
    return (_negated(g),)


def _exp(n: Node, g: Cotangent) -> Flow:
    """d(e^x) = e^x dx"""
    return (g.times(n),)


def _log(n: Node, g: Cotangent) -> Flow:
    """d(log x) = dx / x"""
    return (_divided(g, n.srcs[0]),)


def _log2(n: Node, g: Cotangent) -> Flow:
    """d(log2 x) = dx / (x log 2)"""
    return (_divided(g, binary(Op.MUL, n.srcs[0], math.log(2))),)


def _log10(n: Node, g: Cotangent) -> Flow:
    """d(log10 x) = dx / (x log 10)"""
    return (_divided(g, binary(Op.MUL, n.srcs[0], math.log(10))),)


def _sqrt(n: Node, g: Cotangent) -> Flow:
    """d(sqrt x) = dx / (2 sqrt x)"""
    return (_divided(g, binary(Op.MUL, n, 2.0)),)


def _recip(n: Node, g: Cotangent) -> Flow:
    """d(1 / x) = -(1 / x)^2 dx"""
    return (g.times(unary(Op.NEG, binary(Op.MUL, n, n))),)


def _tanh(n: Node, g: Cotangent) -> Flow:
    """d(tanh x) = (1 - tanh(x)^2) dx"""
    return (g.times(binary(Op.SUB, 1.0, binary(Op.MUL, n, n))),)


def _erf(n: Node, g: Cotangent) -> Flow:
    """d(erf x) = 2 / sqrt(pi) e^(-x^2) dx"""
    x = n.srcs[0]
    power = graph.elementwise(Op.EXP, unary(Op.NEG, binary(Op.MUL, x, x)))
    return (g.times(binary(Op.MUL, power, 2 / math.sqrt(math.pi))),)


def _sin(n: Node, g: Cotangent) -> Flow:
    """d(sin x) = cos(x) dx"""
    return (g.times(graph.elementwise(Op.COS, n.srcs[0])),)


def _cos(n: Node, g: Cotangent) -> Flow:
    """d(cos x) = -sin(x) dx"""
    return (g.times(unary(Op.NEG, graph.elementwise(Op.SIN, n.srcs[0]))),)


def _tan(n: Node, g: Cotangent) -> Flow:
    """d(tan x) = (1 + tan(x)^2) dx"""
    return (g.times(binary(Op.ADD, binary(Op.MUL, n, n), 1.0)),)


def _abs(n: Node, g: Cotangent) -> Flow:
    """d|x| = sign(x) dx, 0 at zero"""
    x = n.srcs[0]
    below = where(compare("lt", x, 0.0), graph.full(-1, x.shape, x.dtype), 0.0)
    return (g.times(where(compare("lt", 0.0, x), 1.0, below)),)


def _none(n: Node, _: Cotangent) -> Flow:
    """Steps are level: nothing flows"""
    return (None,) * len(n.srcs)


def _add(_: Node, g: Cotangent) -> Flow:
    """d(a + b) = da + db"""
    return g, g


def _sub(_: Node, g: Cotangent) -> Flow:
    """d(a - b) = da - db"""
    return g, _negated(g)


def _mul(n: Node, g: Cotangent) -> Flow:
    """d(a b) = b da + a db"""
    a, b = n.srcs
    return g.times(b), g.times(a)


def _div(n: Node, g: Cotangent) -> Flow:
    """d(a / b) = da / b - (a / b) db / b"""
    _, b = n.srcs
    part = _divided(g, b)
    return part, _negated(part.times(n))


def _mod(n: Node, g: Cotangent) -> Flow:
    """d(a mod b) = da - floor(a / b) db"""
    return g, _negated(g.times(graph.elementwise(Op.FLOORDIV, *n.srcs)))


def _max(n: Node, g: Cotangent) -> Flow:
    """d(max(a, b)): to the larger one; halves to equal ones"""
    a, b = n.srcs
    return g.times(_share(a, b, compare("lt", a, b))), g.times(_share(a, b, compare("lt", b, a)))


def _min(n: Node, g: Cotangent) -> Flow:
    """d(min(a, b)): to the smaller one; halves to equal ones"""
    a, b = n.srcs
    return g.times(_share(a, b, compare("lt", b, a))), g.times(_share(a, b, compare("lt", a, b)))


def _share(a: Node, b: Node, lost: Node) -> Node:
    """0 where one has lost, 1/2 where they are equal, else 1."""
    won = where(compare("eq", a, b), graph.full(0.5, a.shape, a.dtype), 1.0)
    return where(lost, 0.0, won)


def _pow(n: Node, g: Cotangent) -> Flow:
    """d(a^b) = b a^(b-1) da + a^b log(a) db; 0 where b, or where a and b >= 0, is zero"""
    a, b = n.srcs
    less = binary(Op.SUB, b, 1.0)
    if (number := narrow(b)).op is GraphOp.FULL:  # derivatives of whole powers end
        if is_full(number, 0):
            return None, None
        less = graph.full(number.arg[2] - 1, b.shape, b.dtype)  # type: ignore[index]
    slope = binary(Op.MUL, b, graph.elementwise(Op.POW, a, less))
    to_base = where(compare("eq", b, 0.0), 0.0, slope)
    flat = graph.elementwise(Op.AND, compare("eq", a, 0.0), compare("le", 0.0, b))
    growth = binary(Op.MUL, n, graph.elementwise(Op.LOG, a))
    return g.times(to_base), g.times(where(flat, 0.0, growth))


def _where(n: Node, g: Cotangent) -> Flow:
    """d(where(c, a, b)) = where(c, da, 0) + where(c, 0, db)"""
    c, whole = n.srcs[0], g.node()
    return None, Cotangent.of(where(c, whole, 0.0)), Cotangent.of(where(c, 0.0, whole))


def _fma(n: Node, g: Cotangent) -> Flow:
    """d(a b + c) = b da + a db + dc"""
    a, b, _ = n.srcs
    return g.times(b), g.times(a), g


def _negated(g: Cotangent) -> Cotangent:
    return g.times(graph.full(-1, g.shape, g.factors[0].dtype))


def _divided(g: Cotangent, by: Node) -> Cotangent:
    return Cotangent.of(binary(Op.DIV, g.node(), by))


ELEMENTWISE: MappingProxyType[Op, Rule] = MappingProxyType(
    {
        Op.NEG: _neg, Op.EXP: _exp, Op.LOG: _log, Op.LOG2: _log2, Op.LOG10: _log10, Op.SQRT: _sqrt,
        Op.RECIP: _recip, Op.TANH: _tanh, Op.ERF: _erf, Op.SIN: _sin, Op.COS: _cos,
        Op.TAN: _tan,
        Op.ABS: _abs, Op.FLOOR: _none, Op.ROUND: _none, Op.FLOORDIV: _none, Op.ADD: _add,
        Op.SUB: _sub, Op.MUL: _mul, Op.DIV: _div, Op.MOD: _mod, Op.MAX: _max, Op.MIN: _min,
        Op.POW: _pow, Op.WHERE: _where, Op.FMA: _fma,
    }
)  # fmt: skip
