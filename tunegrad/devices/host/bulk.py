"""Whole buffers at once, on all threads of a team: copy parts, fill, digest, and judge an output.

A candidate is verified by passing over every byte that it read or wrote, which took as long as
compiling it when numpy did it on one core. What can be decided in one pass is decided here; what is
wrong is looked at again in numpy.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tunegrad.devices.host.bulk_ir import BULK_EXPORTS, MOST_DIMS, RESULT_BYTES, bulk_text
from tunegrad.devices.host.kept import own_code
from tunegrad.devices.host.loader import Library
from tunegrad.errors import InternalError

if TYPE_CHECKING:
    from tunegrad.devices.host.team import Team
    from tunegrad.devices.verifying.tolerance import Bar, Mismatch

__all__ = ["Bulk"]

_LINE = 64
_SHARED_BYTES = 256 << 10
"""Buffers below this are one thread's: waking the others would take longer."""


@functools.cache
def _library() -> Library:
    return Library(own_code(bulk_text()), BULK_EXPORTS, {})


class Bulk:
    """Operations on whole buffers of this process, with ``team``'s threads where they are large
    enough.

    Arrays are contiguous. One call at a time, and none while a kernel runs on the team.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._addresses = _library().addresses
        self._results: npt.NDArray[np.uint64] = np.zeros(
            (team.threads, RESULT_BYTES // 8), np.uint64
        )

    def fill(self, to: npt.NDArray[Any], byte: int) -> None:
        """Set every byte of an array."""
        self._run("tg_fill", to.nbytes, to.ctypes.data, byte, to.nbytes)

    def assign(self, to: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
        """``to[...] = source``, of one shape and dtype, whatever their strides; they do not
        overlap.
        """
        if to.shape != source.shape or to.dtype != source.dtype:
            raise InternalError(f"assign {source.dtype} {source.shape} to {to.dtype} {to.shape}")
        dims = _merged(to, source)
        if (
            to.itemsize not in (1, 2, 4, 8)
            or to.nbytes < _SHARED_BYTES
            or not 1 <= len(dims) <= MOST_DIMS
        ):
            to[...] = source
            return
        *outer, (row, to_step, from_step) = dims
        rows = math.prod(extent for extent, _, _ in outer)
        table = np.array(outer or [(1, 0, 0)], np.int64)
        self._run(
            f"tg_stride{to.itemsize}", to.nbytes, to.ctypes.data, source.ctypes.data, row, to_step,
            from_step,
            rows, len(outer), table.ctypes.data,
        )  # fmt: skip

    def digest(self, arrays: Iterable[npt.NDArray[Any]]) -> str:
        """Of the bytes of arrays, in order: equal ones for equal bytes, with teams of one size;
        hexadecimal.
        """
        whole = hashlib.blake2b(digest_size=16)
        for array in arrays:
            data = array.view(np.uint8)
            lines = data.size & -_LINE
            whole.update(f"{data.size} ".encode())
            whole.update(self._run("tg_digest", lines, data.ctypes.data, lines).data)
            whole.update(data[lines:].data)
        return whole.hexdigest()

    def judge(self, bar: Bar, got: npt.NDArray[Any]) -> Mismatch:
        """``bar.judge(got)``, in one pass where ``got`` is f32 and nothing in it is bad."""
        if bar.dtype.name == "f32" and not bar.fault:
            picked = got if bar.indices is None else got[bar.indices]
            if picked.size == bar.expected.size:
                error = self._error(bar, picked)
                if error is not None:
                    from tunegrad.devices.verifying.tolerance import Mismatch

                    return Mismatch(-1, 0.0, 0.0, 0.0, error)
        return bar.judge(got)

    def _error(self, bar: Bar, picked: npt.NDArray[Any]) -> float | None:
        """The greatest error of f32 numbers that are all right; None where one is not."""
        expected, allowed = bar.expected, bar.allowed
        if bar.special is not None and bar.finite is not None:
            special = picked[bar.special]
            wanted = expected[bar.special]
            if not ((special == wanted) | (np.isnan(special) & np.isnan(wanted))).all():
                return None
            picked, (expected, allowed) = picked[~bar.special], bar.finite
        found = self._run(
            "tg_judge",
            5 * picked.nbytes,
            picked.ctypes.data,
            expected.ctypes.data,
            allowed.ctypes.data,
            picked.size,
        )
        return float(found[:, 1].view(np.float64).max()) if found[:, 0].all() else None

    def _run(self, name: str, nbytes: int, *words: int) -> npt.NDArray[np.uint64]:
        """Results of each thread."""
        threads = self._team.threads if nbytes >= _SHARED_BYTES else 1
        args = np.array([*words, threads], np.int64)
        self._team.run(self._addresses[name], args.ctypes.data, self._results.ctypes.data, threads)
        return self._results[:threads]


def _merged(to: npt.NDArray[Any], source: npt.NDArray[Any]) -> list[tuple[int, int, int]]:
    """(extent, step of to, step of source) of each dimension, those that are one in both arrays
    made one.
    """
    dims: list[tuple[int, int, int]] = []
    for extent, t, f in zip(to.shape, to.strides, source.strides, strict=True):
        if extent == 1:
            continue
        if dims and dims[-1][1:] == (t * extent, f * extent):
            dims[-1] = dims[-1][0] * extent, t, f
        else:
            dims.append((extent, t, f))
    return dims
