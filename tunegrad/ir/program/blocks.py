"""Instructions that hold others: loops, conditions, loops whose copies run ahead; and ways through
all of a body.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..index import Index, Valid
from .instructions import Single
from .matrices import MatLoad, MatMul, TileInstr

__all__ = ["For", "If", "Instr", "Pipeline", "size", "walk"]


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(0, min(stops))``; ``inner`` is the number of threads nested inside each
    share (two axes).

    ``extent`` bounds every stop (the variable's range is ``[0, extent)``).
    """

    var: str
    extent: int
    stops: tuple[Index, ...]
    body: tuple[Instr, ...]
    kind: Literal["serial", "thread", "local"] = "serial"
    count: int = 1
    inner: int = 1


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``for var in range(extent): barrier; copies; barrier; body``, so that copies run ahead.

    That loop says what it means. ``copies`` write only to shared memory that nothing else writes,
    and read what the program never writes. That memory has ``slots`` places, one for each iteration
    that is copied or in use; an offset in ``copies`` and ``body`` is that of the first.
    ``expand_pipelines`` makes it the loop that runs:

        copies of iterations 0 to slots-2, a batch each
        for var:
            wait for this iteration's batch; barrier
            copies of iteration var + slots-1, a batch
            body
    """

    var: str
    extent: int
    slots: int
    copies: tuple[Instr, ...]
    body: tuple[Instr, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Runs ``body`` where ``valid`` holds, else ``orelse``."""

    valid: Valid
    body: tuple[Instr, ...]
    orelse: tuple[Instr, ...] = ()


Instr = Single | MatMul | MatLoad | TileInstr | For | If | Pipeline


def walk(body: tuple[Instr, ...]) -> Iterator[Instr]:
    """Every instruction, outer before inner."""
    left = [iter(body)]
    while left:
        for i in left[-1]:
            yield i
            if isinstance(i, For):
                left.append(iter(i.body))
                break
            if isinstance(i, If):
                left += [iter(i.orelse), iter(i.body)]
                break
            if isinstance(i, Pipeline):
                left += [iter(i.body), iter(i.copies)]
                break
        else:
            left.pop()


def size(body: tuple[Instr, ...]) -> int:
    """Number of instructions that ``walk`` finds."""
    total = len(body)
    for i in body:
        if isinstance(i, For):
            total += size(i.body)
        elif isinstance(i, If):
            total += size(i.body) + size(i.orelse)
        elif isinstance(i, Pipeline):
            total += size(i.copies) + size(i.body)
    return total
