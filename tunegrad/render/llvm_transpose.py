"""Strided vector loads that together read whole runs of memory: loaded as runs, transposed in
registers.

    %1 = A[2048*l]             r0 = A[0:4]   r1 = A[2048:2052]   ..   r15
    %2 = A[2048*l + 1]    -->  p0 = r0 r4 r8 r12   ..   p3 = r3 r7 r11 r15
    %3 = A[2048*l + 2]         %1 .. %4 = the 4x4 blocks of p0 .. p3, transposed
    %4 = A[2048*l + 3]

The lanes of a vector are 2048 elements apart. A load for each lane of each vector takes 64 loads
and as many insertions here; this takes 16 loads and 8 shuffles of two vectors. Blocks of n vectors,
n a power of two up to the lane count, take n log2(n) shuffles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

from tunegrad.ir.index import Index
from tunegrad.ir.program import Instr, Load

__all__ = ["runs_of", "transposition"]

_LEAST_STEP = 5
"""Lanes that are closer are whole vectors and a shuffle each."""


def runs_of(body: Sequence[Instr], read_only: Iterable[str]) -> list[tuple[Load, ...]]:
    """Groups of 2, 4, 8 or 16 loads of one block whose lanes are equally far apart, and that read
    neighbours.

    Only of buffers that the program does not write, so that a group may be loaded where its first
    load stands.
    """
    buffers = frozenset(read_only)
    found: dict[tuple[str, str, int, int, Index], dict[int, Load]] = defaultdict(dict)
    for i in body:
        if (
            type(i) is Load
            and i.buffer in buffers
            and i.mask is None
            and i.vtype.lanes in (4, 8, 16)
        ):
            step = i.offset.coefficient(i.lane) if i.lane else None
            if step is not None and step >= _LEAST_STEP:
                key = (i.buffer, i.lane, step, i.vtype.lanes, i.offset + -i.offset.const)
                found[key].setdefault(i.offset.const, i)
    groups = []
    for (_, _, step, lanes, _), loads in found.items():
        ordered = sorted(loads)
        for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
            groups += _parts([loads[at] for _, at in run], min(lanes, step))
    return groups


def _parts(run: list[Load], most: int) -> list[tuple[Load, ...]]:
    """A run of neighbours in groups of a power of two, the largest first; single ones are left
    out.
    """
    parts = []
    while len(run) > 1:
        size = 1
        while 2 * size <= min(len(run), most):
            size *= 2
        if size < 2:
            break
        parts.append(tuple(run[:size]))
        run = run[size:]
    return parts


def transposition(count: int, lanes: int) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    """Stages that transpose the ``count`` x ``count`` blocks of ``count`` vectors.

    Each stage gives new vectors in order, as two of the old ones and which of their lanes.
    """
    stages = []
    distance = 1
    while distance < count:
        stage = []
        for j in range(count):
            low, high = j & ~distance, j | distance
            shift = distance if j & distance else 0
            picked = tuple(
                lane + shift if not lane & distance else lanes + lane - distance + shift
                for lane in range(lanes)
            )
            stage.append((low, high, picked))
        stages.append(stage)
        distance *= 2
    return stages
