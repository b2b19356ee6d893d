"""Differences between the languages of the C family: words, types, vectors, and the declaration and
use of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tunegrad.ir.dtypes import DType

__all__ = ["Dialect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One language. The printer asks it for every word that is not plain C.

    A dtype that has no vectors as values may be moved as vectors all the same.

    ``values`` and ``stored`` are the C types of a dtype as a value and in memory. ``widths`` are
    the lane counts that have a vector type; other lane counts, vectors past ``vector_bytes``, and
    dtypes not in ``vector_dtypes`` become one variable a lane. A language without vectors leaves
    them out, with all that makes or moves one.
    """

    name: str
    kernel: str
    """Text before a kernel's name; ITEMS are the work-items of a group."""
    global_space: str
    shared_space: str
    group_id: str
    local_id: str
    int_type: str = "int"
    long_type: str = ""
    long_suffix: str = ""
    """Of indices: those of 32 bits, and those of 64 where the language has them."""
    restrict: str = ""
    truth: tuple[str, str] = ("0", "1")
    """False and true."""
    wraps: bool = False
    """True if numbers with a sign wrap around, as those without one do."""
    values: Mapping[str, str]
    stored: Mapping[str, str]
    widths: tuple[int, ...] = ()
    vector_bytes: int = 0
    vector_dtypes: frozenset[str] = frozenset()
    helpers: Mapping[str, str]
    """Text of the helper functions by name; the printer adds those it used."""
    barrier: Callable[[bool], str]
    """The barrier statement; the argument says whether global memory must be ordered too."""
    vector: Callable[[str, int], str] = lambda *_: ""
    """(C type, lanes) to the vector type."""
    lane: Callable[[str, int], str] = lambda *_: ""
    """(vector, k) to its lane k."""
    build: Callable[[str, int, list[str]], str] = lambda *_: ""
    """(C type, lanes, lane expressions or one for all) to a vector expression."""
    load: Callable[[str, int, str, str], str] = lambda *_: ""
    """(C type, lanes, buffer, offset) to a vector of neighbours; of aligned ones without
    ``unaligned``.
    """
    store: Callable[[str, int, str, str, str], str] = lambda *_: ""
    """(C type, lanes, buffer, offset, value) to a statement that stores neighbours."""
    wide: Callable[[str, str, str, str], str] = lambda *_: ""
    """(space and qualifiers, vector type, buffer, offset) to neighbours that are aligned."""
    vector_max: Callable[[str, str, str], str] = lambda *_: ""
    """(``max`` or ``min``, a, b) to the larger or smaller of two float vectors, NaN if either
    is.
    """
    function: Callable[[str, DType], str]
    """(operation, dtype) to the function of that name: exp to exp, or to expf."""
    prologue: str = ""
    reinterpret: Callable[[str, str], str] = lambda c, text: f"({c})({text})"
    """(C type of the same width, value) to its bits as that type."""
    declared_shared_bytes: int = 1 << 40
    """The most that a group may share by declarations; where it shares more, all of it is one
    array, given by the launch.
    """
    shared_array: str = ""
    """The declaration of that array: bytes, ``tg_shared``."""
    wrappers: Callable[[Iterable[str]], str] | None = None
    """Names of functions for what the language has no function for, to their texts: products of
    matrix units, copies that run ahead, loads of small matrices. None where it has none.
    """
    shuffle: Callable[[str, str, int], str] | None = None
    """(C type, value, bit) to that value of the work-item whose number in the warp differs in the
    bit. None where work-items have no warps.
    """
    register: Callable[[str, list[str]], tuple[str, str]] = lambda c, parts: (c, parts[0])
    """(C type, values that share a register) to its type and its value."""
    part: Callable[[str, str, int], str] = lambda c, register, at: f"({c})({register} >> {at})"
    """(C type, register of 32 bits, bit) to the value that begins there."""
    unroll: str = ""
    """Text before a loop of which so many iterations ({}) become one; '' where the language
    has no word for it.
    """
    unaligned: bool = True
    """True if ``load`` and ``store`` move neighbours that are not aligned."""

    def is_vector(self, dtype: DType, lanes: int) -> bool:
        """True if values of that type are one vector variable."""
        fits = lanes in self.widths and lanes * dtype.itemsize <= self.vector_bytes
        return fits and dtype.name in self.vector_dtypes
