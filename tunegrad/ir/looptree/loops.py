"""A loop tree's parts: loops and their kinds, staged copies, loops that matrix units run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..target import MatrixUnit, TileUnit

__all__ = ["LANES", "Loop", "LoopKind", "MatrixTile", "Staged", "TileLoops"]


class LoopKind(StrEnum):
    """The way in which the iterations of a loop run."""

    SERIAL = "serial"
    UNROLL = "unroll"
    UPCAST = "upcast"
    VECTOR = "vector"
    GROUP = "group"
    THREAD = "thread"
    LOCAL = "local"
    MATRIX = "matrix"

    is_register: bool
    """True if its iterations are instructions or lanes rather than trips of a loop."""

    def __init__(self, text: str) -> None:
        self.is_register = text in ("unroll", "upcast", "vector", "group", "matrix")


LANES = (LoopKind.VECTOR, LoopKind.GROUP)
"""The kinds whose iterations are lanes of a vector."""


@dataclass(frozen=True, slots=True)
class Loop:
    """``extent`` steps of one or (fused) several axes.

    ``stage`` is -1 on shared axes, else the stage that owns it.
    """

    name: str
    extent: int
    axes: tuple[str, ...]
    stage: int
    reduce: bool
    kind: LoopKind = LoopKind.SERIAL
    count: int = 1

    def renamed(self, name: str) -> Loop:
        """The same loop under another name."""
        return Loop(name, self.extent, self.axes, self.stage, self.reduce, self.kind, self.count)

    def resized(self, name: str, extent: int) -> Loop:
        """A loop of another name and extent over the same axes."""
        return Loop(name, extent, self.axes, self.stage, self.reduce, self.kind, self.count)

    def run_as(self, kind: LoopKind, count: int = 1) -> Loop:
        """The same loop, its iterations of another kind."""
        return Loop(self.name, self.extent, self.axes, self.stage, self.reduce, kind, count)


@dataclass(frozen=True, slots=True)
class Staged:
    """The region of ``param`` used inside loop ``at``, copied to scratch.

    ``at`` is "" for the whole nest, and "load" for once, when the model is loaded. ``layout`` names
    the loops that index the copy, outermost first; without it the copy keeps the parameter's own
    dimensions, padding zero-filled.
    """

    param: str
    at: str
    layout: tuple[str, ...] = ()

    @property
    def buffer(self) -> str:
        """Name of the copy."""
        return f"{self.param}.{self.at or 'root'}"


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """The loops that a matrix unit runs: of m ``high`` registers and ``row`` work-items, of n
    ``column`` work-items and a ``pair`` of registers, and all of k.
    """

    unit: MatrixUnit
    high: str
    row: str
    column: str
    pair: str
    k: str


@dataclass(frozen=True, slots=True)
class TileLoops:
    """The loops that a thread's tile registers hold: the rows ``m``, the lanes ``n``, and ``k``."""

    unit: TileUnit
    m: str
    n: str
    k: str
