"""Which variant of a kernel a model runs: what was measured, else what a model of the machine expects.

A stored choice is a trial of the direct kernel whose action text is ``variant(NAME)``: its samples are runs of all the
variant's kernels, and it is promoted over the direct schedule, or under it, like any other trial. A strict setting of
the numerics allows only "direct".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tunegrad.config import Numerics
from tunegrad.db import Hit, Store
from tunegrad.ir.fusion import Schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, match_conv3x3, parts_of, rewrite, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Fingerprint

__all__ = ["expected", "pick_variants", "picked", "stored_variant", "variant_text"]

_TEXT = re.compile(r"variant\((\w+)\)")
_PEAK_FLOPS_PER_CORE = 1e11
_CACHE_BYTES_PER_S = 5e10
_MEMORY_BYTES_PER_S = 2.5e10


def variant_text(variant: str) -> str:
    """The action text that stands for a variant in the store."""
    return f"variant({variant})"


def stored_variant(actions: str) -> str | None:
    """The variant that an action text names; None when it is a schedule."""
    found = _TEXT.fullmatch(actions)
    return found.group(1) if found else None


def expected(kernel: Kernel, target: Target) -> str:
    """The variant that a model of the machine expects to be fastest.

    Each kernel of a variant takes the longer of its arithmetic at peak and its bytes: what fits the last-level cache at
    that cache's rate, the rest at memory's.
    """
    best = min(variants_of(kernel), key=lambda v: (_expected_s(kernel, v, target), v != DIRECT))
    conv = match_conv3x3(kernel)
    return best if conv is not None else DIRECT


def _expected_s(kernel: Kernel, variant: str, target: Target) -> float:
    total = 0.0
    for part in parts_of(kernel, variant):
        rate = _CACHE_BYTES_PER_S if part.unique_bytes < target.l3_bytes // 2 else _MEMORY_BYTES_PER_S
        lanes = target.vector_bytes / 64
        flops_s = part.flops / (_PEAK_FLOPS_PER_CORE * lanes * target.threads)
        total += max(flops_s, part.unique_bytes / rate)
    return total


def picked(
    plan: Schedule, target: Target, here: Fingerprint, store: Store | None, numerics: Numerics
) -> dict[str, str]:
    """A variant for every kernel of ``plan`` that has several, by key: the stored choice, else the expected one."""
    picks: dict[str, str] = {}
    if numerics == "strict":
        return picks
    for key, (kernel, _) in plan.kernels().items():
        names = variants_of(kernel)
        if len(names) == 1:
            continue
        found = None if store is None else store.lookup(key, here, SPACE_VERSION)
        stored = stored_variant(found.trial.actions) or DIRECT if isinstance(found, Hit) else None
        picks[key] = stored if stored in names else expected(kernel, target)
    return picks


def pick_variants(
    plan: Schedule, target: Target, here: Fingerprint, store: Store | None, numerics: Numerics
) -> tuple[Schedule, Mapping[str, str]]:
    """``plan`` with its kernels as the variants that are picked, and those picks."""
    picks = picked(plan, target, here, store, numerics)
    return rewrite(plan, picks), picks
