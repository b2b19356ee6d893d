"""The numbers that plans are validated in: floats are elements of a prime field, all else is exact.

    add, sub, mul, neg, fma, dot2   in the field of P = 2^31 - 1 elements
    div, recip                      multiplication by an inverse; what is divided by 0 is 0
    a literal                       m * 2^e is that element, so products of literals are theirs
    max, min, lt, abs               by an order of the field's elements, another one for each sample
    exp, log, sqrt, tanh, ...       hashes of their arguments, right at small integers
    literals, positions, integers   numbers of their own type, exactly, for as long as an operation
    as floats                       meets nothing else; then the field's element that they are
    casts that lose digits, tf32    hashes: what the narrower type has stays what it is
    NaN                             an element that operations give where an argument is it
    integers, bools, words          what they are

So a sum in another order, a product of parts, a tile of Winograd's are equal bit by bit, and a term
that is missing, or read elsewhere, makes another number. Two different polynomials of degree d are
equal at a random point with a probability of d / P at most (Schwartz and Zippel).

What 16 bits hold are the elements that f16 and bf16 numbers are, so that what was rounded is
rounded no more. Where graphs are compared, some elements are infinite or a zero of either sign.

An order is ``symmetric(scale * x)`` with a random ``scale``: max is associative, commutative and
idempotent in it, and ``min(a, b) = -max(-a, -b)``. A literal has a random place in it, so that a
clamp hides no sample's value from all others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from math import isfinite, isnan
from typing import Any
from typing import cast as typed

import numpy as np

from tunegrad.lazy import dataclass

from ..dtypes import BF16, F16, F32, I8, I32, U8, DType
from ..expr import Const, Op
from ..interpret.numeric import FOLDS, Array, compute, convert, to_compute

P = (1 << 31) - 1
_HALF = P >> 1
_NAN = 1234567891
_U = np.uint64
_P, _29, _31, _32 = _U(P), _U(29), _U(31), _U(32)
_MIX = _U(0x9E3779B97F4A7C15), _U(0xD6E8FEB86659FD93), _U(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Floats of which some are made of literals and positions alone: elements of the field, and
    those numbers themselves, in their compute type, where ``known``; of shapes that broadcast.

    ``residues`` are None where all are known.
    """

    residues: Array | None
    exact: Array
    known: Array

    @property
    def ndim(self) -> int:
        return self.exact.ndim

    @property
    def all_known(self) -> bool:
        return self.residues is None


Number = Array | Const | Known
"""Values of one dtype: a literal, or an array of as many dimensions as there are axes."""


def deep(x: Any, depth: int) -> Any:
    """An array, or numbers that are known, with dimensions of 1 after its own."""
    if isinstance(x, Known):
        residues = None if x.residues is None else deep(x.residues, depth)
        return Known(residues, deep(x.exact, depth), deep(x.known, depth))
    return x.reshape(x.shape + (1,) * (depth - x.ndim)) if x.ndim < depth else x


def spread(x: Array, shape: tuple[int, ...]) -> Array:
    """An array in a shape that it broadcasts to."""
    return x if x.shape == shape else np.broadcast_to(x, shape)


_RAREST = 1 << 31
"""Numbers that are drawn for an element, of which one spoils it."""
_FEW = 512
"""Elements for which one division each costs less than three passes over an array."""
_SHARED, _MANY, _SIDE = 1 << 11, 1 << 16, 32
"""Elements of arrays that are kept for the other side of a comparison, more than the first number,
where looking them up costs less than an operation; and how many arrays these are, at most."""


def _folded(x: Array, times: int = 1) -> Array:
    """Numbers below 2^64, which are lost, as others that are the same modulo P: below 2^34, of ones
    below 2^35 below 2^31 + 16, which all but comparisons take as they are.
    """
    if x.size <= times * _FEW:
        x %= _P
        return x
    for _ in range(times):
        y = x >> _31
        x &= _P
        x += y
    return x


def _reduced(x: Array) -> Array:
    """Numbers below 2^35 modulo P."""
    if x.size <= _FEW:
        return np.asarray(x % _P)
    x = _folded(x.copy())
    return np.minimum(x, x - _P)  # below 0 is far above


def _add(a: Array, b: Array) -> Array:
    return _folded(a + b)


def _neg(a: Array) -> Array:
    return _folded(_U(2 * P) - a)


def _sub(a: Array, b: Array) -> Array:
    return _folded(a + (_U(2 * P) - b))


