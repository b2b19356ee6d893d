"""Refusal of LLVM text that reaches other memory than a kernel's: no stack that is older than its
launch, no table of buffers, no team, no thread-local memory, no address of its own making.

A list of words and of intrinsics is allowed, not a list of bad ones refused: those that rendering
writes, and arithmetic. There are no comments, and strings are words like any other, so nothing can
be hidden by how a text is spaced.

    %buffers     is loaded from at the places of its buffers, and handed on whole
    %team        is handed on, and to tg_barrier
    pointers     come from parameters, constants and offsets: none is loaded, and none made of
                 numbers
    alloca       is ``%sink`` alone, to which lanes that are masked off store; it is never read
    tiles        of registers are released where a function ends
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from tunegrad.errors import CompileFailure

__all__ = ["check_text"]

_WORDS = frozenset(
    b"""
    add and ashr fadd fcmp fdiv fmul fneg frem fsub icmp lshr mul or sdiv shl srem sub udiv urem xor
    bitcast fpext fptosi fptoui fptrunc ptrtoint sext sitofp to trunc uitofp zext
    br call getelementptr load phi ret select store unreachable label fence seq_cst
    extractelement insertelement shufflevector splat
    eq ne oeq oge ogt ole olt one ord sge sgt sle slt ueq uge ugt ule ult une uno
    contract disjoint exact inbounds nnan nneg ninf nsw nsz nuw reassoc tail volatile
    bfloat double float half i ptr void x
    false poison true zeroinitializer
    align alwaysinline constant declare define immarg internal noalias nocapture noinline
    nounwind private unnamed_addr nontemporal "stackrealign" alloca
    """.split()
)

_LEFT = re.compile(
    rb"%[\w.]+|[\w.]+:|0*\.?0*e?0*|0x[HKLMR]?[0A-F]*|i0+"
    rb"|@(?!llvm\.)[\w.]+"
    rb"|@llvm\.(?:[su](?:max|min)|abs|ceil|copysign|fabs|floor|fma|fmuladd|fpto[su]i\.sat|mem(?:cpy|move|set)"
    rb"|(?:masked\.(?:load|store)|vector\.reduce\.\w+)(?=\.v0+[bfi])|prefetch|rint|roundeven|sqrt"
    rb"|trunc|x00\.(?:avx000\w*\.(?!gather|scatter)|avx\.(?:max|min)|sse\.(?:max|min)"
    rb"|ldtilecfg|tdp|tileload|tilerelease|tilestore|tilezero))[\w.]*"
)
"""Names, labels, numbers and integer types, with 0 for every digit."""

_SPACES = bytes.maketrans(b"()[]<>{}*,=-+!0123456789", b" " * 14 + b"0" * 10)

_FUNCTION = re.compile(r"define (?:internal )?[^\n@]*@([\w.]+)\(([^\n]*)\)[^\n()]* \{\n")
_CALL = re.compile(r"call [^\n@]*@(?!llvm\.)([\w.]+)\(([^\n]*)\)\n")
_NAME = re.compile(r"@([\w.]+)(\(?)")
_VECTOR = re.compile(r"(?<= )<[^<>]*(?:<[^<>]*>)?[^<>]*>(?=,|$)")
_ENTRY = "ptr %buffers, ptr %workspace, i64 %tid, ptr %team"
_LOADED = re.compile(
    r"(?:(%[\w.]+) = getelementptr ptr, ptr %buffers, i64 (\d+)\n  )?"
    r"%[\w.]+ = load ptr, ptr (\1|%buffers)\n"
)
_PUNCTUATION = str.maketrans("()[]<>,", " " * 7)
_SINK = "  %sink = alloca <64 x i8>, align 64\n"
_RELEASED = re.compile(r"  call void @llvm\.x86\.tilerelease\(\)\n(?:  fence seq_cst\n)?  ret void")
_MADE = (b" x ptr ", b" ptr poison ", b" ptr zeroinitializer ", b" phi ptr ", b"volatile ptr ")


def check_text(text: str, entry: str, buffers: int) -> None:
    """Refuse a module that may touch anything beside its ``buffers`` and its workspace.

    ``entry`` names the kernel. Raises CompileFailure, which says what is refused.
    """
    while text.startswith((";", "\n")):  # a text may begin with remarks
        text = text.partition("\n")[2]
    split = text.encode().translate(_SPACES).split()
    for word in set(split) - _WORDS:
        if not _is_left(word):
            _refuse(f"{word.decode(errors='replace')!r}: no word or function of a kernel")
    words = b" ".join(split)
    for made in _MADE:
        if made in words:
            _refuse(f"{made.decode().strip()!r}: a pointer that is no place in a buffer")
    functions = dict(_FUNCTION.findall(text))
    if functions.get(entry) != _ENTRY:
        _refuse(f"{entry} takes something else than ({_ENTRY})")
    braces = len(functions) + text.count("!{i32 1}")
    if len(functions) != words.count(b"define ") or braces != text.count("{"):
        _refuse("a structure, or a function in another form than rendering's")
    _check_handed_on(text, functions)
    _check_table(text, buffers, words.count(b" load ptr "))
    _check_sink(text)
    if "@llvm.x86.tile" in text:
        _check_tiles(text)


@lru_cache(maxsize=1 << 12)
def _is_left(word: bytes) -> bool:
    return bool(_LEFT.fullmatch(word))


def _check_handed_on(text: str, functions: dict[str, str]) -> None:
    """Calls of the module's own functions have the parameters' types; table and team are handed
    on whole.
    """
    team = text.count("ptr %team)")
    for name, arguments in _CALL.findall(text):
        wanted = functions.get(name)
        if wanted is None:
            team -= arguments == "ptr %team" and name != "tg_barrier"
        elif _kinds(arguments) != _kinds(wanted) or (
            (wanted == _ENTRY) != (arguments == _ENTRY)
            or wanted.endswith("ptr %team") != arguments.endswith("ptr %team")
        ):
            _refuse(f"a call of {name} with other arguments than it takes")
    if team != text.count("%team"):
        _refuse("%team is used for something else than a barrier")
    for name, called in set(_NAME.findall(text)):
        if name in functions and not called:
            _refuse(f"the address of {name} is taken")


def _kinds(parameters: str) -> list[str]:
    """The type of each parameter or argument."""
    plain = _VECTOR.sub("c", parameters)
    return [p.rpartition(" ")[0].removesuffix(" nocapture").removesuffix(" noalias")
            for p in plain.split(", ")]  # fmt: skip


def _check_table(text: str, buffers: int, loads: int) -> None:
    """The table of buffers is read at the places of the buffers alone; no other pointer is."""
    used = 0
    for part in text.split(f"({_ENTRY})")[1:]:
        body = part.partition("\n}\n")[0].partition("{\n")[2]
        if part.startswith("\n"):  # a call
            used += 1
            continue
        found = _LOADED.findall(body)
        used += 1 + len(found)
        loads -= len(found)
        names = [name for name, _, _ in found if name]
        uses = Counter(re.findall(r"%[\w.]+", body))
        if any(int(place or 0) >= buffers for _, place, _ in found):
            _refuse(f"a place beyond a table of {buffers} buffers")
        if any(uses[name] != 2 for name in names):
            _refuse("the place of an entry of the table is used for something else")
    if loads or used != text.count("%buffers"):
        _refuse("%buffers is used for something else than its entries, or a pointer is loaded")


def _check_sink(text: str) -> None:
    """Nothing is read of the stack."""
    whole, uses = text.count(_SINK), text.count("%sink")
    if text.count("alloca") != whole:
        _refuse("'alloca': a kernel has no memory on the stack")
    if uses == whole:
        return
    lines = text.split("\n")
    stored = [
        (line[2 : line.index(" ", 2)], lines[at + 1])
        for at, line in enumerate(lines)
        if line.endswith(", ptr %sink") and " = select i1 " in line
    ]
    names = {name for name, _ in stored}
    used = sum(map(names.__contains__, text.translate(_PUNCTUATION).split()))
    if (
        uses != whole + len(stored)
        or used != 2 * len(stored)
        or not all(
            line.startswith("  store ") and f", ptr {name}, align " in line for name, line in stored
        )
    ):
        _refuse("'%sink' is used for something else than lanes that are masked off")


def _check_tiles(text: str) -> None:
    """Whatever uses tile registers gives them back: their contents are gone."""
    for part in text.split("\n}\n"):
        if "call void @llvm.x86.t" in part or "call void @llvm.x86.ldtilecfg" in part:
            given = len(_RELEASED.findall(part))
            if given != part.count("  ret ") or part.count("tilerelease") != given:
                _refuse("tile registers that are left set up")


def _refuse(why: str) -> None:
    raise CompileFailure(f"illegal: {why}")
