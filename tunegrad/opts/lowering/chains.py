"""Long f32 sums in blocks: no accumulator takes more than ``BLOCK`` terms before f64 takes its sum
over.

A chain of n additions in f32 has an error of up to n u sum|x|, u = 2^-24, and from 2^24 equal terms
on it stands still. So a sum whose accumulators would take many terms is cut, wherever its
accumulators live:

    registers                                     memory (reduce loops around the region)
        v0 = 0                                        for k0 in many:
        for r in R:                                       C = C + sum over k1
            v0 += x[r]
            -->                                           -->
        v0 = 0, v0.wide = 0 (f64)                     for k0 in many:
        for r.block in R / b:                             v0.partial[..] += sum over k1    (f64)
            for r.step in b:                          C = v0.partial[..]                   (last k0)
                v0 += x[r.block * b + r.step]
            v0.wide += v0;  v0 = 0
        v0 = v0.wide + v0

By hand, ``x.sum()`` of 2^31 numbers in one serial loop is

    for r.block in 8388608:
        for r.step in 256: v0 += x[256 * r.block + r.step]
        v0.wide += f64(v0);  v0 = 0
    out = f32(v0.wide)

and every lane and every copy of an ``upcast`` reduce loop has a ``.wide`` of its own; lanes and
copies are few, and are folded in f32 as ever. The loop that is cut is the one in which the terms of
an iteration and of all loops inside it first exceed a block; a partial iteration that is peeled off
after it is a block of its own.

With n terms an accumulator and m blocks its error is at most (BLOCK - 1) u + m 2^-53 + u of sum|x|,
to first order (N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 4.2: blocks),
where one chain has (n - 1) u. Short sums stay one chain: ``LONG_SUM`` and ``LONG_DOT`` say above
how many terms they are cut. Integers, f64, MAX, MIN and PROD are never cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Op
from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

__all__ = ["BLOCK", "LONG_DOT", "LONG_SUM", "MOST_PARTIALS", "Cut", "cut_of", "has_wide_partials"]

BLOCK = 256
"""Terms between two additions in f64. Of uniform numbers a chain of 256 has an error of 0.22
sqrt(256) u = 2e-7 (one standard deviation), so that five of them stay within 1e-6; the five
operations of a flush are 2 % of its additions.
"""

MOST_PARTIALS = 64
"""Partial sums that are added in f32 in memory: a quarter of a block, because their errors are the
last ones and no others average them out (the largest of 6,144 results of a product in 256 partial
sums was 7e-7 off).
"""

LONG_SUM = 1024
LONG_DOT = 8192
"""Terms of one accumulator above which sums, and sums of products, are cut: sums, those of squares
among them, are bound by memory, where a flush costs nothing. No sum of ResNet-50 or of the encoder
is as long (at most 768, and 4,608 products).
"""


@dataclass(frozen=True, slots=True)
class Cut:
    """After every ``step`` iterations of ``loop``, accumulators are added into their f64
    registers.
    """

    loop: str
    step: int


def cut_of(tree: LoopTree, stage: int) -> Cut | None:
    """The cut of a reduce stage's chain inside the region; None where the chain is short or
    exact.
    """
    own = _chain(tree, stage)
    if not _is_long(tree, stage) or prod(x.extent for x in own) <= BLOCK:
        return None
    inside = prod(x.extent for x in own if x.kind is LoopKind.UNROLL)
    serial = [x for x in own if x.kind is LoopKind.SERIAL and x.extent > 1]
    for loop in reversed(serial):
        if inside * loop.extent > BLOCK:
            return Cut(loop.name, _step(loop.extent, max(1, BLOCK // inside)))
        inside *= loop.extent
    return None  # one iteration, unrolled: as many instructions as terms


def has_wide_partials(tree: LoopTree, stage: int) -> bool:
    """True if the partial sums that a reduce stage keeps in memory are f64."""
    return _is_long(tree, stage) and prod(x.extent for x in tree.partial) > MOST_PARTIALS


def _is_long(tree: LoopTree, stage: int) -> bool:
    s = tree.kernel.stages[stage]
    if not isinstance(s, Reduce) or s.op is not Op.ADD or s.dtype != F32:
        return False
    terms = prod(x.extent for x in (*_chain(tree, stage), *tree.partial))
    x = s.expr
    products = isinstance(x, Apply) and x.op in (Op.MUL, Op.DOT2) and x.args[0] != x.args[1]
    return terms > (LONG_DOT if products else LONG_SUM)


def _chain(tree: LoopTree, stage: int) -> list[Loop]:
    """The loops whose iterations add to one accumulator in turn."""
    kinds = (LoopKind.SERIAL, LoopKind.UNROLL)
    return [x for x in tree.own(stage) if x.kind in kinds and x.reduce]


def _step(extent: int, most: int) -> int:
    """Iterations of a block: a divisor of the extent above a quarter of the most, where there is
    one.
    """
    return next((d for d in range(most, most // 4, -1) if extent % d == 0), most)
