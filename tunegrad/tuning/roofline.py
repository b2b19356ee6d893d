"""The roofline: how near to the machine's limits a kernel runs, by its arithmetic over the peak of
what computes it, or its bytes over the bandwidth.

The arithmetic of a product with a padded operand is counted without the taps that fall on the
padding, which a good kernel skips: a 3x3 convolution of 7x7 pixels has 18 % fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod
from typing import Literal

import numpy as np

from tunegrad.devices import MachineLimits
from tunegrad.ir.expr import PRODUCTS, Apply, Cast, Expr, Load, Op
from tunegrad.ir.index import Index, Range, Valid
from tunegrad.ir.kernel import Kernel, Reduce, memoized
from tunegrad.ir.target import Target
from tunegrad.opts import product_rate

_MAX_POINTS = 1 << 22

_FASTER = 3.0
"""Peaks may be measured in a busy moment, and a schedule may skip what a mask hides: neither makes
it so many times as fast as the peak.
"""


_FIRST_LEVEL = 4.0
"""Of what the second level gives: processors load and store two or three vectors a cycle from the
first, and one from the second.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds of a kernel's arithmetic at its peak, and of its bytes at ``level``'s bandwidth."""

    flops_s: float
    bytes_s: float
    level: Literal["cache", "memory"]

    @property
    def seconds(self) -> float:
        """The nearer bound: no schedule can beat it."""
        return max(self.flops_s, self.bytes_s)


@dataclass(frozen=True, slots=True)
class Roofline:
    """The measured limits of this machine with the threads of ``target``."""

    limits: MachineLimits
    target: Target

    @property
    def peak_flops_per_s(self) -> float:
        """f32 FMA peak of all the target's threads."""
        return self.limits.flops(self.target.threads)

    @property
    def cache_bytes_per_s(self) -> float:
        """Bytes a second that all threads read from second-level caches; or infinity."""
        return dict(self.limits.read_l2).get(self.target.threads) or inf

    @property
    def memory_bytes_per_s(self) -> float:
        """Bytes a second that all the target's threads read from memory."""
        return self.limits.bandwidth(self.target.threads)

    def flops_per_s(self, kernel: Kernel) -> float:
        """Peak of what computes a kernel: of a matrix unit as it was measured, of what was not as
        much more than f32's as the target's rates say.
        """
        rate = product_rate(kernel, self.target)
        measured = dict(self.limits.products).get(rate)
        return measured or self.peak_flops_per_s * self.target.rates.speedup(rate)

    def bounds(self, kernel: Kernel) -> Bounds:
        """Both bounds of a kernel.

        Kernels whose buffers fit into the last-level cache are held to the second level's
        bandwidth, others to the memory's: a bound that is out of reach is better than one that is
        passed.
        """
        in_cache = kernel.unique_bytes <= self.target.cached_bytes
        bandwidth = self.cache_bytes_per_s if in_cache else self.memory_bytes_per_s
        bytes_s = kernel.unique_bytes / (bandwidth or inf)
        flops_s = needed_flops(kernel) / self.flops_per_s(kernel)
        return Bounds(flops_s, bytes_s, "cache" if in_cache else "memory")

    def bound_s(self, kernel: Kernel) -> float:
        """Seconds that no schedule can beat: the nearer of the two bounds."""
        return self.bounds(kernel).seconds

    def refusal(self, kernel: Kernel, seconds: float) -> str:
        """Reason for which a time can not be one of the kernel, with both figures; '' where it can.

        ``_FASTER`` times as fast as the measured peaks of its sums of products, of the memory for
        what no cache holds, or of second-level caches for what no first-level cache holds, is no
        schedule: something was not computed. First-level caches were not measured: they give no
        more than ``_FIRST_LEVEL`` times as much.
        """
        read, written = _least_bytes(kernel)
        one_way, near = max(read, written), self.cache_bytes_per_s
        moves = (
            (
                read + written - self.target.cached_bytes,
                self.memory_bytes_per_s,
                " beyond what caches hold",
            ),
            (
                one_way - self.target.threads * self.target.l1_bytes,
                near,
                " beyond what first-level caches hold",
            ),
            (one_way, _FIRST_LEVEL * near, ""),
        )
        for nbytes, bandwidth, what in moves:
            if 0 < seconds * _FASTER < nbytes / (bandwidth or inf):
                return (
                    f"took {seconds:.4g} s, at least {nbytes / bandwidth:.4g} s are "
                    f"possible: {nbytes} bytes{what}, at "
                    f"{bandwidth / 1e9:.4g} GB/s as the machine was measured"
                )
        flops, rate = needed_flops(kernel), self.flops_per_s(kernel)
        sums = any(isinstance(s, Reduce) and _is_product(s) for s in kernel.stages)
        if sums and 0 < seconds * _FASTER < flops / rate:
            return (
                f"took {seconds:.4g} s, at least {flops / rate:.4g} s are possible: {flops} "
                f"operations, at {rate / 1e9:.4g} GFLOP/s as the machine was measured"
            )
        return ""

    def raised(self, kernel: Kernel, seconds: float) -> Roofline:
        """The same, with a peak that a run of ``seconds`` passed as high as that run: it was
        measured in a busy moment, or in another cache.
        """
        bounds = self.bounds(kernel)
        if not 0 < seconds < bounds.seconds:
            return self
        level = "read_l2" if bounds.level == "cache" else "read_dram"
        gains = {"fma_f32": bounds.flops_s, "products": bounds.flops_s, level: bounds.bytes_s}
        peaks = {
            name: tuple((at, v * max(1.0, s / seconds)) for at, v in getattr(self.limits, name))
            for name, s in gains.items()
        }
        return replace(self, limits=replace(self.limits, **peaks))

    def pct_peak(self, kernel: Kernel, seconds: float) -> float:
        """Per cent of the nearer bound that a run of ``seconds`` reaches; 0 if it never ran."""
        return 100.0 * self.bound_s(kernel) / seconds if 0 < seconds < inf else 0.0


