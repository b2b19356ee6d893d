"""Refusal of LLVM text that reaches other memory than a kernel's: no stack that is older than its
launch, no table of buffers, no team, no thread-local memory, no address of its own making.

The words, intrinsics and forms of lines that rendering writes are allowed, and arithmetic; nothing
is a list of what is bad. There are no comments, and strings are words like any other, so nothing
can be hidden by how a text is spaced.

    %buffers     is loaded from at the places of its buffers, and handed on whole
    %team        is handed on, and to tg_barrier
    pointers     come from parameters, constants and offsets: none is loaded, and none made of
                 numbers
    alloca       is ``%sink`` alone, to which lanes that are masked off store (``%sunk``), a
                 vector of its size at the most; it is never read
    tiles        of registers are released where a function ends
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from tunegrad.errors import CompileFailure
from tunegrad.ir.dtypes import DTYPES
from tunegrad.render.llvm_values import memory_type

__all__ = ["check_text"]

_OPERATIONS = """
    add and ashr fadd fcmp fdiv fmul fneg frem fsub icmp lshr mul or sdiv shl srem sub udiv urem xor
    bitcast fpext fptosi fptoui fptrunc ptrtoint sext sitofp trunc uitofp zext
    alloca br call fence getelementptr load phi ret select store tail unreachable
    extractelement insertelement shufflevector
