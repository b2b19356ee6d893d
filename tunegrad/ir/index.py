"""Index algebra: integer sums with bounds, in one canonical form.

An ``Index`` is ``sum(coefficient * atom) + const``. An atom is a variable with a range, a floor
division or a modulus of such a sum by a positive constant, or an ``Element`` of a buffer of
integers, which is an index of so many. Sums are always simplified, so two equal
shapes of the same address print, hash and compare alike. The laws (d, e > 0, ``//`` and ``%`` as in
Python):

    (d*a + r) // d      -> a + r // d      (d*a + r) % d      -> r % d
    r // d              -> k               r % d              -> r - k*d          k*d <= r < (k+1)*d
    (a // d) // e       -> a // (d*e)      (a % (d*e)) % d    -> a % d
    (a % (d*e)) // d    -> (a // d) % e
    (g*a + b) // (g*d)  -> a // d          (g*a + b) % (g*d)  -> g*(a % d) + b    0 <= b < g
    d*(a // d) + a % d  -> a
    f(v)                -> k*v + c         where it is, for all of up to eight values of v

``Valid`` is a conjunction of ``lo <= index < hi``; bounds decide what they can. ``tests/property``
checks every law by brute force. Values are immutable; the classes are written by hand (not
dataclasses) because lowering makes thousands of them a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

NO_NAMES: frozenset[str] = frozenset()


class _Named:
    """An atom is told by its kind and its canonical text, ``key``."""

    __slots__ = ("hi", "key", "lo", "names")

    key: str
    lo: int
    hi: int
    names: frozenset[str]

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


class Var(_Named):
    """An integer variable with inclusive bounds ``lo <= value <= hi``.

    Equal names must mean equal bounds.
    """

    __slots__ = ("name",)

    def __init__(self, name: str, lo: int, hi: int) -> None:
        self.name, self.lo, self.hi = name, lo, hi
        self.key = name
        self.names = frozenset((name,))

    def __reduce__(self) -> tuple[object, ...]:
        return Var, (self.name, self.lo, self.hi)


class FloorDiv(_Named):
    """``num // den`` that no law could simplify further."""

    __slots__ = ("den", "num")

    def __init__(self, num: Index, den: int) -> None:
        self.num, self.den = num, den
        self.lo, self.hi = num.lo // den, num.hi // den
        self.key = f"({num.key})//{den}"
        self.names = num.names()

    def __reduce__(self) -> tuple[object, ...]:
        return FloorDiv, (self.num, self.den)


class Mod(_Named):
    """``num % den`` that no law could simplify further."""

    __slots__ = ("den", "num")

    def __init__(self, num: Index, den: int) -> None:
        self.num, self.den = num, den
        self.lo, self.hi = 0, den - 1
        self.key = f"({num.key})%{den}"
        self.names = num.names()

    def __reduce__(self) -> tuple[object, ...]:
        return Mod, (self.num, self.den)


class Element(_Named):
    """``buffer[num]`` as an index below ``den``: an integer read from memory that is not written
    meanwhile.

    Negative ones count from the end, as numpy's; beyond either end they are the first or the last.
    An offset ``num`` outside the ``size`` elements of the buffer stands for 0. So it is an index
    whatever the memory holds and wherever it is worked out: ``0 <= value < den``.
    """

    __slots__ = ("buffer", "den", "num", "size")

    def __init__(self, buffer: str, num: Index, size: int, den: int) -> None:
        self.buffer, self.num, self.size, self.den = buffer, num, size, den
        self.lo, self.hi = 0, den - 1
        self.key = f"{buffer}[{num.key}]@{den}"
        self.names = num.names()

    def __reduce__(self) -> tuple[object, ...]:
        return Element, (self.buffer, self.num, self.size, self.den)

    @property
    def inside(self) -> bool:
        """True if bounds prove that its offset is inside the buffer."""
        return self.num.lo >= 0 and self.num.hi < self.size

    def value(self, memory: Any, at: Any) -> Any:
        """Its value, for a flat array and an offset (or arrays of them)."""
        if not self.inside:
            at = np.where((at >= 0) & (at < self.size), at, 0)
        return clamped(memory[at], self.den)


