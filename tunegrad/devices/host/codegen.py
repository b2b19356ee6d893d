"""LLVM IR text to machine code, as a pure function: (text, target, level) gives object bytes, or a
CompileFailure. A list of passes that changes is counted by ``facts.PIPELINE``.

The renderer has already scheduled the loops, keeps registers as values and computes an address
once, so little is left to clean up (inline, fold control flow, drop what is dead); nothing here
unrolls or vectorises.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from typing import Any, Literal

import llvmlite.binding as llvm

from tunegrad.devices.lowered import with_source
from tunegrad.errors import CompileFailure, InternalError
from tunegrad.ir.target import Target

OptLevel = Literal[0, 1, 2, 3]
Stage = Literal["parse", "passes", "emit"]

_ROOM_BYTES = 16 << 20
_ROOM_PER_BYTE = {0: 256, 1: 256, 2: 1024, 3: 1024}
"""Memory that compiling may take, by level, for each byte of IR text and besides.

Measured on straight-line programs of 4 KB to 1.9 MB of text, all memory by byte of text: at level 1
28 to 93 bytes, chains of volatile scalars 154 (634 KB) and 265 (122 KB); at level 2 up to 349, the
chains 538 and 649. LLVM ends the process where it is refused memory, so it is asked for before.
"""


_llvm = llvm.ffi.lib._lock  # noqa: SLF001  # there is no public way to hold it
"""llvmlite's lock, which each of its calls takes."""

# A fork waits until no thread is inside LLVM: in the child that thread would never leave it.
os.register_at_fork(
    before=_llvm.__enter__, after_in_parent=_llvm.__exit__, after_in_child=_llvm.__exit__
)


def _nobody(_: Stage) -> None:
    """Watches nothing."""


def asked_host() -> tuple[str, str, tuple[str, ...]]:
    """LLVM in words, its name for this processor, and its features; else ask ``facts.host``."""
    import llvmlite

    version = ".".join(map(str, llvm.llvm_version_info))
    features = tuple(llvm.get_host_cpu_features().flatten().split(","))
    return f"llvmlite-{llvmlite.__version__} llvm-{version}", llvm.get_host_cpu_name(), features


def compile_llvm(
    text: str,
    target: Target,
    opt_level: OptLevel = 2,
    watch: Callable[[Stage], None] = _nobody,
    killable: bool = False,
) -> bytes:
    """Compile LLVM IR text to an ELF relocatable object for ``target``.

    ``opt_level``: 0 code generation only; 1 a short function pipeline (simplifycfg, dce and
    loop-simplify: a tenth of the time of 2's passes) and code generation that leaves loop counters
    as they are; 2 LLVM's O1 module pipeline with loop-invariant motion; 3 its O2. Needs no device.
    ``watch`` is told when each stage is over. ``killable``: LLVM may end this process where memory
    runs out.

    Raises CompileFailure when the module does not parse, breaks an IR rule, or can not be selected,
    with LLVM's text and the numbered lines that it is about; MemoryError when the system would not
    give the memory that compiling may take, unless ``killable``.
    """
    if not killable:
        _need_memory(_ROOM_BYTES + _ROOM_PER_BYTE[opt_level] * len(text))
    module, machine = _optimised(text, target, opt_level, watch)
    try:
        with _code_generation(opt_level):
            image = bytes(machine.emit_object(module))
    except RuntimeError as error:
        module.close()
        raise CompileFailure(_message("emit", error, text)) from error
    watch("emit")
    return image


_CONSTANT = (
    r"\n(  %\S+ = (?:(?:(?:mul|add|sub|[us]div|[us]rem)(?: n[su]w)*|icmp \w+) i64 (?:\S+ )?"
    r"|getelementptr (?!ptr)\w+, ptr \S+ i64 |call i64 @llvm\.[su]m\w\w\.i64\(i64 \S+ i64 "
    r"|fdiv (float|double) \S+ ))(-?\d\d+|-?[2-9]|0x\w{16})(\)?|, %\S+)(?=\n)"
)
"""A line with a constant: what is before it, the type of a float, it, and what is behind. Not 0 and
1 as an i64, which are no extents.
"""

