"""Arguments of a model, checked: names, shapes, dtypes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir.dtypes import DType
from tunegrad.ir.interpret.numeric import bits_of_bf16, to_compute, to_memory
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.devices import dlpack


@dataclass(frozen=True, slots=True)
class Argument:
    """One input: its name, shape and dtype.

    ``bound``: its elements are indices below it; 0 where they are any numbers. ``mean``, ``spread``
    and ``positive`` say what ``as_drawn`` makes of normal numbers; ``parts`` lie one after another,
    and each says so of its own.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    bound: int = 0
    mean: float = 0.0
    spread: float = 1.0
    positive: bool = False
    parts: tuple[Argument, ...] = ()

    @staticmethod
    def of(spec: Any, bound: int = 0) -> Argument:
        """The argument of an input of a model (``frontend.InputSpec``)."""
        parts = tuple(Argument.of(p) for p in spec.parts)
        return Argument(
            spec.name, spec.shape, spec.dtype, bound, spec.mean, spec.spread, spec.positive, parts
        )

    def as_drawn(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Standard normal numbers, in memory form, as this input has them."""
        if self.parts:
            ends = [*accumulate(prod(p.shape) for p in self.parts)]
            pieces = np.split(values.reshape(-1), ends[:-1])
            made = [p.as_drawn(v) for p, v in zip(self.parts, pieces, strict=True)]
            return np.concatenate(made).reshape(values.shape)
        if not self.dtype.is_float or (self.mean, self.spread, self.positive) == (0, 1, False):
            return values
        found = to_compute(values, self.dtype) * self.spread + self.mean
        return to_memory(np.abs(found) if self.positive else found, self.dtype)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]"


class Signature:
    """The arguments that a model takes."""

    def __init__(self, owner: str, arguments: Sequence[Argument]) -> None:
        self._owner, self._arguments = owner, tuple(arguments)
        self._names = tuple(a.name for a in arguments)
        self._plain = tuple((a.name, a.shape, a.dtype.numpy) for a in arguments)

    def check(
        self,
        positional: Sequence[object],
        named: Mapping[str, object],
        take: Callable[[object], dlpack.Imported | None] | None = None,
    ) -> dict[str, Any]:
        """The inputs by name, each an array of exactly the expected shape and dtype.

        Lists and numbers of Python's have no dtype: they take the input's, but floats that of no
        integers, integers that of no booleans, and nothing a dtype that is too small for it.

        ``take`` takes what stays where it lies; it is checked as well.

        Raises ShapeError for a wrong number, an unknown or missing name or another shape,
        DTypeError for another dtype.
        """
        # what nearly every call is, at a tenth of the cost: as many arrays, each as it must be
        if take is None and len(positional) + len(named) == len(self._plain):
            given = dict(zip(self._names, positional, strict=False))
            given.update(named)
            for name, shape, dtype in self._plain:
                value = given.get(name)
                if type(value) is not np.ndarray:
                    break
                if value.shape != shape or value.dtype is not dtype:
                    break
            else:
                return given
        take = take or (lambda _: None)
        return _check_each(self._owner, self._arguments, positional, named, take)


class Donated:
    """The inputs of a model that a call changes. Mutable: it remembers the arrays that it was given
    last, which are those of the next call in a loop of training.
    """

    def __init__(self, owner: str, names: Iterable[str]) -> None:
        self._owner, self._names = owner, tuple(names)
        self._last: tuple[tuple[Any, ...], _Spans] = ((), _Spans())

    def check(self, given: Mapping[str, object], arrays: Mapping[str, Any]) -> None:
        """Raise DTypeError for a donated input that is no array, and ShapeError for one that can
        not be written, that has several elements in one place, or that shares memory with another
        input.

        ``given`` are the inputs as the caller gave them, ``arrays`` as they are run on.
        """
        mine = [arrays[name] for name in self._names]
        for name, a in zip(self._names, mine, strict=True):
            if not a.flags.writeable:
                raise ShapeError(
                    f"{self._owner}: input {name!r} is donated, and its array is read-only"
                )
        last, spans = self._last
        if len(last) != len(mine) or any(r() is not a for r, a in zip(last, mine, strict=True)):
            spans = self._spans(given, arrays)
            self._last = tuple(map(ref, mine)), spans
        for name, a in arrays.items():
            if name not in spans.names:
                self._refuse(spans.sharing(a), name)

    def _spans(self, given: Mapping[str, object], arrays: Mapping[str, Any]) -> _Spans:
        spans = _Spans()
        for name in self._names:
            a = arrays[name]
            if a.size and a is not given[name] and not np.shares_memory(a, np.asarray(given[name])):
                raise DTypeError(
                    f"{self._owner}: input {name!r} is donated, so it must be an array, which is "
                    f"changed; it is a {type(given[name]).__name__}"
                )
            if _folds(a):
                raise ShapeError(
                    f"{self._owner}: input {name!r} is donated, and elements of its array may "
                    f"share memory (shape {a.shape}, strides {a.strides} bytes)"
                )
            self._refuse(spans.sharing(a), name)
            spans.add(name, a)
        return spans

    def _refuse(self, donated: str | None, beside: str) -> None:
        if donated is not None:
            raise ShapeError(
                f"{self._owner}: input {donated!r} is donated, and shares memory with input "
                f"{beside!r}"
            )


class _Spans:
    """Arrays by where they begin, with the farthest end of those up to each. Mutable."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._starts: list[int] = []
        self._held: list[tuple[int, str, Any]] = []
        self._ends: list[int] = []

    def add(self, name: str, a: np.ndarray[Any, Any]) -> None:
        """Note an array; it is not kept alive."""
        self.names.add(name)
        if a.size:
            start, end = _span(a)
            at = bisect_left(self._starts, start)
            self._starts.insert(at, start)
            self._held.insert(at, (end, name, ref(a)))
            self._ends = [*accumulate((end for end, _, _ in self._held), max)]

    def sharing(self, a: np.ndarray[Any, Any]) -> str | None:
        """The name of an array that shares memory with this one."""
        start, end = _span(a) if a.size else (0, 0)
        at = bisect_left(self._starts, end)
        while at and self._ends[at - 1] > start:
            at -= 1
            until, name, held = self._held[at]
            if until > start and np.shares_memory(held(), a):
                return name
        return None


def _folds(a: np.ndarray[Any, Any]) -> bool:
    """True unless each stride of an array is as long as what the shorter ones reach over."""
    if a.flags.c_contiguous or not a.size:
        return False
    end = a.itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(a.strides, a.shape, strict=True)):
        if extent > 1 and stride < end:
            return True
        end += (extent - 1) * stride
    return False


