"""Lowering hooks that let the kernels of one Winograd variant crash: all of them, or all but the
default schedules; and one that lets no direct 3x3 convolution through, so that on any machine a
variant is the fastest.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from tunegrad.compiling import Payload, candidate
from tunegrad.devices import Hooks, Lowered
from tunegrad.errors import CompileFailure
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import match_conv3x3, parts_of
from tunegrad.opts import Space
from tunegrad.search.searchers.one_by_one import RandomChooser

HOOKS = Hooks("planted_variants:lower", candidate.HOOKS.inputs, candidate.HOOKS.reference)
OTHERS = Hooks("planted_variants:lower_others", candidate.HOOKS.inputs, candidate.HOOKS.reference)
NO_DIRECT = Hooks("planted_variants:lower_no_direct", HOOKS.inputs, HOOKS.reference)

_TEXT = """
define void @{name}(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {{
  %out = load ptr, ptr %buffers
  %away = getelementptr i8, ptr %out, i64 -35184372088832
  store volatile i32 1, ptr %away
  ret void
}}
"""


@cache  # a worker asks for each candidate, and has some seconds for it
def parts(variant: str) -> set[str]:
    """The kernels of a variant of the convolutions of ``test_variants_tune`` that no other variant
    has.
    """
    from test_variants_tune import convolutions

    names = ("direct", "winograd2", "winograd4")
    keys = {v: {p.key for k in convolutions() for p in parts_of(k, v)} for v in names}
    return keys[variant].difference(*(keys[v] for v in names if v != variant))


def other(kernel: Kernel, target: Target, count: int) -> list[str]:
    """Legal schedules that are not defaults."""
    space, chooser = Space(kernel, target), RandomChooser(Random(0))
    defaults, found = {s.text for s in space.defaults()}, dict[str, None]()
    while len(found) < count:
        text = space.sample(chooser).text
        if text not in defaults:
            found[text] = None
    return list(found)


def lower(payload: Payload) -> Lowered:
    lowered = candidate.lower(payload)
    if payload.kernel.key not in parts("winograd2"):
        return lowered
    return replace(lowered, text=_TEXT.format(name=lowered.entry))


def lower_others(payload: Payload) -> Lowered:
    if payload.actions in {s.text for s in Space(payload.kernel, payload.device.target).defaults()}:
        return candidate.lower(payload)
    return lower(payload)


def lower_no_direct(payload: Payload) -> Lowered:
    if match_conv3x3(payload.kernel) is not None:
        raise CompileFailure("planted: no direct convolution compiles here")
    return candidate.lower(payload)
