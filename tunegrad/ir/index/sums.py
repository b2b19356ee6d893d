"""Canonical sums of atoms, and the laws that keep them so (the package's docstring has them all).

Sums and laws make each other, so they stand in one module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

from .atoms import NO_NAMES, Atom, Element, FloorDiv, Mod, Var, merged, term_key

__all__ = ["Index", "as_index", "element", "var"]


class Index:
    """A canonical sum.

    Build with ``var``, ``as_index`` and the operators ``+ - * // %`` (by int constants).

    Bounds, names, text and hash are worked out when first asked for: most sums are only steps to
    others.
    """

    __slots__ = ("_bounds", "_hash", "_key", "_names", "const", "terms")

    def __init__(self, terms: tuple[tuple[Atom, int], ...], const: int) -> None:
        """``terms`` must be sorted by atom key, without duplicates or zero coefficients: use the
        operators.
        """
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
        """Growth of the sum when variable ``name`` grows by one; None when that is not one
        constant.
        """
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


def var(name: str, extent: int) -> Index:
    """The variable ``name`` with ``0 <= value < extent`` as an Index; the constant 0 when it has
    one value.
    """
    return Index(((Var(name, 0, extent - 1), 1),), 0) if extent > 1 else Index((), 0)


def element(buffer: str, at: Index, size: int, extent: int) -> Index:
    """``buffer[at]``, of ``size`` elements, as an index below ``extent``; the constant 0 where
    there is one value.
    """
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
    for atom, c in terms:
        if isinstance(atom, Mod):
            joined = _rejoin(dict(terms), const, atom, c)
            if joined is not None:
                return joined
    return Index(tuple(terms), const)


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
    return Index(((FloorDiv(n, d), 1),), 0)


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
    return Index(((Mod(n, d), 1),), 0)
