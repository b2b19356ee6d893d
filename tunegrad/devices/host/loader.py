"""Object bytes into this process: all parts of one object in one region of memory, freed on
request.

      code  stubs | constants  slots | data         pages: read and run | read | read and write
      └── relocations reach every part of the region; the rest is called by stub, found by slot

LLVM's own linkers end the process where an object is damaged (both of them) or its parts lie far
apart (the older one), and keep some memory of every object they ever linked. Here whatever fails is
an exception and nothing is kept.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from tunegrad.devices.host.elf import ElfObject, Relocation, Section, Symbol, read_object
from tunegrad.devices.host.relocations import MACHINES, SLOT_BYTES, STUB_BYTES, Machine, Rule
from tunegrad.errors import CompileFailure

__all__ = ["Library"]

_ALIGN = 64
"""Alignment of each part, at least: a line of the cache, and the widest vector."""

_MOST_BYTES = 1 << 30
"""The largest object, in memory: every distance in it fits 32 bits."""

_MAP_FAILED = (1 << 64) - 1


class Library:
    """A linked object. Addresses are valid until ``close``; closing twice is fine."""

    __slots__ = ("__weakref__", "_release", "addresses")

    def __init__(self, image: bytes, exports: Iterable[str], imports: Mapping[str, int]) -> None:
        """Link ``image``; ``imports`` maps undefined symbols to addresses, others come from this
        process (libc, libm).

        Raises CompileFailure when the bytes are no object of this machine, damaged, or a symbol is
        missing; MemoryError when there is no memory for them.
        """
        wanted = tuple(exports)
        try:
            placed = _link(image, imports, wanted)
        except CompileFailure as error:
            raise CompileFailure(f"linking {', '.join(wanted)}: {error}") from error
        self.addresses: dict[str, int] = {
            name: placed.address + at for name, at in placed.exports.items()
        }
        self._release = weakref.finalize(self, _unmap, placed.address, placed.plan.size)
        self._release.atexit = False  # threads may run in it until the process is gone

    def close(self) -> None:
        """Unmap the code. Nothing may be running in it."""
        self._release()
        self.addresses = {}


@dataclass(frozen=True, slots=True)
class _Plan:
    """Places of each part, in bytes from the start of the region.

    ``stubs`` and ``slots`` go by symbol.

    Code ends at ``code_end``, constants at ``constants_end``: both on a page.
    """

    sections: Mapping[int, int]
    stubs: Mapping[int, int]
    slots: Mapping[int, int]
    code_end: int
    constants_end: int
    size: int


@dataclass(frozen=True, slots=True)
class _Placed:
    """An object in the region that starts at ``address``.

    ``externals`` holds addresses by symbol, ``exports`` bytes from the start of the region by name.
    """

    object: ElfObject
    plan: _Plan
    machine: Machine
    address: int
    externals: Mapping[int, int]
    exports: Mapping[str, int]


def _link(image: bytes, imports: Mapping[str, int], wanted: Iterable[str]) -> _Placed:
    """Place an object in new memory, or raise and leave nothing behind."""
    machine, found = _host(), read_object(image)
    if found.machine != machine.number:
        raise CompileFailure(
            f"object of ELF machine {found.machine}, not {machine.number} ({machine.name})"
        )
    plan = _plan(found, machine)
    externals = {
        i: _resolve(found.symbols[i].name, imports) for i in plan.slots if found.symbols[i].external
    }
    exports = {name: _export(name, found, plan) for name in wanted}
    placed = _Placed(found, plan, machine, _map(plan.size), externals, exports)
    try:
        _fill(placed)
        _protect(placed.address, plan)
    except BaseException:
        _unmap(placed.address, plan.size)
        raise
    return placed


@cache
def _host() -> Machine:
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise CompileFailure(f"no linker for {platform.machine()}; valid: {', '.join(MACHINES)}")
    return machine


def _rule(machine: Machine, relocation: Relocation) -> Rule:
    rule = machine.rules.get(relocation.kind)
    if rule is None:
        raise CompileFailure(f"relocation {relocation.kind} of {machine.name}: unknown here")
    return rule


def _plan(found: ElfObject, machine: Machine) -> _Plan:
    """Give every part its place.

    Raises CompileFailure for an object of more than ``_MOST_BYTES``.
    """
    stubbed: dict[int, None] = {}
    slotted: dict[int, None] = {}
    for relocation in found.relocations:
        by, symbol = _rule(machine, relocation).by, relocation.symbol
        if by == "stub" and found.symbols[symbol].external:
            stubbed[symbol] = None
        if by == "slot" or found.symbols[symbol].external:
            slotted[symbol] = None
    at: dict[int, int] = {}
    end = _row(at, [s for s in found.sections if s.executable], 0)
    stubs = {symbol: end + i * STUB_BYTES for i, symbol in enumerate(stubbed)}
    code_end = _up(end + len(stubs) * STUB_BYTES, mmap.PAGESIZE)
    end = _row(at, [s for s in found.sections if not s.executable and not s.writable], code_end)
    slots = {symbol: end + i * SLOT_BYTES for i, symbol in enumerate(slotted)}
    constants_end = _up(end + len(slots) * SLOT_BYTES, mmap.PAGESIZE)
    end = _row(at, [s for s in found.sections if s.writable], constants_end)
    size = _up(max(end, 1), mmap.PAGESIZE)
    if size > _MOST_BYTES:
        raise CompileFailure(f"object of {size} bytes in memory: at most {_MOST_BYTES}")
    return _Plan(at, stubs, slots, code_end, constants_end, size)


def _row(at: dict[int, int], sections: Iterable[Section], start: int) -> int:
    """Place sections one after another from ``start`` on; where the next may start, on a multiple
    of ``_ALIGN``.
    """
    for section in sections:
        at[section.index] = _up(start, max(_ALIGN, section.align))
        start = at[section.index] + section.size
    return _up(start, _ALIGN)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _resolve(name: str, imports: Mapping[str, int]) -> int:
    """The address of an undefined symbol."""
    address = imports.get(name)
    if address is None:
        try:
            address = ctypes.cast(_process()[name], ctypes.c_void_p).value
        except AttributeError as error:
            raise CompileFailure(
                f"symbol {name}: defined neither here nor in this process"
            ) from error
    return address or 0


def _export(name: str, found: ElfObject, plan: _Plan) -> int:
    for symbol in found.symbols:
        if (
            symbol.name == name
            and not symbol.local
            and symbol.section is not None
            and symbol.section in plan.sections
        ):
            return plan.sections[symbol.section] + symbol.value
    raise CompileFailure(f"symbol {name}: the object does not define it")


def _fill(placed: _Placed) -> None:
    """Copy, write stubs and slots, relocate."""
    plan, address = placed.plan, placed.address
    memory = memoryview((ctypes.c_ubyte * plan.size).from_address(address)).cast("B")
    parts: dict[int, memoryview] = {}
    for section in placed.object.sections:
        start = plan.sections[section.index]
        parts[section.index] = memory[start : start + section.size]
        memory[start : start + len(section.data)] = section.data
    for symbol, at in plan.slots.items():
        struct.pack_into("<Q", memory, at, _target(placed, symbol))
    for symbol, at in plan.stubs.items():
        placed.machine.write_stub(
            memory[at : at + STUB_BYTES], address + at, address + plan.slots[symbol]
        )
    for relocation in placed.object.relocations:
        _relocate(placed, relocation, parts[relocation.section])


def _relocate(placed: _Placed, relocation: Relocation, part: memoryview) -> None:
    rule, symbol = _rule(placed.machine, relocation), relocation.symbol
    if relocation.offset + rule.width > len(part):
        raise CompileFailure(
            f"{rule.name} at {relocation.offset} of a section of {len(part)} bytes"
        )
    if rule.by == "slot":
        to = placed.address + placed.plan.slots[symbol]
    elif rule.by == "stub" and symbol in placed.plan.stubs:
        to = placed.address + placed.plan.stubs[symbol]
    else:
        to = _target(placed, symbol)
    place = placed.address + placed.plan.sections[relocation.section] + relocation.offset
    try:
        rule.patch(part, relocation.offset, to + relocation.addend, place)
    except CompileFailure as error:
        name = placed.object.symbols[symbol].name or f"number {symbol}"
        raise CompileFailure(f"{rule.name} towards symbol {name}: {error}") from error


def _target(placed: _Placed, index: int) -> int:
    """The address of a symbol."""
    symbol: Symbol = placed.object.symbols[index]
    if symbol.external:
        return placed.externals[index]
    if symbol.section is None:
        return symbol.value
    start = placed.plan.sections.get(symbol.section)
    if start is None:
        raise CompileFailure(
            f"symbol {symbol.name or index}: its section {symbol.section} is not loaded"
        )
    return placed.address + start + symbol.value


def _map(size: int) -> int:
    """New memory that can be written.

    By hand: a ``mmap.mmap`` would be unmapped while the interpreter is torn down.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _process().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address is None or address == _MAP_FAILED:
        raise MemoryError(f"code of {size} bytes: {os.strerror(ctypes.get_errno())}")
    return int(address)


def _protect(address: int, plan: _Plan) -> None:
    """Let code run and constants be read; nothing is both written and run.

    Where caches of instructions are not coherent (aarch64), Linux cleans them as pages become
    executable.
    """
    spans = (
        (0, plan.code_end, mmap.PROT_READ | mmap.PROT_EXEC),
        (plan.code_end, plan.constants_end, mmap.PROT_READ),
    )
    for start, end, rights in spans:
        if start < end and _process().mprotect(address + start, end - start, rights) != 0:
            code = ctypes.get_errno()
            if code == errno.ENOMEM:
                raise MemoryError(f"code of {plan.size} bytes: {os.strerror(code)}")
            raise CompileFailure(f"mprotect of {end - start} bytes: {os.strerror(code)}")


def _unmap(address: int, size: int) -> None:
    _process().munmap(address, size)


@cache
def _process() -> ctypes.CDLL:
    """This process, with the calls that map memory."""
    process = ctypes.CDLL(None, use_errno=True)
    process.mmap.restype = ctypes.c_void_p
    process.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    )  # fmt: skip
    process.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    process.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return process