def clamped(index: Any, extent: int) -> Any:
    """Integers (a numpy scalar, or an array) as indices of so many elements: negative ones count
    from the end, beyond either end is the first or the last.
    """
    if index.dtype.kind == "u":
        return np.minimum(index, index.dtype.type(min(extent - 1, np.iinfo(index.dtype).max)))
    signed = index.astype(np.int64)
    return np.clip(np.where(signed < 0, signed + extent, signed), 0, extent - 1)


Atom = Var | FloorDiv | Mod | Element

Terms = tuple[tuple[Atom, int], ...]
"""Atoms and their coefficients, sorted by ``term_key``, none of them twice, none zero."""


def term_key(term: tuple[Atom, int]) -> str:
    """The key that terms are sorted by."""
    return term[0].key


def merged(a: Terms, b: Terms) -> list[tuple[Atom, int]]:
    """The terms of a sum, in order."""
    found: list[tuple[Atom, int]] = []
    i, j = 0, 0
    while i < len(a) and j < len(b):
        (x, cx), (y, cy) = a[i], b[j]
        if x.key == y.key:
            if cx + cy:
                found.append((x, cx + cy))
            i += 1
            j += 1
        elif x.key < y.key:
            found.append(a[i])
            i += 1
        else:
            found.append(b[j])
            j += 1
    found.extend(a[i:])
    found.extend(b[j:])
    return found


