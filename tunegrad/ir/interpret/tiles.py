"""Tile registers of one thread, as closures: what they hold are arrays (row, column).

A row is read and written as a vector is, so that bounds, first writes and races are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import numpy as np

from .. import program as p
from ..dtypes import DTYPES
from .access import Step, Values, load_step, store_step
from .index import Env, IndexCompiler
from .matrices import multiply_tiles
from .memory import Memory

__all__ = ["tile_step"]

Slot = Callable[[str], int]
Fault = Callable[[str, Env], Never]


def tile_step(
    i: p.TileInstr,
    memory: dict[str, Memory], names: IndexCompiler, slot: Slot, fault: Fault,
) -> Step:  # fmt: skip
    """The closure that runs ``i``; ``slot`` gives the place of a value by its name."""
    match i:
        case p.TileConfig(unit, rows):
            slots = [slot(_name(t)) for t in range(len(rows))]
            config, form = slot("tiles"), (unit.shape[1], DTYPES[unit.dtypes[1]].numpy)

            def configure(v: Values, _: Env) -> None:
                for s in slots:
                    v[s] = None
                v[config] = rows, *form

            return configure
        case p.TileZero(tile):
            to, config = slot(_name(tile)), slot("tiles")

            def zero(v: Values, _: Env) -> None:
                rows, columns, dtype = v[config]
                v[to] = np.zeros((rows[tile], columns), dtype)

            return zero
        case p.TileLoad():
            return _load(i, memory[i.buffer], names, slot, fault)
        case p.TileStore():
            return _store(i, memory[i.buffer], names, slot, fault)
        case p.TileMul(tile, a, b, unit):
            held = [slot(_name(t)) for t in (tile, a, b)]

            def multiply(v: Values, e: Env) -> None:
                c, x, y = (v[s] for s in held)
                if c is None or x is None or y is None:
                    fault("reads a tile register that was never written", e)
                v[held[0]] = multiply_tiles(unit, x, y, c)

            return multiply


def _load(i: p.TileLoad, memory: Memory, names: IndexCompiler, slot: Slot, fault: Fault) -> Step:
    to, row = slot(_name(i.tile)), slot("tile row")
    steps = [load_step(i.line(r), memory, names, row, None, fault) for r in range(i.rows)]

    def load(v: Values, e: Env) -> None:
        lines: list[Any] = []
        for step in steps:
            step(v, e)
            lines.append(v[row])
        v[to] = np.stack(lines)

    return load


def _store(i: p.TileStore, memory: Memory, names: IndexCompiler, slot: Slot, fault: Fault) -> Step:
    source, row = slot(_name(i.tile)), slot("tile row")
    steps = [store_step(i.line(r), memory, names, row, None, fault) for r in range(i.rows)]

    def store(v: Values, e: Env) -> None:
        if v[source] is None:
            fault("reads a tile register that was never written", e)
        for line, step in zip(v[source], steps, strict=True):
            v[row] = line
            step(v, e)

    return store


def _name(tile: int) -> str:
    return f"tile {tile}"
