"""A lowering hook that plants bad candidates: which ones, the text of their actions decides, in
every process alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tunegrad.compiling import Payload, candidate
from tunegrad.devices import Hooks, Lowered

HOOKS = Hooks("planted:lower", candidate.HOOKS.inputs, candidate.HOOKS.reference)

_TEXT = """
define void @kernel(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {{
entry:
  %out = load ptr, ptr %buffers
  br label %next
next:
{body}
}}
"""

BODIES = {
    "endless": "  %x = load volatile i8, ptr %out\n  br label %next",
    "crash": "  %away = getelementptr i8, ptr %out, i64 -35184372088832\n"
    "  store volatile i32 1, ptr %away\n  "
    "ret void",
    "outside": "  %b = getelementptr i8, ptr %out, i64 -4\n  store volatile i32 1, ptr %b\n  "
    "ret void",
    "unwritten": "  ret void",
    "unparsable": "  %z = fadd float %nothing, %nothing\n  ret void",
    "bug": "",
    "huge": "",
}
KINDS = tuple(BODIES)


def kind_of(actions: str) -> str:
    """The kind that is planted in place of a schedule; one in eight is left alone.

    The default never is replaced.
    """
    number = hashlib.blake2b(actions.encode(), digest_size=8).digest()[0] % (len(KINDS) + 1)
    return KINDS[number] if number < len(KINDS) else "good"


def lower(payload: Payload) -> Lowered:
    lowered = candidate.lower(payload)
    kind = kind_of(payload.actions)
    if kind == "good" or _is_default(payload):
        return lowered
    if kind == "bug":
        raise KeyError("planted")
    if kind == "huge":
        return replace(lowered, text=lowered.text + ";" * (9 << 20))
    mark = hashlib.blake2b(
        payload.actions.encode(), digest_size=8
    ).hexdigest()  # no two programs are equal
    return replace(lowered, text=f"; {mark}" + _TEXT.format(body=BODIES[kind]))


def _is_default(payload: Payload) -> bool:
    from tunegrad.opts import Space

    return payload.actions in {
        s.text for s in Space(payload.kernel, payload.device.target).defaults()
    }
