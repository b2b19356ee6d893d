"""Facts of a kernel's object at a glance: the size of its code and of its stack.

Counting instructions needs the assembly, for which the program is compiled once more: that costs as
much as the candidate (``machine_code``). This is read from every candidate, in a tenth of a
millisecond.
"""

from __future__ import annotations

import re

from tunegrad.devices.host.loader import read_object
from tunegrad.trial import Properties

__all__ = ["object_facts"]

_X86_64 = 62
_PROLOGUE_BYTES = 64
_LOWERED = re.compile(rb"\x48(?:\x83\xec(?P<short>.)|\x81\xec(?P<long>.{4}))", re.DOTALL)
"""``sub imm, %rsp``, of one byte or four: spills and arrays lie there."""


def object_facts(image: bytes, entry: str) -> Properties:
    """``code_bytes`` of all code, and ``stack_bytes`` of the kernel where it is x86-64.

    Raises CompileFailure for what is no object.
    """
    made = read_object(image)
    facts = {"code_bytes": float(sum(s.size for s in made.sections if s.executable))}
    code = {s.index: s.data for s in made.sections if s.executable}
    for symbol in made.symbols:
        if made.machine == _X86_64 and symbol.name == entry and symbol.section in code:
            start = code[symbol.section][symbol.value : symbol.value + _PROLOGUE_BYTES]
            facts["stack_bytes"] = _stack(start)
    return tuple(sorted(facts.items()))


def _stack(start: bytes) -> float:
    found = _LOWERED.search(start)
    if found is None:
        return 0.0
    return float(int.from_bytes(found["short"] or found["long"], "little"))