def _mul(a: Array, b: Array) -> Array:
    return _folded(a * b, 2)


def _power(a: Array, e: int) -> Array:
    found = np.ones_like(a)
    while e:
        if e & 1:
            found = _mul(found, a)
        a, e = _mul(a, a), e >> 1
    return found


def _squared(a: Array, times: int) -> Array:
    for _ in range(times):
        a = _mul(a, a)
    return a


def _inverse(a: Array) -> Array:
    """1 / a; of few numbers, made once: both sides of a comparison divide by the same ones."""
    return _to_inverse(a) if a.size > _SHARED else _inverse_of(a.tobytes(), a.shape)


@lru_cache(maxsize=16)
def _inverse_of(numbers: bytes, shape: tuple[int, ...]) -> Array:
    found = _to_inverse(np.frombuffer(numbers, np.uint64).reshape(shape))
    found.flags.writeable = False
    return found


def _to_inverse(a: Array) -> Array:
    """a^(P - 2), whose digits are 29 ones, a zero and a one."""
    ones, known = a, {1: a}
    for n in (1, 2, 4, 8):
        ones = known[2 * n] = _mul(_squared(ones, n), ones)
    for n in (8, 4, 1):
        ones = _mul(_squared(ones, n), known[n])
    return _mul(_squared(ones, 2), a)


def sum_of_products(products: Sequence[Array]) -> Array:
    """The sum of fewer than 2^30 products of two numbers below 2^32, which are lost."""
    total = _folded(products[0])
    for x in products[1:]:
        total += _folded(x)
    return np.asarray(total % _P)


_FIELD: dict[Op, Callable[..., Array]] = {
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.NEG: _neg,
    Op.FMA: lambda a, b, c: _folded(a * b + c, 2),
    Op.DIV: lambda a, b: _mul(a, _inverse(b)),
    Op.RECIP: _inverse,
}
"""Operations of the field."""

_EITHER_WAY = frozenset((Op.ADD, Op.MUL))
"""Operations that give the same for their arguments in any order."""


def symmetric(x: Array) -> Array:
    """Elements of the field as integers around 0."""
    y = x.astype(np.int64)
    return np.where(y > _HALF, y - P, y)


def _mixed(x: Array) -> Array:
    """Bits of a number, which are lost, spread over the upper half of 64."""
    x *= _MIX[0]
    x ^= x >> _32
    x *= _MIX[1]
    x ^= x >> _29
    x *= _MIX[2]
    return x


def _hashed(seed: int, first: Array, *rest: Array) -> Array:
    start = (seed * 0x9E3779B97F4A7C15 + 0x1234567) & (2**64 - 1)
    x = _mixed(first + _U(start ^ (start >> 31)))
    for a in rest:
        x = _mixed(a + (x ^ (x >> _31)))
    return x


def drawn(seed: int, count: int) -> Array:
    """So many numbers of 64 bits, which one in 2^32 of seeds has again."""
    return _hashed(seed, np.arange(count, dtype=np.uint64))


@lru_cache(maxsize=1024)
def _scale(samples: int, seed: int) -> Array:
    """An element of the field, not 0, for each sample."""
    found = drawn(seed, samples) % (_P - _U(1)) + _U(1)
    found.flags.writeable = False
    return found


@cache
def embedded(value: float) -> int:
    """The element that a finite literal is."""
    num, den = value.as_integer_ratio()
    return num % P * pow(den, -1, P) % P


@lru_cache(maxsize=1024)
def _literal(value: float, depth: int) -> Array:
    """The element that a finite literal is, in so many dimensions."""
    found = np.full((1,) * depth, embedded(value), np.uint64)
    found.flags.writeable = False
    return found


@cache
def _everywhere(depth: int) -> Array:
    """A mask of all, in so many dimensions."""
    found = np.ones((1,) * depth, np.bool_)
    found.flags.writeable = False
    return found


@cache
def _seed(name: str) -> int:
    return int.from_bytes(name.encode()[:7], "big")


def leaf(seed: int, at: Array, dtype: DType) -> Array:
    """Values of a tensor at elements ``at``: any numbers, of integers mostly small ones."""
    h = _hashed(seed + 1, at.view(np.uint64))
    if dtype.is_half:
        some = representable(dtype.name)
        return some[h % _U(len(some))]
    if dtype.is_float:
        return np.asarray(h >> _U(33))
    if dtype.is_pair:
        high = _reduced((h & _U(0xFFFFFFFF)) >> _U(1))
        return np.asarray(_reduced(h >> _U(33)) | (high << _U(31)))
    if dtype.is_bool:
        return np.asarray(h >> _U(63), np.bool_)
    if dtype.is_quad:
        return (h >> _U(32)).astype(np.uint32).view(dtype.numpy)
    return _integers(h, dtype)


