"""Masks: this machine's CPU as an older one, so that one machine tests the code of several.

    TUNEGRAD_CPU_TARGET=znver3          AVX2: 16 registers of 32 bytes, no products of bytes
    TUNEGRAD_CPU_TARGET=skylake-avx512  AVX-512: 32 registers of 64 bytes, no products of bytes

The mask names the scheduling model, and takes away each vector extension that the older processor
lacks; a scalar extension stays, since no code of ours asks for one. LLVM's name and features are
fields of the fingerprint: a masked machine and the machine itself share no row of a store.
"""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.errors import ConfigError

__all__ = ["masked"]

_HAS: dict[str, frozenset[str]] = {
    "znver3": frozenset(),
    "skylake-avx512": frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")),
}
"""The vector extensions beyond AVX2 of each processor, but those of cryptography, which no code of
ours asks for. Source: LLVM 22, X86.td.
"""

_BASE = frozenset(("avx2", "fma", "f16c"))

_BEYOND = ("amx-", "avx10", "avx512", "avxifma", "avxneconvert", "avxvnni", "gfni", "vaes",
           "vpclmulqdq")  # fmt: skip
"""Prefixes of LLVM's names of vector extensions beyond AVX2."""


def masked(name: str, features: Sequence[str]) -> tuple[str, ...]:
    """This machine's features, each with its sign, without those that the processor ``name`` lacks.

    Raises ConfigError for an unknown name, and where this machine lacks what that processor has.
    """
    has = _HAS.get(name)
    if has is None:
        raise ConfigError(f"TUNEGRAD_CPU_TARGET={name!r}; valid: {', '.join(_HAS)}")
    enabled = {f[1:] for f in features if f.startswith("+")}
    if missing := sorted(x for x in _BASE | has if x not in enabled):
        raise ConfigError(
            f"TUNEGRAD_CPU_TARGET={name}: this machine's CPU lacks {', '.join(missing)}"
        )
    return tuple(f"-{f[1:]}" if f[1:] not in has and f[1:].startswith(_BEYOND) else f
                 for f in features)  # fmt: skip
