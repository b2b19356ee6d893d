"""Reaches of an exact set: how far its integers go, and whether such a set shows all that an
ordinary one would.

A kernel of sums, products and clamps at zero in f32 is exact for integers of up to thousands: more
digits than any shorter type holds. A lost term shows as a wrong sum, an input, a product or a sum
in a shorter type as a rounded one, and nothing of it is within a tolerance, since there is none.
Ordinary numbers show no more, and some less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tunegrad.devices.verifying.inputs import (
    DOMAINS,
    KINDS,
    Domain,
    Kind,
    Sign,
    constants_of,
    signed,
)
from tunegrad.ir.dtypes import F32
from tunegrad.ir.exact import Drawn, roundings
from tunegrad.ir.expr import Apply, Cast, Const, Expr, Load, Op, nodes
from tunegrad.ir.interpret.error_bounds import IN_STEPS, has_jumps
from tunegrad.ir.kernel import Kernel, Param, Store, memoized

__all__ = ["applied", "clamps_of", "kinds_of", "reaches", "signs_of"]

_REACHES = (128, 16, 4, 1)
"""Greatest integers of an exact set that are tried: bf16 holds 256."""

_WIDE = (1 << 14, 1 << 12, 2560)
"""Those that show every shorter type: one integer in ten of 1 to 2560 has more digits than the
11 of f16.
"""

_PLAIN = frozenset((Op.ADD, Op.SUB, Op.MUL, Op.FMA, Op.NEG))
_CLAMPS = frozenset((Op.MAX, Op.MIN))
_OPPOSITE: Mapping[Sign, Sign] = {1: -1, -1: 1}


def kinds_of(kernel: Kernel) -> tuple[Kind, ...]:
    """The input sets of a kernel, the one that is timed first.

    No ordinary one where an exact one shows all. A spread one where each element depends on few
    numbers, or a function of them; the patterns where a kernel has what they show.
    """
    known: tuple[Kind, ...] = KINDS if _wide(kernel) is None else ("exact", "special")
    if not any(p.role == "in" and p.dtype.is_float for p in kernel.params):
        return known
    sums = [r for r in kernel.reduces if r.op is Op.ADD and r.dtype.is_float]
    over_exp = [any(x.op is Op.EXP for x in applied(r.expr)) for r in sums]
    functions = any(x.op in IN_STEPS for s in kernel.stages for x in applied(s.expr))
    wanted: tuple[tuple[Kind, bool], ...] = (
        ("spread", (functions or not kernel.reduces) and _spreads(kernel)),
        ("level", any(over_exp)),
        ("even", functions and not all(over_exp)),
        ("opposite", bool(clamps_of(kernel))),
    )
    return (*known, *(kind for kind, has in wanted if has))


def _spreads(kernel: Kernel) -> bool:
    """True when numbers of every size tell something: nothing jumps, and no products of two numbers
    are added up, of which the largest would hide all others.
    """
    products = (
        x
        for r in kernel.reduces
        for x in applied(r.expr)
        if x.op in (Op.MUL, Op.FMA) and x.args[0] != x.args[1] and not _by_a_constant(x)
    )
    return not has_jumps(kernel) and not any(products)


def _by_a_constant(x: Apply) -> bool:
    return any(isinstance(a, Const) for a in x.args[:2])


@memoized(64)
def clamps_of(kernel: Kernel) -> frozenset[float]:
    """The constants that results are clamped at; such a result hides what was clamped."""
    return frozenset(
        float(a.value)
        for s in kernel.stages
        if isinstance(s, Store)
        for x in applied(s.expr)
        if x.op in _CLAMPS and x.dtype.is_float
        for a in x.args
        if isinstance(a, Const)
    )


def reaches(kernel: Kernel, domain: Domain) -> Iterator[tuple[int, bool]]:
    """Reaches of an exact set, the best first, and whether all results are exact.

    One that shows every shorter type, where there is one. Then those with the fewest rounded fold
    steps come first; among these, those with the most exact results, and then the greatest.
    """
    wide = _wide(kernel)
    if wide is not None:
        yield wide, True
    scores = {reach: _score(kernel, domain, reach) for reach in _REACHES}
    for reach in sorted(_REACHES, key=lambda reach: scores[reach][:2], reverse=True):
        yield reach, scores[reach][2]


def signs_of(kernel: Kernel, domain: Domain) -> dict[str, Sign]:
    """The one sign on which the numbers of an input show most in an exact set; an input without an
    entry has both.

    A maximum (or minimum) that starts at zero, or takes padding in, is seen on negative (positive)
    numbers. A term that is clamped at zero is seen where it is not zero: else its loss is hidden.
    """
    if not signed(domain):
        return {}
    folds = {r.op for r in kernel.reduces}
    if folds & _CLAMPS:
        return {p.name: -1 if Op.MAX in folds else 1 for p in kernel.params}
    terms = (x for r in kernel.reduces for x in applied(r.expr))
    wanted = set(_raising([(x, 1 if x.op is Op.MAX else -1) for x in terms if _clamps_at_zero(x)]))
    return {name: sign for name, sign in wanted if (name, _OPPOSITE[sign]) not in wanted}


def _raising(stack: list[tuple[Expr, Sign]]) -> Iterator[tuple[str, Sign]]:
    """Parameters that are added up in expressions, each with the sign that the sum gives it beside
    that of its expression; no products.

    Shared parts are visited once for each sign.
    """
    seen = set[tuple[int, Sign]]()
    while stack:
        x, sign = stack.pop()
        if (id(x), sign) in seen:
            continue
        seen.add((id(x), sign))
        match x:
            case Load():
                yield x.param, sign
            case Apply(op=Op.ADD | Op.MAX | Op.MIN):
                stack += [(arg, sign) for arg in x.args]
            case Apply(op=Op.SUB, args=(first, second)):
                stack += [(first, sign), (second, _OPPOSITE[sign])]
            case Apply(op=Op.NEG, args=(arg,)):
                stack.append((arg, _OPPOSITE[sign]))


def applied(x: Expr) -> Iterator[Apply]:
    """Every operation of an expression, once; shared ones are visited once."""
    return (node for node in nodes(x) if isinstance(node, Apply))


@memoized(64)
def _wide(kernel: Kernel) -> int | None:
    """The greatest reach that shows every shorter type, and for which all results are exact; None:
    there is none.
    """
    if not _plain(kernel):
        return None
    return next((reach for reach in _WIDE if _score(kernel, DOMAINS[0], reach)[2]), None)


def _plain(kernel: Kernel) -> bool:
    """True for a kernel that takes f32, and makes sums and products of it, clamped at zero if at
    all.

    Its domain is that of normal numbers: everything has a sum and a product.
    """
    roles = {p.role for p in kernel.params}
    sums = (
        "in" in roles
        and all(p.dtype == F32 for p in kernel.params)
        and all(r.op is Op.ADD for r in kernel.reduces)
    )
    return sums and all(_keeps_digits(x) for s in kernel.stages for x in nodes(s.expr))


def _keeps_digits(x: Expr) -> bool:
    if isinstance(x, Cast):
        return False
    if not isinstance(x, Apply) or x.op in _PLAIN:
        return True
    return _clamps_at_zero(x)


def _clamps_at_zero(x: Apply) -> bool:
    return x.op in _CLAMPS and any(isinstance(a, Const) and a.value == 0 for a in x.args)


def _score(kernel: Kernel, domain: Domain, reach: int) -> tuple[int, int, bool]:
    """Score of a reach: fewer fold steps that round, more exact results; and whether all are
    exact.
    """
    signs = signs_of(kernel, domain)
    drawn = {
        p.name: _of_an_exact_set(p, reach, domain, signs.get(p.name, 0))
        for p in kernel.params
        if p.role != "out"
    }
    found = roundings(kernel, drawn).values()
    exact = [r.count == 0 for r in found]
    return -sum(r.terms for r in found), sum(exact), all(exact)


def _of_an_exact_set(p: Param, reach: int, domain: Domain, sign: Sign) -> Drawn:
    if not (p.dtype.is_float or p.dtype.is_pair):
        return Drawn(8.0, 1.0)
    return (
        constants_of(domain)
        if p.role == "const"
        else Drawn(float(reach), 1.0, signed(domain) and not sign)
    )