def _integers(h: Array, dtype: DType) -> Array:
    """Integers of all sizes: below 4, 16, 128, any; a quarter of them negative."""
    spans = 1 << np.array([2, 4, 7, dtype.bits - 2])
    size = (h & _U(3)).view(np.int64)
    x = (h >> _U(2)).view(np.int64) & (spans - 1)[size]
    if dtype.signed:
        x -= (spans >> 2)[size]
    return np.asarray(x.astype(dtype.numpy))


@cache
def representable(name: str) -> Array:
    """The elements that finite numbers of f16, bf16 or tf32 are, in order."""
    if name == "tf32":
        found = (np.arange(1 << 19, dtype=np.uint32) << np.uint32(13)).view(np.float32)
    else:
        dtype = F16 if name == "f16" else BF16
        found = to_compute(np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy), dtype)
    return np.unique(residues(found[np.isfinite(found)]))


def residues(exact: Array) -> Array:
    """The elements that finite floats are: m * 2^e, and 2^31 is 1."""
    fraction, power = np.frexp(exact.astype(np.float64))
    whole = np.ldexp(fraction, 53).astype(np.int64) % P
    shift = ((power.astype(np.int64) - 53) % 31).astype(np.uint64)
    return _reduced(_folded(whole.astype(np.uint64) << shift))


def _rounded(x: Array, name: str) -> Array:
    """Numbers as what they round to: any one that a type has, those that it has themselves, and the
    opposite of what their opposite does.
    """
    x = _reduced(x)
    minus = x > _U(_HALF)
    x = np.where(minus, _P - x, x)
    h = _hashed(_seed(name), x)
    if name == "f32":
        y = np.where(x < _U(1 << 24), x, h >> _U(33))
    else:
        some = representable(name)
        at = np.minimum(np.searchsorted(some, x), len(some) - 1)
        y = np.where(some[at] == x, x, some[h % _U(len(some))])
    return np.where(minus, _reduced(_neg(y)), y)


_SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
_SMALL = 64
_DIGITS = {"f64": 53, "f32": 24}
"""Binary digits of floats: integers of so many are floats."""


@cache
def _at_integers(op: Op, dtype: DType) -> tuple[Array, Array]:
    """Values of a function at small integers, and a mask of those that are numbers."""
    x = np.arange(-_SMALL, _SMALL + 1).astype(dtype.numpy)
    y = compute(op, x).astype(np.float64)
    known = np.isfinite(y)
    return np.array(
        [embedded(v) if ok else 0 for v, ok in zip(y.tolist(), known, strict=True)], np.uint64
    ), known


