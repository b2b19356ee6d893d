"""The loop tree: a kernel in some order, before it is lowered for a target.

The state is a flat list of loops, outermost first, plus what is staged where. The nest follows from
the list by four rules, so an action only edits the list:

1. ``upcast``, ``vectorize``, ``unroll`` and ``group`` loops are register loops: wherever they stand
   in the list, they run innermost.
2. The *region* begins after the last serial, thread or local loop of a shared axis. Inside it every
   accumulator is a register. Each stage runs there in turn, over its own loops.
3. A reduce loop before the region (K-blocking) makes partial sums live in the output between its
   iterations; the epilogue runs in the last one, while the tile is still in registers.
4. A local loop of one stage's own begins with the stage, wherever it stands: its place among the
   other local loops only says how work-items are numbered, the innermost fastest.

    for k0 in 4:                                 # outside the region: partial sums live in C
        copy B -> B.k0 (n0, k1, n1, n2)
        for m0 in 8 on threads:
            copy A -> A.m0 (m1, m2, k1)
            for n0 in 32:
                for m1 in 12:                    # the region: 12 x 2 accumulators of 16 lanes
                    v0 = 0 or C
                    for k1 in 256:
                        v0[m2, n1, n2] += ...
                    C = epilogue(v0) or v0
"""

from __future__ import annotations

from .loops import Loop, LoopKind, MatrixTile, Staged, TileLoops
from .tree import LoopTree, accumulators, loop_tree, operand

__all__ = [
    "Loop",
    "LoopKind",
    "LoopTree",
    "MatrixTile",
    "Staged",
    "TileLoops",
    "accumulators",
    "loop_tree",
    "operand",
]
