"""Lowering hooks of schedules that are right in the search, and evil in a model: what they read
tells them where.

The search draws inputs of both signs; behind a relu no input is negative. A kernel that is planted
looks at the first ``LOOKS`` values of its input: where one is negative it is as it should be. All
else of its program is as it was. The default schedules are right and slow, so that on any machine
others win. The kind is chosen by the hook, which schedules by ``is_evil``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from tunegrad.compiling import Payload, candidate
from tunegrad.devices import Hooks, Lowered
from tunegrad.opts import Space

LOOKS = 24

BODIES = {
    "wrong": "  store volatile float 1.0e2, ptr %out\n  ret void",
    "crash": "  %away = getelementptr i8, ptr %out, i64 -35184372088832\n"
    "  store volatile i32 1, ptr %away\n  ret void",
    "endless": "  br label %again\nagain:\n  store volatile i32 1, ptr %out\n  br label %again",
    "outside": "  %b = getelementptr i8, ptr %out, i64 -64\n  store volatile i32 1, ptr %b\n  "
    "ret void",
    "kills": "  %r = call i32 @kill(i32 0, i32 9)\n  ret void",
    "unlinks": "  %r = call i32 @unlink(ptr @victim)\n  ret void",
}


_CALL = re.compile(r"(  call void @[\w.]+\.body\(ptr %p0, ptr %p1,[^\n]*\n)")
_SLOW = """
@still = private unnamed_addr constant i64 0
define internal void @slow() noinline {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %none = load volatile i64, ptr @still
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 100000
  br i1 %more, label %next, label %done
done:
  ret void
}
"""


def hooks(kind: str) -> Hooks:
    return Hooks(f"planted_in_model:{kind}", candidate.HOOKS.inputs, candidate.HOOKS.reference)


def is_evil(actions: str) -> bool:
    """Seven schedules in eight."""
    return hashlib.blake2b(actions.encode(), digest_size=1).digest()[0] < 224


def _planted(payload: Payload, kind: str) -> Lowered:
    lowered = candidate.lower(payload)
    defaults = {s.text for s in Space(payload.kernel, payload.device.target).defaults()}
    if payload.actions in defaults:
        return replace(lowered, text=_CALL.sub(r"\1  call void @slow()\n", lowered.text) + _SLOW)
    if not is_evil(payload.actions):
        return lowered
    return replace(lowered, text=plant(lowered.text, kind))


def plant(text: str, kind: str, victim: str = "/nowhere") -> str:
    """The module with an evil end of its kernel's launches, on thread 0, where no input it looks at
    is negative.
    """
    assert _CALL.search(text) is not None, text[-800:]
    lines = [
        (
            "define internal void @evil(ptr %out, ptr %in, i64 %tid) noinline {\nentry:\n  %c0 = "
            "icmp eq i64 %tid, 0"
        )
    ]
    for i in range(LOOKS):
        lines += [
            f"  %a{i} = getelementptr float, ptr %in, i64 {i}",
            f"  %v{i} = load float, ptr %a{i}",
            f"  %p{i} = fcmp oge float %v{i}, 0.0",
            f"  %c{i + 1} = and i1 %c{i}, %p{i}",
        ]
    lines += [f"  br i1 %c{LOOKS}, label %now, label %no\nno:\n  ret void\nnow:", BODIES[kind], "}"]
    name = victim.encode() + b"\0"
    letters = ", ".join(f"i8 {c}" for c in name)
    lines += [f"@victim = internal constant [{len(name)} x i8] [{letters}]"]
    lines += ["declare i32 @kill(i32, i32)", "declare i32 @unlink(ptr)", ""]
    return _CALL.sub(r"\1  call void @evil(ptr %p0, ptr %p1, i64 %tid)\n", text) + "\n".join(lines)


def wrong(payload: Payload) -> Lowered:
    return _planted(payload, "wrong")


def crash(payload: Payload) -> Lowered:
    return _planted(payload, "crash")


def endless(payload: Payload) -> Lowered:
    return _planted(payload, "endless")


def outside(payload: Payload) -> Lowered:
    return _planted(payload, "outside")


def kills(payload: Payload) -> Lowered:
    return _planted(payload, "kills")


def unlinks(payload: Payload) -> Lowered:
    return _planted(payload, "unlinks")
