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

``Valid`` is a conjunction of ``lo <= index < hi``; bounds decide what they can. ``tests/property``
checks every law by brute force. Values are immutable; the classes are written by hand (not
dataclasses) because lowering makes thousands of them a second.
"""

from __future__ import annotations

from .atoms import Atom, Element, FloorDiv, Mod, Var
from .conditions import ALWAYS, NEVER, Range, Valid
from .sums import Index, as_index, element, var

__all__ = [
    "ALWAYS",
    "NEVER",
    "Atom",
    "Element",
    "FloorDiv",
    "Index",
    "Mod",
    "Range",
    "Valid",
    "Var",
    "as_index",
    "element",
    "var",
]