@memoized()
def _least_bytes(kernel: Kernel) -> tuple[int, int]:
    """Bytes that any schedule reads and writes: of a parameter of which a part is read, that part;
    of one that is read in several places, the largest of them. None of what a mask may hide.
    """
    extents = {a.name: a.extent for a in kernel.all_axes()}

    def elements(index: tuple[Index, ...], valid: Valid) -> int:
        each = (min(i.hi - i.lo + 1, prod(extents[n] for n in i.names())) for i in index)
        names = frozenset[str]().union(*(i.names() for i in index))
        return int(min(prod(each), prod(extents[n] for n in names)) * _share(valid, unknown=0.0))

    read, written = dict[str, int](), dict[str, int]()
    for _, x in kernel.loads:
        read[x.param] = max(read.get(x.param, 0), elements(x.index, x.valid))
    for s in kernel.stores:
        written[s.param] = written.get(s.param, 0) + elements(s.index, s.valid)
    r, w = (
        sum(
            min(p.nbytes, n * p.dtype.itemsize)
            for name, n in x.items()
            for p in [kernel.param(name)]
        )
        for x in (read, written)
    )
    return r, w


def _is_product(r: Reduce) -> bool:
    return r.op is Op.ADD and isinstance(r.expr, Apply) and r.expr.op in PRODUCTS


@memoized()
def needed_flops(kernel: Kernel) -> int:
    """Floating-point operations of one run, without products of padding."""
    total = kernel.flops
    for s in kernel.stages:
        if not (isinstance(s, Reduce) and s.op is Op.ADD):
            continue
        valid = _factor_mask(s.expr)
        if not valid.always:
            steps = kernel.points * prod(a.extent for a in s.axes)
            total -= round((4 if _multiplies_pairs(s) else 2) * steps * (1.0 - _share(valid)))
    return total


def _multiplies_pairs(r: Reduce) -> bool:
    return isinstance(r.expr, Apply) and r.expr.op is Op.DOT2


def _factor_mask(x: Expr) -> Valid:
    """Domain in which the product ``x`` is no padding: conditions of factors that are loads."""
    valid, stack = Valid(), [x]
    while stack:
        node = stack.pop()
        if isinstance(node, Load):
            valid = valid & node.valid
        elif isinstance(node, Cast):
            stack.append(node.x)
        elif isinstance(node, Apply) and node.op in (*PRODUCTS, Op.TF32):
            stack.extend(node.args)
    return valid


def _share(valid: Valid, unknown: float = 1.0) -> float:
    """The share of points where all conditions hold, counted; axes are independent. ``unknown``:
    that of conditions of too many points, or of what is read from memory.
    """
    groups: list[tuple[frozenset[str], list[Range]]] = []
    for r in valid:
        names, ranges = r.index.names(), [r]
        apart = []
        for other, held in groups:
            if other & names:
                names |= other
                ranges += held
            else:
                apart.append((other, held))
        groups = [*apart, (names, ranges)]
    return prod(_counted(ranges, unknown) for _, ranges in groups)


def _counted(ranges: list[Range], unknown: float) -> float:
    variables = sorted({v for r in ranges for v in r.index.variables()}, key=lambda v: v.name)
    many = prod(v.hi - v.lo + 1 for v in variables) > _MAX_POINTS
    if many or any(True for r in ranges for _ in r.index.elements()):
        return unknown
    grid = np.meshgrid(*(np.arange(v.lo, v.hi + 1) for v in variables), indexing="ij", sparse=True)
    env = {v.name: g for v, g in zip(variables, grid, strict=True)}
    holds = np.ones([v.hi - v.lo + 1 for v in variables], bool)
    for r in ranges:
        at = np.asarray(r.index.evaluate(env))  # type: ignore[arg-type]  # arrays of axis values
        holds &= (at >= r.lo) & (at < r.hi)
    return float(holds.mean())
