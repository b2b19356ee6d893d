"""The canonical print of a body: one line for each instruction, blocks indented."""

from __future__ import annotations

from collections.abc import Iterator

from .blocks import For, If, Instr, Pipeline
from .instructions import (
    Await,
    Commit,
    Compute,
    Convert,
    CopyAsync,
    Fold,
    Load,
    Number,
    Position,
    Read,
    Register,
    Select,
    Shuffle,
    Splat,
    Store,
    Test,
    Write,
)
from .matrices import MatLoad, MatMul, TileConfig, TileLoad, TileMul, TileStore, TileZero

__all__ = ["body_lines"]


def body_lines(body: tuple[Instr, ...], pad: str) -> Iterator[str]:
    """The lines of ``body``, each after ``pad``."""
    for i in body:
        if isinstance(i, For):
            how = "" if i.kind == "serial" else f" {i.kind}({i.count},{i.inner})"
            yield f"{pad}for {i.var} in {' min '.join(s.key for s in i.stops)}{how}:"
            yield from body_lines(i.body, pad + "  ")
        elif isinstance(i, If):
            yield f"{pad}if {i.valid}:"
            yield from body_lines(i.body, pad + "  ")
            if i.orelse:
                yield f"{pad}else:"
                yield from body_lines(i.orelse, pad + "  ")
        elif isinstance(i, Pipeline):
            yield f"{pad}pipeline {i.var} in {i.extent} slots {i.slots}:"
            yield from body_lines(i.copies, pad + "  ")
            yield f"{pad}then:"
            yield from body_lines(i.body, pad + "  ")
        else:
            yield pad + _line(i)


def _line(i: Instr) -> str:
    match i:
        case Number(id, value, t):
            return f"%{id} = {value!r} {t}"
        case Load(id, buffer, offset, t, lane, mask, ahead):
            hint = f" prefetch {ahead}" if ahead else ""
            return (
                f"%{id} = {buffer}[{offset}] "
                f"{t}{f' lane {lane}' if lane else ''}{_masked(mask)}{hint}"
            )
        case Store(buffer, offset, value, t, lane, mask, stream):
            hint = " stream" if stream else ""
            return (
                f"{buffer}[{offset}] = %{value} "
                f"{t}{f' lane {lane}' if lane else ''}{_masked(mask)}{hint}"
            )
        case Compute(id, op, args, t):
            return f"%{id} = {op} {' '.join(f'%{a}' for a in args)} {t}"
        case Convert(id, arg, t):
            return f"%{id} = convert %{arg} {t}"
        case Splat(id, arg, t):
            return f"%{id} = splat %{arg} {t}"
        case Fold(id, op, arg, t):
            return f"%{id} = fold {op} %{arg} {t}"
        case Select(id, mask, yes, no, t):
            return f"%{id} = select %{mask} %{yes} %{no} {t}"
        case Position(id, index, t, lane):
            return f"%{id} = position {index} {t}{f' lane {lane}' if lane else ''}"
        case Test(id, valid, lanes, lane):
            return f"%{id} = test {valid} x{lanes}{f' lane {lane}' if lane else ''}"
        case Register(name, t):
            return f"register {name} {t}"
        case Read(id, name, t):
            return f"%{id} = {name} {t}"
        case Write(name, value, t):
            return f"{name} = %{value} {t}"
        case _:
            return _group_line(i)


def _group_line(i: Instr) -> str:
    match i:
        case MatMul(ids, unit, a, b, c, _):
            parts = (" ".join(f"%{x}" for x in given) for given in (a, b, c))
            return f"{' '.join(f'%{x}' for x in ids)} = matmul {unit} {', '.join(parts)}"
        case MatLoad(ids, buffer, offset, t, transposed):
            how = " transposed" if transposed else ""
            return f"{' '.join(f'%{x}' for x in ids)} = matrices {buffer}[{offset}] {t}{how}"
        case Shuffle(id, arg, across, t):
            return f"%{id} = shuffle %{arg} across {across} {t}"
        case CopyAsync(buffer, into, source, offset, t, lane, mask):
            what = f"{buffer}[{into}] = {source}[{offset}]"
            return f"async {what} {t}{f' lane {lane}' if lane else ''}{_masked(mask)}"
        case TileConfig(unit, rows):
            return f"tiles {unit} rows {' '.join(map(str, rows))}"
        case TileZero(tile):
            return f"tile{tile} = 0"
        case TileLoad(tile, buffer, offset, t, row, lane, rows):
            return f"tile{tile} = {buffer}[{offset}] {t} lane {lane} rows {row}:{rows}"
        case TileMul(tile, a, b, unit):
            return f"tile{tile} += tile{a} * tile{b} {unit}"
        case TileStore(tile, buffer, offset, t, row, lane, rows):
            return f"{buffer}[{offset}] = tile{tile} {t} lane {lane} rows {row}:{rows}"
        case Commit():
            return "commit"
        case Await(left):
            return f"await {left}"
        case _:
            return "barrier"


def _masked(mask: int | None) -> str:
    return "" if mask is None else f" mask %{mask}"
