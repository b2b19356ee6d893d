"""What a kernel is compiled for: plain data, so that a worker can compile for a device it cannot open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Target"]

_MOST_CACHED = 64 << 20
_TWO_FMAS = frozenset(("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "znver5"))


@dataclass(frozen=True, slots=True)
class Target:
    """Facts of one device that change the generated code or the sensible schedules.

    ``vector_bytes`` is the widest SIMD register (GPU: the widest load of one work-item), ``registers`` the number of
    vector registers, cache sizes are of one core except ``l3_bytes``. ``shared_bytes`` and ``max_local`` are zero on
    a CPU. ``arch`` and ``features`` are in the compiler's own words (LLVM's for a CPU).
    """

    name: str
    kind: Literal["cpu", "gpu"]
    arch: str
    features: tuple[str, ...] = ()
    vector_bytes: int = 16
    registers: int = 16
    threads: int = 1
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    shared_bytes: int = 0
    max_local: int = 0

    @property
    def cached_bytes(self) -> int:
        """What the caches can be expected to hold of a kernel's data: the last one, but at most 64 MiB.

        A larger one serves a whole socket, cores that are not ours included: of 480 MiB, two cores read 64 MiB at 22 to
        26 GB/s and 128 MiB at memory's 15 to 20.
        """
        return min(self.l3_bytes, _MOST_CACHED)

    @property
    def fmas_per_cycle(self) -> int:
        """Fused multiply-adds of whole vectors that a core starts in a cycle.

        Two on Intel's server cores (known by their AMX or by name) and on Zen 5, else one of 64 bytes or two of 32.
        """
        if self.vector_bytes < 64:
            return 2
        return 2 if "+amx-tile" in self.features or self.arch in _TWO_FMAS else 1

    @property
    def avx512(self) -> bool:
        """Whether code may use the instructions of AVX-512F."""
        return self.kind == "cpu" and "+avx512f" in self.features

    @property
    def bf16_dot(self) -> bool:
        """Whether one instruction adds the products of bf16 pairs to f32 (AVX512_BF16, at every vector length)."""
        return self.avx512 and {"+avx512bf16", "+avx512vl"} <= set(self.features)

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register."""
        return max(1, self.vector_bytes // itemsize)
