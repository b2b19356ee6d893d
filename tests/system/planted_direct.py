"""A lowering hook that lets no direct 3x3 convolution through, so that on any machine a variant is
the fastest.
"""

from __future__ import annotations

from tunegrad.compiling import Payload, candidate
from tunegrad.devices import Hooks, Lowered
from tunegrad.errors import CompileFailure
from tunegrad.ir.variants import match_conv3x3

HOOKS = Hooks("planted_direct:lower", candidate.HOOKS.inputs, candidate.HOOKS.reference)


def lower(payload: Payload) -> Lowered:
    if match_conv3x3(payload.kernel) is not None:
        raise CompileFailure("planted: no direct convolution compiles here")
    return candidate.lower(payload)