def _span(a: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The first byte of an array's elements, and the one behind the last."""
    start = end = int(a.__array_interface__["data"][0])
    if a.flags.c_contiguous:
        return start, start + a.nbytes
    for extent, stride in zip(a.shape, a.strides, strict=True):
        start += min(0, (extent - 1) * stride)
        end += max(0, (extent - 1) * stride)
    return start, end + a.itemsize


def _check_each(
    owner: str,
    expected: Sequence[Argument],
    positional: Sequence[object],
    named: Mapping[str, object],
    take: Callable[[object], dlpack.Imported | None],
) -> dict[str, Any]:
    signature = f"{owner}({', '.join(map(str, expected))})"
    names = [a.name for a in expected]
    if len(positional) > len(expected):
        raise ShapeError(
            f"{signature}: {len(positional)} inputs were given, it takes {len(expected)}"
        )
    given = dict(zip(names, positional, strict=False))
    for name, value in named.items():
        if name not in names:
            raise ShapeError(
                f"{signature}: there is no input {name!r}; valid: {', '.join(names) or '(none)'}"
            )
        if name in given:
            raise ShapeError(f"{signature}: input {name!r} was given twice")
        given[name] = value
    missing = [name for name in names if name not in given]
    if missing:
        raise ShapeError(f"{signature}: input {', '.join(map(repr, missing))} is missing")
    return {a.name: _checked(signature, a, given[a.name], take) for a in expected}


def _checked(
    signature: str, a: Argument, value: object, take: Callable[[object], dlpack.Imported | None]
) -> Any:
    taken = take(value)
    if taken is not None:
        if taken.shape != a.shape:
            raise ShapeError(
                f"{signature}: input {a.name!r} has shape {taken.shape}, it must be {a.shape}"
            )
        if taken.dtype != a.dtype.name:
            raise DTypeError(
                f"{signature}: input {a.name!r} has dtype {taken.dtype}, it must be {a.dtype.name}"
            )
        return taken
    try:
        bits = bits_of_bf16(value) if a.dtype.name == "bf16" else None
        array = np.asarray(value) if bits is None else bits
    except (
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:  # PyTorch's, of one that it does not give
        raise ShapeError(f"{signature}: input {a.name!r} is not an array ({error})") from None
    if array.shape != a.shape:
        raise ShapeError(
            f"{signature}: input {a.name!r} has shape {array.shape}, it must be {a.shape}"
        )
    if isinstance(value, list | tuple | bool | int | float) and a.dtype.name != "bf16":
        array = _converted(array, a.dtype.numpy)
    if array.dtype != a.dtype.numpy:
        note = " (bit patterns of bf16)" if a.dtype.name == "bf16" else ""
        raise DTypeError(
            f"{signature}: input {a.name!r} has dtype {array.dtype}, it must be "
            f"{a.dtype.numpy}{note}"
        )
    return array


def _converted(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The array of a list or number in ``dtype``; as it is if of another kind or too large."""
    ranks = {"b": 0, "u": 1, "i": 1, "f": 2}
    rank, wanted = ranks.get(array.dtype.kind), ranks[dtype.kind]
    if rank is None or rank > wanted:
        return array
    with np.errstate(over="ignore"):
        found = array.astype(dtype)
    kept = np.isfinite(found) == np.isfinite(array) if wanted == 2 else found == array
    return found if np.all(kept) else array