class Numbers:
    """Arithmetic for some samples: dimension 0 of every array is theirs, or 1."""

    def __init__(
        self,
        scale: Array,
        *,
        exactly: bool = False,
        rounds: bool = False,
        narrow: DType | None = None,
        on_purpose: bool = False,
        spoiled: Array | None = None,
        rarely: int = 1,
    ) -> None:
        """``scale``: one element of the field, not 0, for each sample.

        ``exactly``: numbers made of literals, positions and integers are known, each by itself;
        otherwise literals are, as long as they meet nothing else, and the rest is in the field:
        without ``rounds`` so are sums, products and quotients of literals.
        ``rounds``: so are they rounded where they are cast to 16 bits. ``narrow``: the type that
        they are rounded to where they meet the field. ``on_purpose``: what is compared with what
        rounds otherwise on purpose: roundings of the field's elements are nothing. ``spoiled``: of
        which samples one element in ``rarely`` of a tensor of floats, a power of two, is no number.
        """
        self.scale, self.exactly, self.rounds, self.narrow = scale, exactly, rounds, narrow
        self.on_purpose, self.spoiled, self.rarely = on_purpose, spoiled, min(rarely, _RAREST)
        self.plain = not exactly and narrow is None and spoiled is None
        self.terms: Mapping[int, Array] = {}
        """By how many terms a reduction has, the row-major positions of those that count."""
        self.turn = 0, 0
        """Of the orders of the graph's and a kernel's axes, those in which these are counted."""
        self.patient = False
        """True if reductions are worked out that take a minute."""
        self._leaves: dict[tuple[object, ...], tuple[Array, Array]] = {}
        self._kept: dict[tuple[object, ...], tuple[Array, Sequence[Array]]] = {}
        self._masks: dict[tuple[object, ...], Array] = {}
        self._widened: dict[int, tuple[Array, Array]] = {}

    @cached_property
    def unscale(self) -> Array:
        """Factor that undoes ``scale``."""
        return _inverse(self.scale)

    @staticmethod
    def drawn(
        samples: int,
        seed: int,
        *,
        exactly: bool = False,
        rounds: bool = False,
        narrow: DType | None = None,
        on_purpose: bool = False,
        spoiled: int = 0,
        rarely: int = 1,
    ) -> Numbers:
        """Orders for so many samples, of which the last ``spoiled`` ones are so."""
        return Numbers(
            _scale(samples, seed),
            exactly=exactly,
            rounds=rounds,
            narrow=narrow,
            on_purpose=on_purpose,
            spoiled=np.arange(samples) >= samples - spoiled if spoiled else None,
            rarely=rarely,
        )

    def of(self, chosen: Array) -> Numbers:
        """Those of some of the samples; these same numbers where it is all, in order."""
        if len(chosen) == len(self.scale) and (chosen == np.arange(len(chosen))).all():
            return self
        found = Numbers(
            self.scale[chosen],
            exactly=self.exactly,
            rounds=self.rounds,
            narrow=self.narrow,
            on_purpose=self.on_purpose,
            spoiled=None if self.spoiled is None else self.spoiled[chosen],
            rarely=self.rarely,
        )
        found.terms, found.turn, found.patient = self.terms, self.turn, self.patient
        return found

    def leaf(self, seed: int, at: Array, dtype: DType) -> Array:
        """Values of a tensor at elements ``at``, as ``leaf``; of spoiled samples, some NaN."""
        ends = (at.item(0), at.item(-1)) if at.size else ()
        key = seed, dtype.name, at.shape, ends
        there, before = self._leaves.get(key, (None, at))
        if there is at or (there is not None and (there == at).all()):
            return before
        found = leaf(seed, at, dtype)
        if self.spoiled is not None and dtype.is_float:
            found = np.where(self._spoils(seed, at)[0], _U(_NAN), found)
        if at.size <= _MANY:
            if len(self._leaves) > _SIDE:
                self._leaves.clear()
            self._leaves[key] = at, found
        return found

    def once(self, what: Hashable, xs: Sequence[Array], made: Callable[..., Array]) -> Array:
        """The result for some arrays, which was made before where these are the same objects: most
        often both sides of a comparison work with them.
        """
        if not _SHARED < xs[0].size <= _MANY:
            return made(*xs)
        ids = map(id, xs)
        key = what, *(sorted(ids) if what in _EITHER_WAY else ids)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) > _SIDE:
                self._kept.clear()
            found = self._kept[key] = made(*xs), xs  # holding the arrays keeps their ids
        return found[0]

    def _alike(self, mask: Array) -> Array:
        """The mask of these values that was met first, as ``once`` asks for it."""
        if mask.size > _MANY >> 2:
            return mask
        return self._masks.setdefault((mask.shape, mask.tobytes()), mask)

    def special_leaf(self, seed: int, at: Array, dtype: DType) -> Number:
        """The same, where what is no element of the field is known: NaN, infinities, both zeros."""
        found = leaf(seed, at, dtype)
        if self.spoiled is None or not dtype.is_float:
            return found
        known, h = self._spoils(seed, at)
        exact = np.broadcast_to(_SPECIAL[h // _U(self.rarely) % _U(len(_SPECIAL))], known.shape)
        return self._joined(exact.astype(dtype.compute.numpy), known, found)

    def _spoils(self, seed: int, at: Array) -> tuple[Array, Array]:
        """Elements that are no element of the field, and numbers that are drawn for each."""
        h = _hashed(seed + 7919, at.view(np.uint64)) >> _U(33)
        one = h & _U(self.rarely - 1) == 0
        return one & deep(self.spoiled, at.ndim), h

    def known(self, exact: Array) -> Known:
        """Floats that are known."""
        return Known(None, exact, _everywhere(exact.ndim))

    def residues(self, exact: Array) -> Array:
        """The elements that floats are."""
        wide = self._narrowed(exact).astype(np.float64)
        finite = np.isfinite(wide)
        found = residues(np.where(finite, wide, 0.0))
        if not finite.all():
            top = deep(_mul(np.full(1, _HALF, np.uint64), self.unscale), found.ndim)
            ends = np.where(wide > 0, top, _reduced(_neg(top)))
            found = np.where(finite, found, np.where(np.isnan(wide), _U(_NAN), ends))
        return np.asarray(found)

    def _narrowed(self, exact: Array) -> Array:
        if self.narrow is None:
            return exact
        narrow = convert(exact, self.narrow)
        return np.where(np.isfinite(narrow), narrow, exact)

    def _parts(self, x: Number, dtype: DType, depth: int) -> tuple[Array, Array]:
        """The numbers of ``x`` that are known, and where they are."""
        if isinstance(x, Known):
            return deep(x.exact, depth), deep(x.known, depth)
        if isinstance(x, Const):
            return np.full((1,) * depth, x.value, dtype.numpy), _everywhere(depth)
        return np.zeros((1,) * depth, dtype.numpy), np.zeros((1,) * depth, np.bool_)

    def where(self, mask: Array, a: Number, b: Number, dtype: DType, depth: int) -> Number:
        """``a`` where the mask holds, else ``b``; values of one compute type."""
        xs = self._alike(mask), self.array(a, dtype, depth), self.array(b, dtype, depth)
        found = self.once("where", xs, np.where)
        if not self.exactly or not dtype.is_float:
            return found
        (ea, ka), (eb, kb) = (self._parts(x, dtype, depth) for x in (a, b))
        known = np.where(mask, ka, kb)
        return Known(found, np.where(mask, ea, eb), known) if known.any() else found

    def _joined(self, exact: Array, known: Array, other: Array | None) -> Number:
        """Numbers that are known where they are, elements of the field elsewhere."""
        if other is None:
            return Known(None, exact, known)
        return Known(np.where(known, self.residues(exact), other), exact, known)

    def array(self, x: Number, dtype: DType, depth: int) -> Array:
        """A literal as an array; an array as it is, and what is known in part as one."""
        if isinstance(x, np.ndarray):
            return x if x.ndim == depth else np.asarray(deep(x, depth))
        if isinstance(x, Known):
            residues = self.residues(x.exact) if x.residues is None else x.residues
            return np.asarray(deep(residues, depth))
        one = (1,) * depth
        if dtype.is_float:
            value = float(x.value)
            if isnan(value):
                return np.full(one, _NAN, np.uint64)
            if not isfinite(value):
                top = _mul(np.full(1, _HALF, np.uint64), self.unscale)
                return np.asarray(deep(top if value > 0 else _neg(top), depth))
            if self.narrow is not None:
                return self.residues(np.full(one, value, dtype.numpy))
            return _literal(value, depth)
        if dtype.is_pair:
            low, high = (
                embedded(float(compute(half, np.asarray(x.value, np.uint32))))
                for half in (Op.LOW, Op.HIGH)
            )
            return np.full(one, low | high << 31, np.uint64)
        return np.full(one, x.value, dtype.numpy)

    def key(self, x: Array) -> Array:
        """Keys of elements of the field in the order: that of ``symmetric``, from 0 on."""
        y = x * deep(self.scale, x.ndim)
        y += _U(_HALF)
        return np.asarray(y % _P) if y.size <= _FEW else _reduced(_folded(y, 2))

    def of_field(self, op: Op, args: Sequence[Number], dtype: DType, depth: int) -> Array | None:
        """An operation of the field on elements of it and finite literals: what most are."""
        run = _FIELD.get(op)
        if run is None or dtype.category != "float" or not self.plain:
            return None
        xs, arrays = list(args), 0
        for i, a in enumerate(args):
            if isinstance(a, np.ndarray):
                if a.ndim != depth:
                    return None
                arrays += 1
            elif isinstance(a, Const) and isfinite(a.value):
                xs[i] = _literal(float(a.value), depth)
            else:
                return None
        return self.once(op, typed(list[Array], xs), run) if arrays else None

    def apply(
        self, op: Op, args: Sequence[Number], dtypes: Sequence[DType], dtype: DType, depth: int
    ) -> Number:
        """An operation on values of compute types, with a result of compute type ``dtype``."""
        real = not (self.exactly or self.rounds) and dtype.is_float and op in _FIELD
        if not real and all(isinstance(a, Const) for a in args):
            known = [np.asarray(a.value, t.numpy) for a, t in zip(args, dtypes, strict=True)]  # type: ignore[union-attr]
            return Const(compute(op, *known).astype(dtype.numpy).item(), dtype)
        if op is Op.WHERE:
            mask = self.array(args[0], dtypes[0], depth)
            if mask.all() or not mask.any():
                return args[1] if mask.all() else args[2]
            return self.where(mask, args[1], args[2], dtype, depth)
        if self.exactly and dtypes[0].is_float:
            found = self._exactly(op, args, dtypes, dtype, depth)
            if found is not None:
                return found
        xs = [self.array(a, t, depth) for a, t in zip(args, dtypes, strict=True)]
        if not dtypes[0].is_float and not dtypes[0].is_pair:
            return compute(op, *xs).astype(dtype.numpy, copy=False)
        return self._real(op, xs, dtype)

    def _exactly(
        self, op: Op, args: Sequence[Number], dtypes: Sequence[DType], dtype: DType, depth: int
    ) -> Number | None:
        """An operation on floats of which some are known; None where none of its results are."""
        if op is Op.TF32 and self.on_purpose:
            return args[0]
        if op is Op.PAIR or not all(isinstance(a, Known | Const) for a in args):
            return None
        if all(isinstance(a, Const) or typed(Known, a).residues is None for a in args):
            whole = (
                np.full((1,) * depth, a.value, t.numpy)
                if isinstance(a, Const)
                else deep(typed(Known, a).exact, depth)
                for a, t in zip(args, dtypes, strict=True)
            )
            exact = compute(op, *whole).astype(dtype.numpy, copy=False)
            return exact if op.compares else self.known(exact)
        exacts, knowns = zip(
            *(self._parts(a, t, depth) for a, t in zip(args, dtypes, strict=True)), strict=True
        )
        known = knowns[0]
        for other_known in knowns[1:]:
            known = known & other_known
        if not known.any():
            return None
        exact = compute(op, *exacts).astype(dtype.numpy, copy=False)
        other: Array | None = None
        if not known.all():
            xs = [self.array(a, t, depth) for a, t in zip(args, dtypes, strict=True)]
            other = self._real(op, xs, dtype)
        if op.compares:
            return exact if other is None else np.where(known, exact, other)
        return self._joined(exact, known, other)

    def _real(self, op: Op, xs: list[Array], dtype: DType) -> Array:
        what = op if dtype.is_float and op in _FIELD else (op, dtype)
        return self.once(what, xs, lambda *xs: self._made(op, xs, dtype))

    def _made(self, op: Op, xs: Sequence[Array], dtype: DType) -> Array:
        found = self._in_field(op, xs, dtype)
        if self.spoiled is None or op in (Op.PAIR, Op.LOW, Op.HIGH):
            return found
        bad = xs[0] == _NAN
        for x in xs[1:]:
            bad = bad | (x == _NAN)
        if op in (Op.DOT2, Op.DOT2_ADD):
            for x in xs:
                bad = bad | (x & _P == _NAN) | (x >> _31 == _NAN)
        if not np.count_nonzero(bad):  # a third of the time of ``any``
            return found
        return np.where(bad, op is Op.NE if op.compares else found.dtype.type(_NAN), found)

    def _in_field(self, op: Op, xs: Sequence[Array], dtype: DType) -> Array:
        if op is Op.TF32:
            return xs[0] if self.on_purpose else self._rounded(xs[0], "tf32")
        of_field = _FIELD.get(op)
        if of_field is not None:
            return of_field(*xs)
        a, b = xs[0], xs[-1] if len(xs) == 1 else xs[1]
        if op in (Op.MAX, Op.MIN):
            less = self.key(a) < self.key(b)
            return np.where(less, b, a) if op is Op.MAX else np.where(less, a, b)
        if op is Op.ABS:
            return np.where(self.key(a) < _U(_HALF), _neg(a), a)
        if op.compares:
            return self._compared(op, a, b)
        if op is Op.PAIR:
            return np.asarray(_reduced(a) | (_reduced(b) << _U(31)))
        if op is Op.LOW:
            return np.asarray(a & _P)
        if op is Op.HIGH:
            return a >> _U(31)
        if op in (Op.DOT2, Op.DOT2_ADD):
            total = _mul(a & _P, b & _P) + _mul(a >> _U(31), b >> _U(31))
            return _folded(total + xs[2] if op is Op.DOT2_ADD else total)
        reduced = [_reduced(x) for x in xs]
        found = np.asarray(_hashed(_seed(str(op)), *reduced) >> _U(33))
        if len(xs) == 1:
            at = reduced[0] + _U(_SMALL)
            at = np.minimum(at, at - _P)  # below 0 is far above
            near = at <= _U(2 * _SMALL)
            if near.any():
                at = np.where(near, at, _U(_SMALL))
                values, known = _at_integers(op, dtype)
                found = np.where(near & known[at], values[at], found)
        return found

    def _compared(self, op: Op, a: Array, b: Array) -> Array:
        if op is Op.LT:
            return np.asarray(self.key(a) < self.key(b))
        a, b = _reduced(a), _reduced(b)
        alike = _hashed(3, np.minimum(a, b), np.maximum(a, b)) >> _U(62) == 0
        same = (a == b) | alike  # of four numbers two are equal, or no test of it would hold
        return np.asarray(same if op is Op.EQ else ~same)

    def cast(self, x: Number, source: DType, dtype: DType) -> Number:
        """A value converted from one compute or stored type to another."""
        if isinstance(x, Const):
            value = self._converted(np.asarray(x.value, source.compute.numpy), dtype).item()
            return Const(value, dtype.compute)
        if isinstance(x, Known):
            return self._cast_known(x, source, dtype)
        if dtype.is_pair:  # a copy of words: each is two numbers of the field
            return x
        if source.is_float:
            if dtype.is_float:
                return self._cast_float(x, source, dtype)
            if dtype in (I8, U8):  # which saturates, as i32 after a clamp do
                for op, bound in ((Op.MAX, dtype.least), (Op.MIN, dtype.greatest)):
                    x = self._real(op, [x, _literal(float(bound), x.ndim)], source)
                return convert(typed(Array, self.cast(x, source, I32)), dtype)
            x = _reduced(x)
            if dtype.is_bool:
                return np.asarray(x != 0)
            y = symmetric(x)
            small = np.abs(y) < 1 << 20
            some = _integers(_hashed(5, x), dtype)
            found = np.where(small, y.astype(dtype.numpy), some)
            return found if self.spoiled is None else np.where(x == _NAN, 0, found)
        if dtype.is_float:
            if self.exactly:
                return self.known(self._converted(x, dtype))
            if source.is_bool:
                return x.astype(np.uint64)
            if dtype.is_half:  # by way of f32, as kernels do
                return self.cast(self.cast(x, source, F32), F32, dtype)
            most = 1 << _DIGITS[dtype.name]
            if not self.on_purpose and ((x > most) | (x < -most)).any():
                return self.residues(self._converted(x, dtype))
            return (x.astype(np.int64) % P).astype(np.uint64)
        return convert(x, dtype)

    def _cast_float(self, x: Array, source: DType, dtype: DType) -> Array:
        """A cast between types of floats: what loses digits is a function of its argument, and what
        was made wider is itself when it is made narrow again.
        """
        if self.on_purpose or source == dtype:
            return x
        if dtype.is_half:
            return self._rounded(self._cast_float(x, source.compute, F32), dtype.name)
        if dtype.bits >= source.bits:
            wide = x.view()
            self._widened[id(wide)] = wide, x
            return wide
        narrow = self._widened.get(id(x))
        return self._rounded(x, dtype.name) if narrow is None else narrow[1]

    def _rounded(self, x: Array, name: str) -> Array:
        found = _rounded(x, name)
        return found if self.spoiled is None else np.where(x == _NAN, x, found)

    def _converted(self, x: Array, dtype: DType) -> Array:
        """Numbers that are known in another type; 16 bits round where they do, and what is too
        large for those that rewrites round to stays.
        """
        found = convert(x, dtype if self.rounds or not self.on_purpose else dtype.compute)
        if dtype == self.narrow:
            return np.where(np.isfinite(found), found, convert(x, dtype.compute))
        return found

    def _cast_known(self, x: Known, source: DType, dtype: DType) -> Number:
        """A cast of floats of which some are known."""
        exact = self._converted(x.exact, dtype)
        if dtype.is_float and exact.dtype == x.exact.dtype and not dtype.is_half:
            return x
        other = None if x.residues is None else self.cast(x.residues, source, dtype)
        if dtype.is_float:
            return self._joined(exact, x.known, typed(Array | None, other))
        if other is None:
            return exact
        return np.where(x.known, exact, self.array(other, dtype, x.ndim))

    def fold(self, op: Op, x: Number, dtype: DType, extents: tuple[int, ...], depth: int) -> Number:
        """``x``, whose last dimensions have these extents, or 1 where it repeats, folded over them.

        ``depth``: dimensions that are left.
        """
        found = self.once(
            (op, dtype, extents, depth),
            (self.array(x, dtype, depth + len(extents)),),
            lambda y: self._fold_all(op, y, dtype, extents, depth),
        )
        axes = tuple(range(depth, depth + len(extents)))
        if not self.exactly or not dtype.is_float or not isinstance(x, Known | Const):
            return found
        exact, known = self._parts(x, dtype, depth + len(extents))
        known = np.asarray(known.all(axis=axes))
        if op is Op.ADD:  # of whole numbers of one sign, in any order
            shape = np.broadcast_shapes(exact.shape, (1,) * depth + extents)
            whole = np.broadcast_to(exact.astype(np.float64), shape)
            one_sign = (exact >= 0).all(axis=axes) | (exact <= 0).all(axis=axes)
            with np.errstate(invalid="ignore"):
                total = whole.sum(axis=axes)
            small = np.abs(total) < 1 << 24
            known = known & one_sign & small & (exact == np.floor(exact)).all(axis=axes)
            exact = np.where(small, total, 0).astype(dtype.numpy)
        elif op is Op.MUL:
            return found
        else:
            exact = exact.max(axis=axes) if op is Op.MAX else exact.min(axis=axes)
        return self._joined(exact, known, found) if known.any() else found

    def _fold_all(
        self, op: Op, y: Array, dtype: DType, extents: tuple[int, ...], depth: int
    ) -> Array:
        found = self._fold(op, y, dtype, extents, depth)
        if self.spoiled is not None and dtype.is_float:
            bad = (y == _NAN).any(axis=tuple(range(depth, y.ndim)))
            found = np.where(bad, _U(_NAN), found) if bad.any() else found
        return found

    def _fold(self, op: Op, y: Array, dtype: DType, extents: tuple[int, ...], depth: int) -> Array:
        whole = depth + len(extents)
        axes = tuple(range(depth, whole))
        times = 1
        for axis, extent in zip(axes, extents, strict=True):
            times *= extent if y.shape[axis] == 1 else 1
        if not dtype.is_float:
            shape = (*y.shape[:depth], *extents)
            return np.asarray(
                FOLDS[op].reduce(np.broadcast_to(y, shape), axis=axes, dtype=dtype.numpy)
            )
        if op is Op.ADD:
            total = np.asarray(y.sum(axis=axes, dtype=np.uint64)) % _P
            return _mul(total, np.asarray(_U(times % P))) if times > 1 else total
        if op is Op.MUL:
            flat = y.reshape(*y.shape[:depth], -1)
            while flat.shape[-1] > 1:
                half = flat.shape[-1] // 2
                rest = flat[..., 2 * half :]
                flat = _mul(flat[..., :half], flat[..., half : 2 * half])
                flat = np.concatenate((flat, rest), axis=-1)
            return _power(flat[..., 0], times)
        key = self.key(y)
        lines = key.reshape(*key.shape[:depth], -1)
        at = lines.argmax(axis=-1) if op is Op.MAX else lines.argmin(axis=-1)
        flat = spread(y, key.shape).reshape(-1, lines.shape[-1])
        return np.asarray(flat[np.arange(len(flat)), at.reshape(-1)].reshape(at.shape))

    def same(self, a: Number, b: Number, dtype: DType) -> Array:
        """Mask of the samples in which two values of a compute type are equal."""
        wholly = isinstance(a, Known) and isinstance(b, Known) and a.all_known and b.all_known
        if wholly and typed(Known, a).exact.tobytes() == typed(Known, b).exact.tobytes():
            return np.ones(self.scale.shape, np.bool_)
        x, y = self.array(a, dtype, 1), self.array(b, dtype, 1)
        if not dtype.is_float:
            return spread(x == y, self.scale.shape)
        same = _reduced(x) == _reduced(y)
        known = isinstance(a, Known | Const) and isinstance(b, Known | Const)
        if known and self.rounds and not self.on_purpose:
            (ea, ka), (eb, kb) = (self._parts(v, dtype, 1) for v in (a, b))
            alike = (ea == eb) & (np.signbit(ea) == np.signbit(eb)) | np.isnan(ea) & np.isnan(eb)
            same = np.where(ka & kb, alike, same)
        return spread(same, self.scale.shape)


def zero(dtype: DType) -> Const:
    """The zero of a type."""
    compute_type = dtype.compute
    value = False if dtype.is_bool else 0.0 if compute_type.is_float else 0
    return Const(value, compute_type if not dtype.is_half else F32)
