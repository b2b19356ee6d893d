"""Makes the part of a tensor that a kernel reads its parameter, so that the part's place is no part
of the kernel.

    p1 f32[128,1,512] read at [5, 0, g]      -->      p1 f32[512] read at [g], from byte 10240 on
    p1 f32[128,1,512] read at [6, 0, g]      -->      p1 f32[512] read at [g], from byte 12288 on

So the steps of an unrolled loop are one kernel, which each launch gives another view of the same
buffer (``plan.Buffer.base``). A part is whole rows: dimensions that are read at one index are gone,
and of the next one nothing is left before the first row that is read. A device whose views begin
at multiples of so many bytes has the rest of the distance in the kernel's index: kernels that read
at other rests are others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

from ..index import Index
from ..kernel import Kernel, Param
from .axes import all_indices, rewritten, uses

__all__ = ["VIEW_BYTES", "viewed"]

VIEW_BYTES = 64
"""Alignment of views on a device of which nothing is known."""

_At = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class _View:
    """Rows of a parameter: its dimensions from ``dim`` on, the first of them from ``first`` on."""

    param: Param
    dim: int
    first: int
    start_bytes: int

    def access(self, index: _At) -> _At:
        if self.dim == len(index):
            return ()
        return (index[self.dim] - self.first, *index[self.dim + 1 :])


def viewed(k: Kernel, view_bytes: int) -> tuple[Kernel, dict[str, int]]:
    """The kernel with views in the place of buffers of which it reads a part, and the byte at which
    each view begins, by parameter.

    Parameters are row-major. Views begin at multiples of ``view_bytes``.
    """
    found = {v.param.name: v for v in _views(k, view_bytes)}
    if not found:
        return k, {}

    def access(param: str, index: _At) -> _At:
        view = found.get(param)
        return index if view is None else view.access(index)

    params = tuple(found[p.name].param if p.name in found else p for p in k.params)
    k = replace(rewritten(k, {}, {}, access), params=params)
    return k, {name: v.start_bytes for name, v in found.items()}


def _views(k: Kernel, view_bytes: int) -> Iterator[_View]:
    looked_up = {e.buffer for i in all_indices(k) for e in i.elements()}
    at: dict[str, list[_At]] = {}
    for name, index in uses(k):
        at.setdefault(name, []).append(index)
    for p in k.params:
        if p.role != "in" or not p.size or not p.layout.is_row_major:
            continue
        if p.name in at and p.name not in looked_up:
            view = _view(p, at[p.name], view_bytes)
            if view is not None:
                yield view


def _view(p: Param, uses: list[_At], view_bytes: int) -> _View | None:
    """The part that these reads need; None where that is the whole, or may begin before it."""
    start, row = 0, p.nbytes
    for d, extent in enumerate(p.shape):
        row //= extent
        first, last = min(i[d].lo for i in uses), max(i[d].hi for i in uses)
        if first < 0 or last >= extent:
            break  # a condition says what is read
        step = view_bytes // gcd(view_bytes, row)
        begin = first // step * step
        start += begin * row
        if begin == last:
            continue
        fixed = all(i[d].is_const for i in uses)
        end = last + 1 if begin or fixed else extent
        return _part(p, d, begin, (end - begin, *p.shape[d + 1 :]), start)
    else:
        d, extent = len(p.shape), 1
    return _part(p, d, 0, p.shape[d:], start)


def _part(p: Param, dim: int, first: int, shape: tuple[int, ...], start: int) -> _View | None:
    if prod(shape) == p.size:
        return None
    return _View(Param.dense(p.name, p.dtype, shape, p.role), dim, first, start)