class Index:
    """A canonical sum.

    Build with ``var``, ``as_index`` and the operators ``+ - * // %`` (by int constants).

    Bounds, names, text and hash are worked out when first asked for: most sums are only steps to
    others.
    """

    __slots__ = ("_bounds", "_hash", "_key", "_names", "const", "terms")

    def __init__(self, terms: tuple[tuple[Atom, int], ...], const: int) -> None:
        """``terms`` are sorted by atom key, no duplicates or zero coefficients: use operators."""
        self.terms, self.const = terms, const
        self._bounds: tuple[int, int] | None = None
        self._hash: int | None = None
        self._key: str | None = None
        self._names: frozenset[str] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return Index, (self.terms, self.const)

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Index) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.terms, self.const))
        return self._hash

    @property
    def key(self) -> str:
        """Its canonical text."""
        if self._key is None:
            parts = [atom.key if c == 1 else f"{c}*{atom.key}" for atom, c in self.terms]
            if self.const or not parts:
                parts.append(str(self.const))
            self._key = "+".join(parts)
        return self._key

    @property
    def lo(self) -> int:
        """The least value it can take, as far as the atoms' bounds say."""
        return (self._bounds or self._bound())[0]

    @property
    def hi(self) -> int:
        """The greatest value it can take, as far as the atoms' bounds say."""
        return (self._bounds or self._bound())[1]

    def _bound(self) -> tuple[int, int]:
        lo = hi = self.const
        for atom, c in self.terms:
            if c > 0:
                lo += c * atom.lo
                hi += c * atom.hi
            else:
                lo += c * atom.hi
                hi += c * atom.lo
        self._bounds = lo, hi
        return self._bounds

    @property
    def is_const(self) -> bool:
        return not self.terms

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other) if other else self
        if not other.terms:
            return Index(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Index(other.terms, self.const + other.const) if self.const else other
        return _sum(merged(self.terms, other.terms), self.const + other.const)

    __radd__ = __add__

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __rsub__(self, other: int) -> Index:
        return self * -1 + other

    def __neg__(self) -> Index:
        return self * -1

    def __mul__(self, k: int) -> Index:
        if k == 1:
            return self
        if k == 0:
            return Index((), 0)
        return Index(tuple((a, c * k) for a, c in self.terms), self.const * k)

    __rmul__ = __mul__

    def __floordiv__(self, den: int) -> Index:
        return _floordiv(self, den)

    def __mod__(self, den: int) -> Index:
        return _mod(self, den)

    def variables(self) -> set[Var]:
        """Every variable it depends on, also inside divisions and moduli."""
        found: set[Var] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Var):
                found.add(atom)
            else:
                found |= atom.num.variables()
        return found

    def elements(self) -> Iterator[Element]:
        """Every element of a buffer that it depends on, also inside others."""
        for atom, _ in self.terms:
            if not isinstance(atom, Var):
                yield from atom.num.elements()
            if isinstance(atom, Element):
                yield atom

    def reading(self, buffers: Mapping[str, str]) -> Index:
        """The sum with the buffers of its elements renamed."""
        if all(type(atom) is Var for atom, _ in self.terms):
            return self
        if not any(True for _ in self.elements()):
            return self
        total = Index((), self.const)
        for atom, c in self.terms:
            new: Index
            if isinstance(atom, Var):
                new = Index(((atom, 1),), 0)
            elif isinstance(atom, Element):
                new = _element(
                    buffers.get(atom.buffer, atom.buffer), atom.num.reading(buffers), atom
                )
            else:
                num = atom.num.reading(buffers)
                divides = isinstance(atom, FloorDiv)
                new = _floordiv(num, atom.den) if divides else _mod(num, atom.den)
            total = total + new * c
        return total

    def names(self) -> frozenset[str]:
        """Names of ``variables()``."""
        if self._names is None:
            terms = self.terms
            self._names = (
                terms[0][0].names
                if len(terms) == 1
                else NO_NAMES.union(*(atom.names for atom, _ in terms))
            )
        return self._names

    def coefficient(self, name: str) -> int | None:
        """Growth of the sum when variable ``name`` grows by one; None if that is no constant."""
        result = 0
        for atom, c in self.terms:
            if type(atom) is Var:
                if atom.name == name:
                    result = c
            elif name in atom.names:
                return None
        return result

    def substitute(self, env: Mapping[str, Index]) -> Index:
        """The sum with variables replaced (all at once), simplified again."""
        if not env or env.keys().isdisjoint(self.names()):
            return self
        same: list[tuple[Atom, int]] = []
        pieces: list[Index] = []
        const = self.const
        for term in self.terms:
            atom, c = term
            if env.keys().isdisjoint(atom.names):
                same.append(term)
                continue
            new = env[atom.name] if isinstance(atom, Var) else _substituted(atom, env)
            if new.terms:
                pieces.append(new * c)
            else:
                const += c * new.const
        total = Index(tuple(same), const)
        if any(isinstance(atom, Mod) for x in (total, *pieces) for atom, _ in x.terms):
            return self._in_turn(env)
        for piece in pieces:
            total = total + piece
        return total

    def _in_turn(self, env: Mapping[str, Index]) -> Index:
        """``substitute``, term by term: what a modulus is joined with depends on the order."""
        total = Index((), self.const)
        for atom, c in self.terms:
            if isinstance(atom, Var):
                new = env.get(atom.name)
                piece = Index(((atom, 1),), 0) if new is None else new
            else:
                piece = _substituted(atom, env)
            total = total + piece * c
        return total

    def at(self, point: Mapping[str, int]) -> Index:
        """The sum with variables at fixed values."""
        same: list[tuple[Atom, int]] = []
        const = self.const
        for term in self.terms:
            atom, c = term
            if type(atom) is not Var:
                return self.substitute({n: Index((), v) for n, v in point.items()})
            value = point.get(atom.name)
            if value is None:
                same.append(term)
            else:
                const += c * value
        return self if len(same) == len(self.terms) else Index(tuple(same), const)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """Its value (ints, or numpy integer arrays of one shape) for the variables' values in
        ``env``, which also has the memory of the buffers that it reads.
        """
        total = self.const
        for atom, c in self.terms:
            if isinstance(atom, Var):
                value = env[atom.name]
            elif isinstance(atom, FloorDiv):
                value = atom.num.evaluate(env) // atom.den
            elif isinstance(atom, Element):
                value = atom.value(env[atom.buffer], atom.num.evaluate(env))
            else:
                value = atom.num.evaluate(env) % atom.den
            total = total + c * value
        return total

    def divisions(self) -> int:
        """Number of its divisions and moduli: the cost that simplification removes."""
        return sum(1 + a.num.divisions() for a, _ in self.terms if not isinstance(a, Var))


