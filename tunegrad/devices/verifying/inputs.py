"""The inputs that candidates are verified on: drawn from a seed, in kinds of sets.

    ordinary  normal numbers, far from the denormals; small integers of both signs
    exact     integers up to ``reach`` as floats: sums and products of them are exact, whatever
              their order
    special   ordinary ones among zeros of both signs, large, tiny and non-finite ones; integers
              over their whole range
    spread    numbers of every exponent, of both signs, and each branch of what approximates
              functions with the numbers next to it

Others are patterns, which ``drawing`` makes for the kernels that they show something of:

    level     rows of one value, beside rows of 0 and of what exp makes nothing of: its sums are
              exact, so that one term of many shows
    even      rows of two values, as many of each: means, variances and norms are exact; as small as
              the constants that a kernel adds, which show then
    opposite  the first set with signs changed, so that what a clamp hid is seen

Constants are the same in all sets, so that what is packed from them is: multiples of 1/4 up to 2,
exact as well. Where normal numbers are outside the domain of a kernel (a logarithm's), all numbers
are drawn in another one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tunegrad.devices.job import Array, KernelIO, Parameter
from tunegrad.ir.dtypes import BF16, F32, DType, buffer_dtype
from tunegrad.ir.expr import Apply, Cast, Const, Expr, Load, Op, nodes
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.ir.kernel import Kernel, Param, Store, memoized
from tunegrad.ir.rounding import IN_STEPS, Drawn, has_jumps, roundings

# ---- inputs that are kept
#
# Inputs that the referee drew, kept until they are wanted again: to refer ahead and to prepare
# draws once.


Sets = Sequence[dict[str, Array]]


class KeptInputs:
    """Input sets of the latest kernels by kernel key, within ``limit_bytes``; the oldest go."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._kept: OrderedDict[str, tuple[Sets, int]] = OrderedDict()

    def get(self, kernel_key: str) -> Sets | None:
        """The sets of a kernel; None where they were not kept."""
        found = self._kept.get(kernel_key)
        if found is None:
            return None
        self._kept.move_to_end(kernel_key)
        return found[0]

    def put(self, kernel_key: str, sets: Sets) -> None:
        """Keep the sets of a kernel that has none here, unless they alone are too large."""
        arrays = {
            (a.ctypes.data, a.nbytes) for each in sets for a in each.values()
        }  # the sets share constants
        nbytes = sum(size for _, size in arrays)
        if nbytes > self._limit or kernel_key in self._kept:
            return
        self._kept[kernel_key] = sets, nbytes
        self._bytes += nbytes
        while self._bytes > self._limit:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= gone


# ---- inputs


Sign = Literal[-1, 0, 1]

Kind = Literal["ordinary", "exact", "special", "spread", "level", "even", "opposite"]

KINDS: tuple[Kind, ...] = ("ordinary", "exact", "special")
"""Those that any kernel may have; ``kinds_of`` says which others."""

_ORDER: tuple[Kind, ...] = (*KINDS, "spread", "level", "even", "opposite")

Domain = Literal["normal", "positive", "unit", "large", "small"]

DOMAINS: tuple[Domain, ...] = ("normal", "positive", "unit", "large", "small")
"""Standard normal; 0.5 to 2; -0.9 to 0.9; 4 to 16; normal over 64: the first that is defined."""

MILDEST = 5
"""The last of the levels of special values: see ``Draw``."""

_NONE_LARGE = 3

_SMALL = 8

_STEPS: dict[str, tuple[int, int, float, bool]] = {
    "normal": (1, 8, 0.25, True),
    "positive": (2, 8, 0.25, False),
    "unit": (1, 7, 0.125, True),
    "large": (16, 64, 0.25, False),
    "small": (1, 8, 2.0**-8, True),
}
"""Constants: least and most multiple of a unit, the unit, and whether both signs occur."""

SPANS: tuple[tuple[int, int], ...] = (
    (-149, 128), (-126, 128), (-60, 60), (-30, 30), (-24, 17), (-12, 8), (-6, 4),
)  # fmt: skip
"""Exponents of the numbers of a spread set, the widest first: those of f32, its normal ones, those
whose squares and products are such, and ever nearer to 1.
"""

_CORE = (-8, 8)

