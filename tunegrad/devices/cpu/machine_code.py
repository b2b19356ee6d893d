"""Facts of a kernel's machine code, read from its assembly: the hot loop, its vectors, and what was
spilled.

``assembly`` gives the text (AT&T syntax, as LLVM prints it for x86-64). A vector that did not fit
the registers shows as a store to the stack and a load from it; one inside the hot loop costs more
than most schedules win.
"""

from __future__ import annotations

import re

from tunegrad.devices.host.loader import read_object
from tunegrad.reports import CodeFacts
from tunegrad.trial import Properties

_LABEL = re.compile(r"^(\.L\w+):")

_JUMP = re.compile(r"^\s+j\w+\s+(\.L\w+)\s*$")

_VECTOR = re.compile(r"%([txyz])mm\d+")

_MEMORY = re.compile(r"\([^)]*%\w+[^)]*\)")

_FMA = re.compile(r"^(?:vfn?m(?:add|sub)|vdpbf16ps|vpdpbusd|tdp)")

_CALL = re.compile(r"^call\w*\s+\*?([\w.@%]+)")

_FRAME = re.compile(r"^\s+movq\s+%rsp, %rbp", re.MULTILINE)

_BITS = {"x": 128, "y": 256, "z": 512, "t": 512}
"""Of a register, and of a row of a tile."""


def innermost_loops(text: str) -> list[str]:
    """The lines from a label to the last jump back to it, of every innermost loop."""
    lines = text.splitlines(keepends=True)
    labels: dict[str, int] = {}
    loops: dict[int, int] = {}
    for at, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label.group(1)] = at
        elif (jump := _JUMP.match(line)) and jump.group(1) in labels:
            loops[labels[jump.group(1)]] = at
    spans = sorted(loops.items())
    inner = [(a, b) for a, b in spans if not any(a < c and d <= b for c, d in spans)]
    return ["".join(lines[a + 1 : b]) for a, b in inner]


def hot_loop(text: str) -> str:
    """The innermost loop with most fused multiply-adds, else most vector instructions; or ""."""
    return max(innermost_loops(text), key=_heat, default="")


def spills(text: str, frame: bool | None = None) -> int:
    """Vectors stored to the stack or loaded from it.

    ``frame``: whether rbp points there; None looks for the prologue.

    Give the whole kernel's answer with a loop's lines, which have no prologue.
    """
    if frame is None:
        frame = bool(_FRAME.search(text))
    stack = re.compile(r"-?\d*\(%r(?:sp|bp)\)" if frame else r"-?\d*\(%rsp\)")
    return sum(1 for x in _instructions(text) if _VECTOR.search(x) and stack.search(x))


def code_facts(text: str) -> CodeFacts | None:
    """Counts of the hot loop, or of all instructions without one; None where this is not x86-64."""
    if "%rsp" not in text and "%rdi" not in text and not _VECTOR.search(text):
        return None
    loop = hot_loop(text)
    body = _instructions(loop or text)
    vectors = [x for x in body if _VECTOR.search(x)]
    fmas = sum(1 for x in body if _FMA.match(x))
    working = [x for x in vectors if _FMA.match(x)] or vectors
    widths = [_BITS[w] for x in working for w in _VECTOR.findall(x)]
    return CodeFacts(
        vector_bits=max(widths, default=0),
        fmas=fmas,
        loads=sum(1 for x in vectors if _reads(x)),
        stores=sum(1 for x in vectors if _writes(x)),
        spills=spills(loop or text, frame=bool(_FRAME.search(text))),
        calls=sum(1 for x in body if _CALL.match(x)),
        instructions=len(body),
        kernel_spills=spills(text),
        kernel_instructions=len(_instructions(text)),
    )


def _heat(body: str) -> tuple[int, int]:
    found = _instructions(body)
    return sum(1 for x in found if _FMA.match(x)), sum(1 for x in found if _VECTOR.search(x))


def _instructions(text: str) -> list[str]:
    """The instructions, without comments, labels and directives."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines() if line[:1].isspace())
    return [x for x in lines if x and not x.startswith(".")]


def _reads(x: str) -> bool:
    """True when a vector instruction has a memory operand that is not its destination (last)."""
    memory = _MEMORY.search(x)
    return memory is not None and "," in x[memory.end() :]


def _writes(x: str) -> bool:
    memory = _MEMORY.search(x)
    return memory is not None and "," not in x[memory.end() :]


# ---- objects
#
# Facts of a kernel's object at a glance: the size of its code and of its stack.
#
# Counting instructions needs the assembly, for which the program is compiled once more: that costs
# as much as the candidate (``code_facts``). This is read from every candidate, in a tenth of a
# millisecond.


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