@lru_cache(maxsize=4096)
def var(name: str, extent: int) -> Index:
    """The variable ``name``, ``0 <= value < extent``, as an Index; 0 when it has one value."""
    return Index(((Var(name, 0, extent - 1), 1),), 0) if extent > 1 else Index((), 0)


def element(buffer: str, at: Index, size: int, extent: int) -> Index:
    """``buffer[at]``, of ``size`` elements, as an index below ``extent``; 0 if that is 1."""
    return Index(((Element(buffer, at, size, extent), 1),), 0) if extent > 1 else Index((), 0)


def _element(buffer: str, num: Index, like: Element) -> Index:
    return element(buffer, num, like.size, like.den)


def as_index(value: Index | int) -> Index:
    """An int as a constant Index; an Index as it is."""
    return Index((), value) if isinstance(value, int) else value


def _substituted(atom: FloorDiv | Mod | Element, env: Mapping[str, Index]) -> Index:
    num = atom.num.substitute(env)
    if isinstance(atom, Element):
        return _element(atom.buffer, num, atom)
    return _floordiv(num, atom.den) if isinstance(atom, FloorDiv) else _mod(num, atom.den)


def _sum(terms: list[tuple[Atom, int]], const: int) -> Index:
    """The sum of terms that are in order, its moduli joined with their quotients."""
    divided = False
    for atom, c in terms:
        divided = divided or type(atom) is not Var
        if isinstance(atom, Mod):
            joined = _rejoin(dict(terms), const, atom, c)
            if joined is not None:
                return joined
    total = Index(tuple(terms), const)
    return _line(total) if divided else total


def _line(n: Index) -> Index:
    """f(v) -> k*v + c, where it is, for all of up to eight values of v"""
    if len(n.names()) != 1:
        return n
    (v,) = n.variables()
    if v.hi - v.lo >= 8 or any(True for _ in n.elements()):
        return n
    first, *others = (n.evaluate({v.name: value}) for value in range(v.lo, v.hi + 1))
    step = others[0] - first if others else 0
    if any(f != first + i * step for i, f in enumerate(others, 1)):
        return n
    return Index(((v, step),) if step else (), first - step * v.lo)


def _rejoin(sums: dict[Atom, int], const: int, mod: Mod, c: int) -> Index | None:
    """d*(a // d) + a % d -> a"""
    quotient = _floordiv(mod.num, mod.den)
    if not quotient.terms or any(
        sums.get(atom, 0) != c * mod.den * k for atom, k in quotient.terms
    ):
        return _rejoin_other(sums, const, mod, c)
    for atom, _ in quotient.terms:
        del sums[atom]
    if sums.pop(mod, 0) != c:
        return None
    terms = sorted((t for t in sums.items() if t[1]), key=term_key)
    return _sum(terms, const - c * mod.den * quotient.const) + mod.num * c


def _rejoin_other(sums: dict[Atom, int], const: int, mod: Mod, c: int) -> Index | None:
    """d*(a // d) + b % d -> a, where a and b differ by a multiple of d"""
    for atom, k in sums.items():
        if not (isinstance(atom, FloorDiv) and atom.den == mod.den and k == c * mod.den):
            continue
        apart = atom.num - mod.num
        if apart.const % mod.den == 0 and all(x % mod.den == 0 for _, x in apart.terms):
            left = {a: x for a, x in sums.items() if a not in (atom, mod)}
            return _sum(sorted(left.items(), key=term_key), const) + atom.num * c
    return None