_BRANCHES = (
    0.347, 0.5, 0.5493, 0.625, 0.6931472, 0.7071068, 0.7853982, 0.84375, 0.875, 1.0, 1.25,
    1.4142136, 1.5707964, 2.0, 2.857143, 3.1415927, 3.925, 4.0, 5.96, 6.0, 6.2831855, 7.9, 8.0,
    9.0, 9.0109, 10.0, 16.0, 17.0, 17.33, 20.0, 44.36, 80.0, 87.0, 87.33655, 88.0, 88.37626,
    88.72283, 89.0, 103.27893, 103.97208, 104.0, 127.0, 128.0, 709.0, 2.0**23, 2.0**24, 2.0**31,
)  # fmt: skip
"""Points at which approximations change: ln 2 and its half, pi and its parts, the ends of exp in
f32 and f64, of tanh, erf and sigmoid, the square root of 2, and where f32 has no fractions any
more.
"""

_NOT_FINITE = np.array([np.nan, np.inf, -np.inf] * 3)

_ZEROS = np.array([0.0, -0.0])

_LANDMARKS = np.array([1.0, 0.5, 2.0, 3.0])
"""Numbers at which functions have a value of their own, and at which people's code branches."""

_LARGE = {"f16": 2.0**6, "bf16": 2.0**16, "f32": 2.0**16, "f64": 2.0**16}

_TINY = {"f16": 2.0**-13, "bf16": 2.0**-40, "f32": 2.0**-40, "f64": 2.0**-40}
"""Products of two are no denormal numbers of f32, and those of f16 are normal."""

_HELD = {"f16": (-24, 16), "bf16": (-126, 128), "f32": (-149, 128), "f64": (-149, 128)}
"""Exponents that a type has; of f64 those of f32. Instructions that convert to bf16 make zeros of
what is less than its normal numbers.
"""

_STEP = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-23}
"""From 1 to the next number of a type; of f64 as of f32."""

_OFTEN = 64
_MEETINGS = 128
"""Places where special elements of parameters of one size meet, an eighth of all at most. At 31 of
them two are the same infinity in nine of ten sets, at 128 in all but one of 3,000.
"""

_TABLE = 1 << 16
"""Numbers are picked from that many, in memory form: so that 16 random bits are one number."""

_PART = 1 << 17
"""So many are picked at once: the bits fit into a cache."""

_PERIOD = (1 << 22) - 3
"""Longer arrays repeat themselves: to draw 2^26 numbers takes longer than all that is done with
them. A prime, so that no schedule takes elements that far apart for each other.
"""


@dataclass(frozen=True, slots=True)
class Draw:
    """The way in which an array is drawn.

    ``reach``: the greatest integer of an exact set; ``sign``: the one sign that it has, or 0.

    ``between``: the least of the integers, and what they lie below, whatever else is said.

    ``span``: the exponents of a spread set.

    ``level`` of a special set: 0, one element in 64 is not finite, and one in 64 is special where
    those of other parameters of this size are; 1, three elements of each parameter; 2, none; 3,
    three, and no number is large; 4, zeros alone, and small integers; 5, as ordinary. ``spoiled``:
    elements that are not finite where it says three.
    """

    kind: Kind = "ordinary"
    domain: Domain = "normal"
    reach: int = 1
    level: int = 0
    spoiled: int = 3
    sign: Sign = 0
    between: tuple[int, int] | None = None
    span: tuple[int, int] = SPANS[-1]


def seed_of(seed: int, kind: Kind) -> int:
    """The seed that a set of this kind is drawn with, of a kernel's first."""
    return seed + _ORDER.index(kind)