"""
_WORDS = frozenset(
    f"""
    {_OPERATIONS} to label seq_cst splat
    eq ne oeq oge ogt ole olt one ord sge sgt sle slt ueq uge ugt ule ult une uno
    contract disjoint exact inbounds nnan nneg ninf nsw nsz nuw reassoc volatile
    bfloat double float half i ptr void x
    false poison true zeroinitializer
    align alwaysinline constant declare define immarg internal noalias nocapture noinline
    nounwind private unnamed_addr nontemporal "stackrealign"
    """.encode().split()
)

_LEFT = re.compile(
    rb"%[\w.]+|[\w.]+:|0*\.?0*e?0*|0x[HKLMR]?[0A-F]*|i0+"
    rb"|@(?!llvm\.)[\w.]+"
    rb"|@llvm\.(?:[su](?:max|min)|abs|ceil|copysign|fabs|floor|fma|fmuladd|fpto[su]i\.sat"
    rb"|mem(?:cpy|move|set)|(?:masked\.(?:load|store)|vector\.reduce\.\w+)(?=\.v0+[bfi])"
    rb"|prefetch|rint|roundeven|sqrt|trunc"
    rb"|x00\.(?:avx000\w*\.(?!gather|scatter)|(?:avx|sse)0?\.(?:cvt\.?ps0dq|max|min|pmadd)"
    rb"|ldtilecfg|tdp|tileload|tilerelease|tilestore|tilezero))[\w.]*"
)
"""Names, labels, numbers and integer types, with 0 for every digit."""

_ZEROS = str.maketrans("123456789", "0" * 9)
_SPACES = bytes.maketrans(b"()[]<>{}*,=-+!", b" " * 14)
_MADE = (b" x ptr ", b" ptr poison ", b" ptr zeroinitializer ", b" phi ptr ", b" volatile ptr ")

_ENTRY = "ptr %buffers, ptr %workspace, i64 %tid, ptr %team"
_ENTRY_0 = re.escape(_ENTRY.translate(_ZEROS))
_LINE = re.compile(
    rf"  (?:%[\w.]+ = )?(?:{'|'.join(_OPERATIONS.split())})\b[^{{}}]*|[\w.]+:|\}}|declare [^{{}}]*"
    r"|define (?:internal )?[^@{}]*@[\w.]+\([^(){}]*\)[^(){}]* \{|@[\w.]+ = [^{}]*"
    r"|!0 = !\{i00 0\}|"
)
_FORMS = (
    ("call", r"  (?:%[\w.]+ = )?(?:tail )?call (?:(?!\bcall\b)[^@%])*@(?:(?!\bcall\b).)*\)"),
    ("define", r"define .*"),
    (
        "%buffers",
        (
            rf"define .*@[\w.]+\({_ENTRY_0}\).*|  call void @[\w.]+\({_ENTRY_0}\)"
            r"|  %[\w.]+ = (?:getelementptr ptr, ptr %buffers, i00 0+|load ptr, ptr %buffers)"
        ),
    ),
    (
        "%team",
        (
            r"define .*, ptr %team\)[^%]*"
            r"|  call void @(?!llvm\.)[\w.]+\((?:(?!%team).)*ptr %team\)"
        ),
    ),
    ("alloca", r"  %sink = alloca <00 x i0>, align 00"),
    ("%sink", r"  %sink = alloca .*|  %sunk0+ = select i0 [^,]+, ptr [^,]+, ptr %sink"),
    (
        "%sunk",
        (
            r"  %sunk0+ = select (?:(?!%sunk).)*%sink"
            r"|  store (?:(?!%sunk).)*, ptr %sunk0+, align 0+"
            r"|  call void @llvm\.masked\.store\.(?:(?!%sunk).)*, ptr %sunk0+, i00 0+, "
            r"[^%]*(?:%\w+)?\)"
        ),
    ),
)
"""What a line looks like that has a word."""

_FUNCTION = re.compile(r"define (?:internal )?[^\n@]*@([\w.]+)\(([^\n]*)\)[^\n()]* \{\n")
_CALL = re.compile(r"call [^\n@]*@(?!llvm\.)([\w.]+)\(([^\n]*)\)\n")
_BARE = re.compile(r"@([\w.]+)(?![\w.(])")
_VECTOR = re.compile(r"(?<= )(?:<[^<>]*(?:<[^<>]*>)?[^<>]*>|splat \([^()]*\))(?=,|$)")
_LOADED = re.compile(
    r"(?:(%[\w.]+) = getelementptr ptr, ptr %buffers, i64 (\d+)\n  )?"
    r"%[\w.]+ = load ptr, ptr (\1|%buffers)\n"
)
_SUNK = re.compile(r"(?: store |\.store\.[\w.]+\()(?:<(\d+) x )?(\w+)>? (?=[^\n]*, ptr %sunk\d+, )")
_BYTES = {memory_type(t): t.itemsize for t in DTYPES.values()}
_BEYOND = 65
"""Bytes, more than ``%sink`` has."""

_RELEASED = re.compile(r"  call void @llvm\.x86\.tilerelease\(\)\n(?:  fence seq_cst\n)?  ret void")


def check_text(text: str, entry: str, buffers: int) -> None:
    """Refuse a module that may touch anything beside its ``buffers`` and its workspace.

    ``entry`` names the kernel. Raises CompileFailure, which says what is refused.
    """
    while text.startswith((";", "\n")):  # a text may begin with remarks
        text = text.partition("\n")[2]
    taken = set[str]()
    for line in set(text.translate(_ZEROS).split("\n")):
        taken |= _taken(line)
    functions = dict(_FUNCTION.findall(text))
    if functions.get(entry) != _ENTRY:
        _refuse(f"{entry} takes something else than ({_ENTRY})")
    for name in functions:
        if name.translate(_ZEROS) in taken:
            _refuse(f"the address of {name} is taken")
    for name, arguments in _CALL.findall(text):
        _check_call(name, arguments, functions.get(name))
    _check_table(text, buffers)
    sunk = [int(lanes or 1) * _BYTES.get(kind, _BEYOND) for lanes, kind in _SUNK.findall(text)]
    if max(sunk, default=0) >= _BEYOND or len(sunk) != text.count(", ptr %sunk"):
        _refuse("more is stored to %sink than it holds")
    if "@llvm.x86.tile" in text:
        _check_tiles(text)


@lru_cache(maxsize=1 << 14)
def _taken(line: str) -> frozenset[str]:
    """Refuse a line, whose digits are 0; the names of which it takes the address."""
    split = line.encode().translate(_SPACES).split()
    for other in set(split) - _WORDS:
        if not _LEFT.fullmatch(other):
            _refuse(f"{other.decode(errors='replace')!r}: no word or function of a kernel")
    if not _LINE.fullmatch(line):
        _refuse(f"{line.strip()!r}: no line of a kernel")
    words = b" %s " % b" ".join(split)
    for made in _MADE:
        if made in words:
            _refuse(f"{made.decode().strip()!r}: a pointer that is no place in a buffer")
    if words.count(b" load ptr ") != line.count(" = load ptr, ptr %"):
        _refuse(f"{line.strip()!r}: a pointer is loaded that is no entry of the table")
    for word, form in _FORMS:
        if (
            word in line
            and re.search(rf"(?<![\w.@%]){word}", line)
            and not re.fullmatch(form, line)
        ):
            _refuse(f"{line.strip()!r}: another use of {word} than rendering's")
    return frozenset(_BARE.findall(line))


def _check_call(name: str, arguments: str, wanted: str | None) -> None:
    """Calls of the module's own functions have the parameters' types; table and team are handed
    on whole.
    """
    if wanted is None:
        if "%team" in arguments and name != "tg_barrier":
            _refuse(f"%team is handed to {name}")
    elif _kinds(arguments) != _kinds(wanted) or (
        (wanted == _ENTRY) != (arguments == _ENTRY)
        or wanted.endswith("ptr %team") != arguments.endswith("ptr %team")
    ):
        _refuse(f"a call of {name} with other arguments than it takes")


def _kinds(parameters: str) -> list[str]:
    """The type of each parameter or argument."""
    plain = _VECTOR.sub("c", parameters)
    return [p.rpartition(" ")[0].removesuffix(" nocapture").removesuffix(" noalias")
            for p in plain.split(", ")]  # fmt: skip


def _check_table(text: str, buffers: int) -> None:
    """The table of buffers is read at the places of the buffers alone; no other pointer is."""
    loads = text.count(" = load ptr, ")
    for part in text.split(f"({_ENTRY})")[1:]:
        if part.startswith("\n"):  # a call
            continue
        body = part.partition("\n}\n")[0]
        found = _LOADED.findall(body)
        names = [name for name, _, _ in found if name]
        uses = Counter(re.findall(rf"(?:{'|'.join(map(re.escape, names))})(?![\w.])", body))
        if any(int(place or 0) >= buffers for _, place, _ in found):
            _refuse(f"a place beyond a table of {buffers} buffers")
        if any(uses[name] != 2 for name in names) or body.count("ptr, ptr %buffers") != len(found):
            _refuse("the place of an entry of the table is used for something else")
        loads -= len(found)
    if loads:
        _refuse("a pointer is loaded that is no entry of the table")


def _check_tiles(text: str) -> None:
    """Whatever uses tile registers gives them back: their contents are gone."""
    for part in text.split("\n}\n"):
        if "call void @llvm.x86.t" in part or "call void @llvm.x86.ldtilecfg" in part:
            given = len(_RELEASED.findall(part))
            if given != part.count("  ret ") or part.count("tilerelease") != given:
                _refuse("tile registers that are left set up")


def _refuse(why: str) -> None:
    raise CompileFailure(f"illegal: {why}")