def _floordiv(n: Index, d: int) -> Index:
    if d <= 0:
        raise ZeroDivisionError(f"index {n} // {d}: the divisor must be positive")
    if d == 1:
        return n
    if not n.terms:
        return Index((), n.const // d)
    whole = tuple((a, c // d) for a, c in n.terms if c % d == 0)
    rest = tuple((a, c) for a, c in n.terms if c % d)
    if whole or not 0 <= n.const < d:
        quotient = Index(whole, n.const // d)
        return quotient + _floordiv(Index(rest, n.const % d), d)
    if n.lo // d == n.hi // d:
        return Index((), n.lo // d)
    g = d
    for _, c in n.terms:
        g = gcd(g, c)
    if g > 1:
        return _floordiv(Index(tuple((a, c // g) for a, c in n.terms), n.const // g), d // g)
    split = _split(n, d)
    if split is not None:
        g, high, _ = split
        return _floordiv(high, d // g)
    if len(n.terms) == 1 and n.terms[0][1] == 1:
        atom = n.terms[0][0]
        if isinstance(atom, FloorDiv):
            return _floordiv(atom.num + n.const * atom.den, atom.den * d)
        if isinstance(atom, Mod) and n.const == 0 and atom.den % d == 0:
            return _mod(_floordiv(atom.num, d), atom.den // d)
    return _line(Index(((FloorDiv(n, d), 1),), 0))


def _split(n: Index, d: int) -> tuple[int, Index, Index] | None:
    """n = g*high + low with g > 1 dividing d and 0 <= low < g; None when there is no such g."""
    tried: set[int] = set()
    for _, c in n.terms:
        g = gcd(c, d)
        if g == 1 or g in tried:
            continue
        tried.add(g)
        low = Index(tuple(t for t in n.terms if t[1] % g), n.const % g)
        if low.lo >= 0 and low.hi < g:
            high = Index(tuple((a, k // g) for a, k in n.terms if k % g == 0), n.const // g)
            return g, high, low
    return None


def _mod(n: Index, d: int) -> Index:
    if d <= 0:
        raise ZeroDivisionError(f"index {n} % {d}: the divisor must be positive")
    if d == 1:
        return Index((), 0)
    if n.lo // d == n.hi // d:
        return n - n.lo // d * d
    rest = tuple((a, c) for a, c in n.terms if c % d)
    if len(rest) < len(n.terms) or not 0 <= n.const < d:
        return _mod(Index(rest, n.const % d), d)
    for i, (a, c) in enumerate(n.terms):
        if isinstance(a, Mod) and a.den % d == 0:
            others = Index(n.terms[:i] + n.terms[i + 1 :], n.const)
            return _mod(others + a.num * c, d)
    split = _split(n, d)
    if split is not None:
        g, high, low = split
        return _mod(high, d // g) * g + low
    if any(not 0 < c < d for _, c in n.terms):
        return _mod(Index(tuple((a, c % d) for a, c in n.terms), n.const), d)
    return _line(Index(((Mod(n, d), 1),), 0))


class Range:
    """The condition ``lo <= index < hi``."""

    __slots__ = ("hi", "index", "lo")

    def __init__(self, index: Index, lo: int, hi: int) -> None:
        self.index, self.lo, self.hi = index, lo, hi

    @property
    def key(self) -> str:
        """Its canonical text."""
        return f"{self.lo}<={self.index.key}<{self.hi}"

    def __reduce__(self) -> tuple[object, ...]:
        return Range, (self.index, self.lo, self.hi)

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Range) and (self.lo, self.hi, self.index) == (
            other.lo,
            other.hi,
            other.index,
        )

    def __hash__(self) -> int:
        return hash((self.lo, self.hi, self.index))

    @property
    def always(self) -> bool:
        """True if bounds prove it."""
        return self.lo <= self.index.lo and self.index.hi < self.hi

    @property
    def never(self) -> bool:
        """True if bounds refute it."""
        return self.index.hi < self.lo or self.index.lo >= self.hi or self.lo >= self.hi


def _plain(r: Range) -> Range:
    """lo <= a//d + c < hi -> d*(lo-c) <= a < d*(hi-c);  the constant moves out; -a < hi flips"""
    index, lo, hi = r.index, r.lo - r.index.const, r.hi - r.index.const
    terms = index.terms
    if len(terms) == 1:
        atom, c = terms[0]
        if c < 0:
            return _plain(Range(Index(((atom, -c),), 0), 1 - hi, 1 - lo))
        if c > 1:
            lo, hi = -(-lo // c), -(-hi // c)
        if isinstance(atom, FloorDiv):
            return _plain(Range(atom.num, lo * atom.den, hi * atom.den))
        index = Index(((atom, 1),), 0)
    else:
        index = Index(terms, 0)
    return Range(index, max(lo, index.lo), min(hi, index.hi + 1))


def _of_blocks(r: Range) -> Range:
    terms = r.index.terms
    step = gcd(max((c for _, c in terms), default=0), r.lo, r.hi)
    rest = Index(tuple((a, c) for a, c in terms if step > 1 and c % step), 0)
    if not rest.terms or rest.lo < 0 or rest.hi >= step or r.index.const:
        return r
    whole = tuple((a, c // step) for a, c in terms if not c % step)
    return Range(Index(whole, 0), r.lo // step, r.hi // step)


class Valid:
    """A conjunction of ranges, simplified: proved ones dropped, one refuted makes it ``NEVER``."""

    __slots__ = ("_key", "never", "ranges")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        merged: dict[Index, Range] = {}
        never = False
        for r in ranges:
            if not r.index.terms:
                never = never or not r.lo <= r.index.const < r.hi
                continue
            r = _plain(r)
            old = merged.get(r.index)
            if old is not None:
                r = Range(r.index, max(r.lo, old.lo), min(r.hi, old.hi))
            merged[r.index] = r
        never = never or any(r.never for r in merged.values())
        kept = [] if never else [r for r in merged.values() if not r.always]
        if len(kept) > 1:
            kept.sort(key=lambda r: r.index.key)
        self.ranges: tuple[Range, ...] = tuple(kept)
        self.never = never
        self._key: str | None = None

    @property
    def key(self) -> str:
        """Its canonical text; '' where nothing is left to hold."""
        if self._key is None:
            self._key = "never" if self.never else "&".join(r.key for r in self.ranges)
        return self._key

    def __reduce__(self) -> tuple[object, ...]:
        return Valid, ((Range(Index((), 0), 1, 1),) if self.never else self.ranges,)

    def __repr__(self) -> str:
        return self.key or "always"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Valid) and self.never == other.never and self.ranges == other.ranges
        )

    def __hash__(self) -> int:
        return hash((self.never, self.ranges))

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    @property
    def always(self) -> bool:
        return not self.never and not self.ranges

    def __and__(self, other: Valid) -> Valid:
        if self.never or other.always:
            return self
        if other.never or self.always:
            return other
        return Valid(self.ranges + other.ranges)

    def substitute(self, env: Mapping[str, Index]) -> Valid:
        """The condition with variables replaced."""
        if not self.ranges or not env or env.keys().isdisjoint(self.names()):
            return self
        return Valid(Range(r.index.substitute(env), r.lo, r.hi) for r in self.ranges)

    def of_blocks(self) -> Valid:
        """The same condition: d*lo <= d*a + b < d*hi -> lo <= a < hi  for b in [0, d)"""
        return Valid(map(_of_blocks, self.ranges)) if self.ranges else self

    def reading(self, buffers: Mapping[str, str]) -> Valid:
        """The condition with the buffers of its elements renamed."""
        if not any(True for r in self.ranges for _ in r.index.elements()):
            return self
        return Valid(Range(r.index.reading(buffers), r.lo, r.hi) for r in self.ranges)

    def at(self, point: Mapping[str, int]) -> Valid:
        """The condition with variables at fixed values."""
        if not self.ranges or point.keys().isdisjoint(self.names()):
            return self
        return Valid(Range(r.index.at(point), r.lo, r.hi) for r in self.ranges)

    def names(self) -> frozenset[str]:
        """Names of every variable it depends on."""
        return NO_NAMES.union(*(r.index.names() for r in self.ranges)) if self.ranges else NO_NAMES

    def holds(self, env: Mapping[str, int]) -> bool:
        """Its truth for the variables' values in ``env``."""
        return not self.never and all(r.lo <= r.index.evaluate(env) < r.hi for r in self.ranges)


ALWAYS = Valid()

NEVER = Valid((Range(Index((), 0), 1, 1),))
