"""Limits of a machine, as values: peaks of arithmetic and of memory."""

from __future__ import annotations

from dataclasses import astuple, dataclass

__all__ = ["MachineLimits"]


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Measured peaks by thread count, as sorted (threads, value) pairs: FLOP/s of f32 FMA, and
    bytes per second.

    Read counts the bytes read; triad (``a = b + s*c``) counts three arrays, without the
    write-allocate traffic of plain stores. DRAM arrays are dropped from all caches first; L2 arrays
    are half an L2 per thread. ``products`` are (matrix unit, operations a second) of the whole
    device, of those that were measured.
    """

    fma_f32: tuple[tuple[int, float], ...]
    read_dram: tuple[tuple[int, float], ...]
    triad_dram: tuple[tuple[int, float], ...]
    read_l2: tuple[tuple[int, float], ...]
    triad_l2: tuple[tuple[int, float], ...]
    products: tuple[tuple[str, float], ...] = ()

    def flops(self, threads: int) -> float:
        """f32 FLOP/s of ``threads`` threads, interpolated in proportion between measured counts."""
        return _at(self.fma_f32, threads)

    def bandwidth(self, threads: int) -> float:
        """Bytes per second read from DRAM by ``threads`` threads."""
        return _at(self.read_dram, threads)

    def best(self, other: MachineLimits) -> MachineLimits:
        """The better of two measurements of one machine, figure by figure."""
        both = zip(astuple(self), astuple(other), strict=True)
        return MachineLimits(
            *(tuple(max(pair) for pair in zip(a, b, strict=True)) for a, b in both)
        )


def _at(table: tuple[tuple[int, float], ...], threads: int) -> float:
    below = max((pair for pair in table if pair[0] <= threads), default=table[0])
    return below[1] * threads / below[0]