_MASK = r"\n(.*?)<(8|16|32|64) x i1> <(i1 (?:tru|fals)e(?:, i1 (?:tru|fals)e)+)>(.*)(?=\n)"
"""A line with a constant mask of lanes, as the end of a row in vectors has: what is before it, its
number of lanes, its bits, and what is behind.
"""

_APART = {masks: re.compile(_CONSTANT + f"|{_MASK}" * masks) for masks in (False, True)}

_MARK = bytes.fromhex("7b1d5f3ac0e24689a95c07de31f4b862")
"""What stands before the constants of an object."""


def compile_quick(text: str, target: Target, killable: bool = False) -> bytes:
    """``compile_llvm`` at level 0 of a rendered program, once for all texts that differ in
    constants alone, as those of a kernel at several extents do.

        %t5 = mul nsw i64 %v1, 24    -->    %apart0 = load i64, ptr getelementptr (.. @apart, .. 0)
                                            %t5 = mul nsw i64 %v1, %apart0

    Masks of lanes are such constants, too: bits of an integer. Code generation does not look at
    them; they are put into its object. Raises as ``compile_llvm``.
    """
    at = text.index("\n}\n", text.index("\n}\n") + 1) + 1  # of the body, and of what calls it
    held = bytearray(_MARK)

    def apart(line: re.Match[str]) -> str:
        name, place = f"%apart{len(held)}", f"ptr getelementptr (i8, ptr @apart, i64 {len(held)})"
        before, kind, constant, behind, *mask = line.groups()
        if constant is not None:
            held.extend(_bytes_of(kind, constant))
            return f"\n  {name} = load {kind or 'i64'}, {place}\n{before}{name}{behind}"
        before, lanes, bits, behind = mask
        number = sum((bit == "i1 true") << i for i, bit in enumerate(bits.split(", ")))
        held.extend(number.to_bytes(8, "little"))
        return (
            f"\n  {name}.bits = load i{lanes}, {place}"
            f"\n  {name} = bitcast i{lanes} {name}.bits to <{lanes} x i1>"
            f"\n{before}<{lanes} x i1> {name}{behind}"
        )

    form = _APART[" x i1> <i1 " in text].sub(apart, text[:at])
    head, tail = _quick(form + text[at:], len(held), target, killable)
    return head + held + tail


def _bytes_of(kind: str | None, constant: str) -> bytes:
    """A constant of LLVM's text in eight bytes of memory, a float in the first of them."""
    if kind is None:
        return struct.pack("<q", int(constant))
    (value,) = struct.unpack(">d", bytes.fromhex(constant[2:]))
    return struct.pack("<d" if kind == "double" else "<f4x", value)


@lru_cache(maxsize=256)
def _quick(form: str, size: int, target: Target, killable: bool) -> tuple[bytes, bytes]:
    """The object of a text whose constants are apart: what is before them and what behind."""
    mark = ", ".join(f"i8 {byte}" for byte in _MARK)
    rest = f"[{size - len(_MARK)} x i8]"
    table = (
        f"@apart = internal externally_initialized constant {{ [16 x i8], {rest} }} "
        f"{{ [16 x i8] [{mark}], {rest} zeroinitializer }}, align 16\n"
    )
    image = compile_llvm(f"{form}{table}", target, 0, killable=killable)
    head, found, tail = image.partition(_MARK)
    if not found or _MARK in tail:
        raise InternalError(f"object of {len(image)} bytes: its constants are not found")
    return head, tail[size - len(_MARK) :]


