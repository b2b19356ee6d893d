"""A program: a loop tree lowered for one target.

Structured, typed, in execution order; ready to print.

It is SPMD: every thread of a team (CPU) or work-item of a group (GPU) runs the whole body. ``For``
loops of kind

    serial  all iterations are run by every thread or work-item
    thread  iterations split in contiguous shares over ``count`` CPU threads, or one per GPU
            work-group
    local   one iteration per GPU work-item of the group

so code outside ``thread`` and ``local`` loops runs everywhere, and may store only to memory that is
private or to the same values. ``Barrier`` waits for the whole team (CPU) or group (GPU).

Addresses are ``Index`` sums over loop variables, in elements. A vector instruction names its lane
variable: ``Load(lane="n2", offset=16*n0+n2)`` is a contiguous load of ``vtype.lanes`` elements; a
coefficient of 0 is a splat of one scalar, any other a strided gather. A value is an int id, defined
once, and visible in the blocks inside its own.

Buffers are the parameters and the ``Alloc``s. Spaces: ``thread`` is private to a thread, ``team``
shared by all of them, ``shared`` is a GPU group's local memory. ``Pack``s are extra constant
buffers, filled once when a model is loaded.
"""

from __future__ import annotations

from ..pack import Pack
from .blocks import For, If, Instr, Pipeline, size, walk
from .buffers import Alloc, Buffer
from .instructions import (
    Await,
    Barrier,
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
    Valued,
    VType,
    Write,
)
from .matrices import (
    MatLoad,
    MatMul,
    TileConfig,
    TileInstr,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
)
from .whole import Program, indexed, indices

__all__ = [
    "Alloc",
    "Await",
    "Barrier",
    "Buffer",
    "Commit",
    "Compute",
    "Convert",
    "CopyAsync",
    "Fold",
    "For",
    "If",
    "Instr",
    "Load",
    "MatLoad",
    "MatMul",
    "Number",
    "Pack",
    "Pipeline",
    "Position",
    "Program",
    "Read",
    "Register",
    "Select",
    "Shuffle",
    "Splat",
    "Store",
    "Test",
    "TileConfig",
    "TileInstr",
    "TileLoad",
    "TileMul",
    "TileStore",
    "TileZero",
    "VType",
    "Valued",
    "Write",
    "indexed",
    "indices",
    "size",
    "walk",
]