def draw_inputs(
    io: KernelIO,
    seed: int,
    kernel_key: str = "",
    how: Draw | None = None,
    signs: Mapping[str, Sign] | None = None,
    between: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """A flat array for every parameter that a kernel reads; the same in every process for the same
    arguments.

    ``signs`` names those that have one sign, ``between`` the integers that have a range of their
    own. Constants do not depend on them or on ``seed``, only on the kernel and its domain; they
    can not be written to.
    """
    how, signs, between = how or Draw(), signs or {}, between or {}
    return {
        p.name: _constant(p, kernel_key, how.domain)
        if p.role == "const"
        else draw(
            p,
            np.random.default_rng(_entropy(kernel_key, p.name, seed)),
            replace(how, sign=signs.get(p.name, 0), between=between.get(p.name)),
        )
        for p in io.params
        if p.role in ("in", "const", "inout")
    }


@lru_cache(maxsize=4)
def _constant(param: Parameter, kernel_key: str, domain: Domain) -> npt.NDArray[Any]:
    """A kernel's constant; kept, since its other input sets have it, too."""
    rng = np.random.default_rng(_entropy(kernel_key, param.name, 0))
    kind = buffer_dtype(param.dtype)
    plain = not (kind.is_float or kind.is_pair)
    values = draw(param, rng) if plain else _picked(_constants(_number(kind), domain), rng, param)
    values.flags.writeable = False
    return values


def draw(param: Parameter, rng: np.random.Generator, how: Draw | None = None) -> npt.NDArray[Any]:
    """Values for one parameter, as they are stored."""
    how = how or Draw()
    kind = buffer_dtype(param.dtype)
    if kind.is_quad and kind.of is not None:
        each = replace(param, elements=4 * param.elements, dtype=kind.of.name)
        return draw(each, rng, how).view(kind.numpy)
    if kind.is_bool:
        return rng.integers(0, 2, param.elements).astype(bool)
    if kind.is_int:
        return _drawn_integers(param, kind, rng, how)
    if how.kind == "spread":
        return _spread_out(param, rng, how)
    table = _table(_number(kind), how)
    if how.kind == "exact":  # no part repeats itself: each sign is one of its own
        return _picked(table, rng, param)
    part = replace(param, elements=min(param.elements, _PERIOD))
    values = _picked(table, rng, part)
    some = how.kind == "special" and how.level in (0, 1, _NONE_LARGE)
    if some and values.size and not kind.is_pair:
        count = max(3, values.size // _OFTEN) if how.level == 0 else how.spoiled
        at = rng.integers(0, values.size, count)
        if how.level:  # apart, so that no row has two while others have none
            parts = np.linspace(0, values.size, 2 * count).astype(np.int64)
            at = rng.integers(parts[::2], np.maximum(parts[1::2], parts[::2] + 1))
        values[at] = np.resize(_not_finite(kind), count)
        if how.level == 0:  # so that they meet
            count = max(count, min(_MEETINGS, values.size // 8))
            at = np.random.default_rng(values.size).integers(0, values.size, count)
            meeting = np.concatenate([_not_finite(kind)[:6], stored(_ZEROS, kind)])
            values[at] = rng.choice(meeting, count)
    return values if values.size == param.elements else np.resize(values, param.elements)


@lru_cache(maxsize=8)
def _not_finite(kind: DType) -> npt.NDArray[Any]:
    """Infinities and NaN, as they are stored: one of all digits, one as it comes, and the negative
    of the first. What rounds the first as if it were a number makes a zero of it.
    """
    found = stored(_NOT_FINITE, kind)
    bits = found.view(f"u{found.itemsize}")
    bits[0] = (1 << (8 * found.itemsize - 1)) - 1
    bits[6] = ~bits.dtype.type(0)
    return found


def _picked(
    table: npt.NDArray[Any], rng: np.random.Generator, param: Parameter
) -> npt.NDArray[Any]:
    """Elements of a table at random, the two of a pair each by itself."""
    pair = buffer_dtype(param.dtype).is_pair
    count = param.elements * (2 if pair else 1)
    values = np.empty(count, table.dtype)
    for start in range(0, count, _PART):
        part = values[start : start + _PART]
        bits = rng.bit_generator.random_raw(-(-part.size // 4)).view(np.uint16)
        np.take(table, bits[: part.size], out=part, mode="wrap")
    return values.view(np.uint32) if pair else values


def _spread_out(param: Parameter, rng: np.random.Generator, how: Draw) -> npt.NDArray[Any]:
    """Numbers of a spread set: each part of the table as often, in any order, even in few."""
    pair = buffer_dtype(param.dtype).is_pair
    table = _spread(_number(buffer_dtype(param.dtype)), how)
    count = param.elements * (2 if pair else 1)
    part = min(count, _TABLE)
    at = ((np.arange(part) + rng.random(part)) * (_TABLE / max(1, part))).astype(np.int64)
    values = np.resize(table[rng.permutation(at)], count)
    edges = rng.permutation(_edges(_number(buffer_dtype(param.dtype)), how))[: count // 4]
    values[rng.permutation(part)[: edges.size]] = edges
    return values.view(np.uint32) if pair else values


def _drawn_integers(
    param: Parameter, kind: DType, rng: np.random.Generator, how: Draw
) -> npt.NDArray[Any]:
    n = param.elements
    if how.between:
        least, end = how.between
        return rng.integers(min(least, kind.greatest), min(end, kind.greatest + 1), n, kind.numpy)
    if param.bound:
        inside = min(param.bound, kind.greatest + 1)
        indices = rng.integers(0, inside, n).astype(kind.numpy)
        if how.kind != "special":
            return indices
        beyond = (0, param.bound - 1, param.bound, -1, -param.bound, kind.least, kind.greatest)
        ends = np.array([e for e in beyond if kind.least <= e <= kind.greatest], kind.numpy)
        return np.where(rng.integers(0, 2, n) == 0, indices, ends[rng.integers(0, len(ends), n)])
    if how.kind == "exact" and how.sign:
        sign = how.sign if kind.signed else 1
        return (sign * rng.integers(1, _SMALL + 1, n)).astype(kind.numpy)
    if how.kind != "special" or how.level > _NONE_LARGE:
        return rng.integers(-_SMALL if kind.signed else 0, _SMALL + 1, n).astype(kind.numpy)
    values = rng.integers(kind.least, kind.greatest, n, dtype=kind.numpy.str, endpoint=True)
    edges = np.array([0, 1, -1 if kind.signed else 2, kind.least, kind.greatest], kind.numpy)
    return np.where(rng.integers(0, 4, n) == 0, edges[rng.integers(0, len(edges), n)], values)


@lru_cache(maxsize=16)
def _table(kind: DType, how: Draw) -> npt.NDArray[Any]:
    """Numbers that the elements of a set are picked from, as they are stored."""
    if how.kind == "exact":
        values = _integers(1, how.reach, signed(how.domain))
        return stored(how.sign * np.abs(values) if how.sign else values, kind)
    values = _ordinary(how.domain, kind)
    return stored(_specials(values, kind, how) if how.kind == "special" else values, kind)


@lru_cache(maxsize=4)
def _constants(kind: DType, domain: Domain) -> npt.NDArray[Any]:
    least, most, unit, both = _STEPS[domain]
    return stored(_integers(least, most, both) * np.float32(unit), kind)


def _integers(least: int, most: int, both: bool) -> npt.NDArray[np.float32]:
    """A table of the integers from ``least`` to ``most``, half negative where signs differ."""
    at = np.arange(_TABLE)
    values = (at // 2 % (most - least + 1) + least).astype(np.float32)
    return np.where(at % 2 == 1, -values, values) if both else values


def _ordinary(domain: Domain, kind: DType) -> npt.NDArray[Any]:
    """A table of ordinary numbers: the same ones in every process."""
    values: npt.NDArray[np.float64]
    if domain in ("normal", "small"):
        half = np.abs(np.random.default_rng(0).standard_normal(_TABLE // 2))
        values = _away_from_zero(np.concatenate([half, -half])) * (
            1 if domain == "normal" else 2.0**-6
        )
    else:
        uniform = (np.arange(_TABLE) + 0.5) / _TABLE
        if domain == "unit":
            values = _away_from_zero(uniform * 1.8 - 0.9)
        else:
            values = (uniform * 1.5 + 0.5) * (1 if domain == "positive" else 8)
    return values if kind.name == "f64" else values.astype(np.float32)


@lru_cache(maxsize=16)
def _spread(kind: DType, how: Draw) -> npt.NDArray[Any]:
    """A table in order of size: four of nine parts over the whole span, four over the exponents
    that functions vary over, and one at branches.
    """
    least, most = _HELD[kind.name]
    low, high = max(how.span[0], least), min(how.span[1], most)
    if how.domain == "unit":
        high = min(high, 0)
    if how.domain == "large":
        low = max(low, 2)
    core = max(low, _CORE[0]), min(high, _CORE[1])
    rng = np.random.default_rng(0)
    half = _TABLE // 2 if signed(how.domain) else _TABLE
    some = 4 * half // 9
    at_branches = half - 2 * some
    near = 1.0 + np.linspace(-(2.0**-18), 2.0**-18, at_branches // len(_BRANCHES) | 1)
    branches = np.resize(np.outer(_BRANCHES, near).reshape(-1), at_branches)
    outside = (branches < 2.0**low) | (branches >= 2.0**high)
    branches[outside] = 2.0 ** rng.uniform(*core, int(outside.sum()))
    sizes = [2.0 ** np.linspace(a, b, some, endpoint=False) for a, b in ((low, high), core)]
    size = np.sort(np.concatenate([*sizes, branches]))
    size = np.minimum(size, 0.9) if how.domain == "unit" else size
    size = np.minimum(size, 2.0**most * (1 - 2.0**-9))
    return stored(np.concatenate([-size[::-1], size]) if signed(how.domain) else size, kind)


@lru_cache(maxsize=16)
def _edges(kind: DType, how: Draw) -> npt.NDArray[Any]:
    """Each branch, and the numbers of its type next to it on either side: drawn always."""
    least, most = max(how.span[0], _HELD[kind.name][0]), min(how.span[1], _HELD[kind.name][1])
    if how.domain == "unit":
        most = 0
    step = _STEP[kind.name]
    sizes = np.outer(_BRANCHES, 1.0 + step * np.array([0.0, 1.0, -1.0, 0.5, -0.5])).reshape(-1)
    inside = (sizes >= 2.0 ** max(least, 2 if how.domain == "large" else least)) & (
        sizes < 2.0**most
    )
    size = sizes[inside]
    size = np.minimum(size, 0.9) if how.domain == "unit" else size
    return stored(np.concatenate([-size, size]) if signed(how.domain) else size, kind)


def _specials(values: npt.NDArray[Any], kind: DType, how: Draw) -> npt.NDArray[Any]:
    """A table with special values among ordinary ones; negative ones if the domain has them."""
    if how.level >= MILDEST:
        return values
    choice = np.arange(_TABLE) % 32
    values = np.where(choice < 2, 0.0, np.where(choice < 4, -0.0, values)).astype(values.dtype)
    sign = np.sign(values) if signed(how.domain) else np.ones_like(values)
    if how.domain in ("normal", "positive"):
        marks = np.resize(_LANDMARKS[: 4 if signed(how.domain) else 3], len(values))
        values = np.where(choice >> 2 == 3, sign * marks.astype(values.dtype), values)
    if how.level > _NONE_LARGE:
        return values
    values = np.where(choice >> 2 == 1, sign * values.dtype.type(_TINY[kind.name]), values)
    large = sign * values.dtype.type(_LARGE[kind.name])
    tame = how.domain == "unit" or how.level == _NONE_LARGE
    return values if tame else np.where(choice >> 2 == 2, large, values)


def constants_of(domain: Domain) -> Drawn:
    """Known facts of constants of that domain."""
    _, most, unit, both = _STEPS[domain]
    return Drawn(most * unit, unit, both)


def signed(domain: Domain) -> bool:
    """True for a domain with numbers of both signs."""
    return _STEPS[domain][3]


def _number(kind: DType) -> DType:
    """Type of the numbers of a parameter's elements: a pair is two of bf16."""
    return BF16 if kind.is_pair else kind


def stored(values: npt.NDArray[Any], kind: DType) -> npt.NDArray[Any]:
    """Numbers as memory of ``kind``; bf16 ones are cut off, not rounded: they are drawn anyway."""
    if kind.name == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return to_memory(values, kind)


def _away_from_zero(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    small = np.abs(values) < 1e-3  # f16 has denormals below 6e-5
    values[small] = np.copysign(1e-3, values[small])
    return values


def _entropy(kernel_key: str, name: str, seed: int) -> int:
    digest = hashlib.blake2b(f"{kernel_key}\0{name}\0{seed}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


# ---- reaches
#
# Reaches of an exact set: how far its integers go, and whether such a set shows all that an
# ordinary one would.
#
# A kernel of sums, products and clamps at zero in f32 is exact for integers of up to thousands:
# more digits than any shorter type holds. A lost term shows as a wrong sum, an input, a product or
# a sum in a shorter type as a rounded one, and nothing of it is within a tolerance, since there is
# none. Ordinary numbers show no more, and some less.


_REACHES = (128, 16, 4, 1)
"""Greatest integers of an exact set that are tried: bf16 holds 256."""

_WIDE = (1 << 14, 1 << 12, 2560)
"""Those that show every shorter type: one of ten of 1 to 2560 has more than f16's 11 digits."""

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
    """The greatest reach with exact results that shows every shorter type, or None."""
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
    """Score of a reach: fewer folds that round, more exact results; and if all are exact."""
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