def assembly(source: str | bytes, target: Target, opt_level: OptLevel = 2) -> str:
    """Assembly of a kernel, for tests that look at instructions.

    ``source`` is LLVM IR text, printed as LLVM would assemble it, or an object from
    ``compile_llvm``, disassembled section by section with the ``objdump`` of the system's binutils
    if there is one. Raises CompileFailure for text that does not compile, and for an object where
    no disassembler is installed.
    """
    if isinstance(source, bytes):
        return _disassemble(source)
    module, machine = _optimised(source, target, opt_level, _nobody)
    with _code_generation(opt_level):
        return str(machine.emit_assembly(module))


def _optimised(
    text: str, target: Target, opt_level: OptLevel, watch: Callable[[Stage], None]
) -> tuple[Any, Any]:
    machine = _machine(target.arch, ",".join(target.features), opt_level)
    context = llvm.create_context()
    module = None
    try:
        module = llvm.parse_assembly(text, context)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        if module is not None:
            module.close()  # the error's frames may be collected in any order, its context first
        raise CompileFailure(_message("parse", error, text)) from error
    watch("parse")
    if opt_level == 1:
        passes, builder = _light(machine)
        passes.run(module, builder)
    elif opt_level >= 2:
        _run_module(module, machine, opt_level - 1)
    watch("passes")
    return module, machine


def _need_memory(nbytes: int) -> None:
    """Raise MemoryError unless ``nbytes`` can be mapped now; all is given back untouched."""
    try:
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError(f"compiling may take {nbytes} bytes: {error}") from error


@cache
def _light(machine: Any) -> tuple[Any, Any]:
    """The short pipeline of level 1, made once, and what it runs with."""
    # No NewGVN, the only value numbering that llvmlite offers here: it miscompiles and fails its
    # own assertions. No combining: code generation does it again, and kernels were as fast without
    # (benchmarked over two models).
    passes = llvm.create_new_module_pass_manager()
    # exp and its like: a call spills every register and loads every constant again
    passes.add_always_inliner_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    passes.add_loop_simplify_pass()  # a preheader for what code generation moves out of a loop
    return passes, llvm.create_pass_builder(
        machine, llvm.create_pipeline_tuning_options(speed_level=1)
    )


_LEFT_OUT = (("-disable-lsr=true", "-disable-lsr=false"),
    ("-disable-cgp=true", "-disable-cgp=false"),
             ("-enable-misched=false", "-enable-misched=true"))  # fmt: skip
"""Steps that code generation is asked to leave out, and the options that ask for them again.

Loop strength reduction, preparation of the IR and machine scheduling take two fifths of the time
and gain nothing here: loops, addresses and the order of instructions are the renderer's (decisions
0021 and 0023).
"""


@contextmanager
def _short() -> Iterator[None]:
    """Code generation without ``_LEFT_OUT``.

    These are options of the whole process: llvmlite's lock, which each of its calls takes, keeps
    them from all others.
    """
    with _llvm:
        for off, _ in _LEFT_OUT:
            llvm.set_option("tunegrad", off)
        try:
            yield
        finally:
            for _, on in _LEFT_OUT:
                llvm.set_option("tunegrad", on)


def _code_generation(opt_level: OptLevel) -> AbstractContextManager[None]:
    return _short() if opt_level == 1 else nullcontext()


def _run_module(module: Any, machine: Any, speed_level: int) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=speed_level)
    options.loop_unrolling = False
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


@cache
def _machine(arch: str, features: str, opt_level: int) -> Any:
    _initialise()
    backend = llvm.Target.from_default_triple()
    return backend.create_target_machine(
        cpu=arch, features=features, opt=min(opt_level, 2), reloc="pic", codemodel="default"
    )


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def _message(stage: str, error: Exception, source: str) -> str:
    return with_source(f"LLVM could not {stage} the candidate: {str(error).strip()}", source)


def _disassemble(image: bytes) -> str:
    import shutil
    import subprocess
    import tempfile

    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    if tool is None:
        raise CompileFailure(
            "disassembly of an object needs objdump (binutils); pass the LLVM IR text instead"
        )
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(image)
        file.flush()
        command = [tool, "-d", "--no-show-raw-insn", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
