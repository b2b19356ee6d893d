"""Decisions about memory traffic that every sketch asks for last: streaming stores, prefetches,
kept values.
"""

from __future__ import annotations

from tunegrad.ir.expr import Apply, Expr, Op
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Keep, Prefetch, Stream
from ..choosing import Recorder
from ..keeping import readers_of
from .analysis import once

__all__ = ["costly", "keep_hints", "memory_hints"]

_DISTANCES = (0, 256, 512, 1024, 4096)
_COSTLY = frozenset(
    (Op.EXP, Op.LOG, Op.LOG2, Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.POW, Op.SQRT, Op.DIV)
)


def memory_hints(
    kernel: Kernel, target: Target, ask: Recorder, *, partial: bool = False, row_bytes: int = 0
) -> list[Action]:
    """Streaming stores of outputs and prefetches of inputs where the last-level cache does not hold
    all of them.

    By default nothing is prefetched: what the hardware asks for is enough, and more costs
    bandwidth. ``partial``: the outputs hold partial sums, which are read again. ``row_bytes``: of
    an input that is read row by row in several stages; while one row is computed on, the next one
    may come into the first cache.
    """
    actions: list[Action] = []
    sizes = once(kernel, "bytes", lambda: [p.nbytes for p in kernel.params])
    everything = sum(sizes)
    for p, nbytes in zip(kernel.params, sizes, strict=True):
        if nbytes <= (
            target.l2_bytes if row_bytes and p.role == "in" else target.cached_bytes // 4
        ):
            continue
        if p.role == "out":
            past = int(everything >= target.cached_bytes)
            can = target.can_stream and not partial
            if can and ask.pick(f"stream.{p.name}", [False, True], past):
                actions.append(Stream(p.name))
        elif target.can_prefetch and (nbytes > target.cached_bytes // 2 or row_bytes):
            near = next((i for i, d in enumerate(_DISTANCES) if d >= row_bytes), 0)
            ahead = ask.pick(f"prefetch.{p.name}", _DISTANCES, near)
            actions += [Prefetch(p.name, ahead)] if ahead else []
    return actions


def keep_hints(kernel: Kernel, target: Target, ask: Recorder) -> list[Action]:
    """Keeping what a later stage would compute again; by default where that is costly."""
    if not target.can_keep:
        return []
    actions: list[Action] = []
    for i, stage in enumerate(kernel.stages):
        again = bool(readers_of(kernel, i))
        if again and ask.pick(f"keep{i}", [False, True], int(costly(stage.expr))):
            actions.append(Keep(i))
    return actions


def costly(x: Expr) -> bool:
    """True if an expression is made of operations that take many instructions."""
    return isinstance(x, Apply) and (x.op in _COSTLY or any(costly(a) for a in x.args))
