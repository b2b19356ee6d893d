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
import re
import struct
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Literal

from tunegrad.config import perf_map
from tunegrad.errors import CompileFailure
from tunegrad.lazy import dataclass

# ---- objects
#
# ELF relocatable objects, every offset checked: bytes to sections, symbols and relocations, or
# CompileFailure.
#
# Source: System V ABI, chapter 4 (ELF-64, little endian). What LLVM emits for kernels is read; what
# else an object may hold (thread-local data, constructors, common symbols) is refused, not passed
# over.


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

_IDENT = b"\x7fELF\x02\x01\x01"  # 64-bit, little endian, version 1
_RELOCATABLE = 1
_SYMTAB, _STRTAB, _RELA_TABLE, _NOBITS, _REL_TABLE = 2, 3, 4, 8, 9
_STARTERS = (b".ctors", b".dtors", b".init_array", b".fini_array", b".preinit_array")
_WRITE, _ALLOC, _EXECUTE, _TLS = 1, 2, 4, 0x400
_UNDEFINED, _ABSOLUTE, _RESERVED = 0, 0xFFF1, 0xFF00
_MAX_ALIGN = 4096


@dataclass(frozen=True, slots=True)
class Section:
    """A part that is loaded: ``size`` bytes of memory, aligned to ``align``.

    ``data`` is empty where they are zeros.
    """

    index: int
    size: int
    align: int
    data: bytes
    executable: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name and where it lies: ``value`` bytes into a section, or at the address ``value`` where
    ``section`` is None.

    ``external``: defined elsewhere, ``value`` says nothing. ``local``: no other object may name it.
    """

    name: str
    section: int | None
    value: int
    external: bool
    local: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """``kind`` (the machine's number) at ``offset`` of ``section``: ``symbol`` plus ``addend``."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class ElfObject:
    """The loaded parts of an object. ``machine`` is ELF's number: 62 is x86-64, 183 aarch64."""

    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True, slots=True)
class _Header:
    """A row of the section table."""

    name: int
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


def read_object(image: bytes) -> ElfObject:
    """Parts of ``image`` that are loaded.

    Raises CompileFailure when it is damaged, or holds what is not loaded here.
    """
    try:
        return _read(image)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise CompileFailure(f"object of {len(image)} bytes: damaged ({error})") from error


def _read(image: bytes) -> ElfObject:
    ident, kind, machine, _, _, _, at, _, _, _, _, row, count, named = _HEADER.unpack_from(image)
    if not ident.startswith(_IDENT) or kind != _RELOCATABLE or row != _SECTION.size:
        raise CompileFailure(
            f"object of {len(image)} bytes: no little-endian 64-bit relocatable ELF object"
        )
    rows = struct.iter_unpack(_SECTION.format, _part(image, at, row * count, "section table"))
    headers = [_Header(r[0], r[1], r[2], r[4], r[5], r[6], r[7], r[8]) for r in rows]
    names = _part(image, headers[named].offset, headers[named].size, "section names")
    sections = tuple(_section(image, i, h) for i, h in enumerate(headers) if _loaded(i, h, names))
    loaded = {s.index: s for s in sections}
    tables = [h for h in headers if h.kind == _SYMTAB]
    if len(tables) != 1:
        raise CompileFailure(f"object of {len(image)} bytes: {len(tables)} symbol tables, not one")
    symbols = _symbols(image, tables[0], headers[tables[0].link], loaded)
    relocations: list[Relocation] = []
    for header in headers:
        if header.info in loaded and header.kind == _REL_TABLE:
            raise CompileFailure(f"section {header.info}: relocations without addends are not read")
        if header.info in loaded and header.kind == _RELA_TABLE:
            if headers[header.link] is not tables[0]:
                raise CompileFailure(
                    f"section {header.info}: its relocations name section {header.link}, no symbols"
                )
            relocations.extend(_relocations(image, header, loaded[header.info], len(symbols)))
    return ElfObject(machine, sections, symbols, tuple(relocations))


_NUMERIC = re.compile(
    r"mem(cpy|move|set)"
    r"|(a?(cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp(2|10|m1)?|fabs|f?dim|floor|fma"
    r"|f(max|min|mod)|hypot|ldexp|log(2|10|1p|b)?|nearbyint|pow|remainder|rint|round(even)?"
    r"|scalbl?n|sincos|sqrt|tgamma|trunc)f?"
    r"|__(div|extend|fix|float|gnu_[fh]2|mod|mul|powi|trunc|udiv|umod)\w*"
)
"""Functions of libc, libm and the compiler's own library that code generation calls for what a
machine has no instruction of. They keep nothing."""


def check_stateless(found: ElfObject, given: Collection[str]) -> None:
    """Refuse a kernel that may keep anything between its launches, or ask the system for something:
    memory of its own that can be written, and functions other than ``given`` and numeric ones.

    A result that was kept is no result, and two programs, or two callers of one, would share the
    memory. Raises CompileFailure.
    """
    for s in found.sections:
        if s.writable and s.size:
            raise CompileFailure(
                f"illegal: section {s.index} has {s.size} bytes that can be written: a kernel "
                "keeps nothing between its launches"
            )
    for symbol in found.symbols:
        if symbol.external and symbol.name not in given and not _NUMERIC.fullmatch(symbol.name):
            raise CompileFailure(
                f"illegal: it calls {symbol.name}: a kernel calls {', '.join(sorted(given))} and "
                "functions of numbers alone"
            )


def _part(image: bytes, offset: int, size: int, what: str) -> bytes:
    if offset + size > len(image):
        raise CompileFailure(
            f"{what}: bytes {offset} to {offset + size} of an object of {len(image)} bytes"
        )
    return image[offset : offset + size]


def _loaded(index: int, header: _Header, names: bytes) -> bool:
    """True for a section that takes memory."""
    if not header.flags & _ALLOC:
        return False
    if header.flags & _TLS or names.startswith(_STARTERS, header.name):
        raise CompileFailure(f"section {index}: thread-local data and constructors are not loaded")
    return True


def _section(image: bytes, index: int, header: _Header) -> Section:
    align = max(1, header.align)
    if align & (align - 1) or align > _MAX_ALIGN:
        raise CompileFailure(
            f"section {index}: alignment {align} is not a power of 2 up to {_MAX_ALIGN}"
        )
    data = (
        b""
        if header.kind == _NOBITS
        else _part(image, header.offset, header.size, f"section {index}")
    )
    executable, writable = bool(header.flags & _EXECUTE), bool(header.flags & _WRITE)
    if executable and writable:
        raise CompileFailure(f"section {index}: code that can be written is not loaded")
    return Section(index, header.size, align, data, executable, writable)


def _symbols(
    image: bytes, table: _Header, names: _Header, loaded: dict[int, Section]
) -> tuple[Symbol, ...]:
    if names.kind != _STRTAB:
        raise CompileFailure("symbol table: its names are not a string table")
    text = _part(image, names.offset, names.size, "symbol names")
    rows = struct.iter_unpack(
        _SYMBOL.format, _part(image, table.offset, table.size, "symbol table")
    )
    return tuple(_symbol(text, loaded, *row) for row in rows)


def _symbol(
    text: bytes,
    loaded: dict[int, Section],
    name: int,
    info: int,
    _: int,
    index: int,
    value: int,
    size: int,
) -> Symbol:
    end = text.find(b"\0", name)
    if end < 0:
        raise CompileFailure(
            f"symbol names: one starts at {name} and ends nowhere in {len(text)} bytes"
        )
    called = text[name:end].decode()
    local = info >> 4 == 0
    if index == _UNDEFINED:
        return Symbol(called, None, 0, bool(called), local)
    if index >= _RESERVED:
        if index != _ABSOLUTE:
            raise CompileFailure(f"symbol {called}: section index {index:#x} is not loaded here")
        return Symbol(called, None, value, False, local)
    section = loaded.get(index)
    if section is not None and value + size > section.size:
        raise CompileFailure(
            f"symbol {called}: bytes {value} to {value + size} of a section of {section.size}"
        )
    return Symbol(called, index, value, False, local)


def _relocations(image: bytes, table: _Header, section: Section, symbols: int) -> list[Relocation]:
    found: list[Relocation] = []
    rows = struct.iter_unpack(_RELA.format, _part(image, table.offset, table.size, "relocations"))
    for offset, info, addend in rows:
        if info >> 32 >= symbols:
            raise CompileFailure(
                f"section {section.index}: a relocation names symbol {info >> 32} of {symbols}"
            )
        found.append(Relocation(section.index, offset, info & 0xFFFFFFFF, info >> 32, addend))
    return found


# ---- relocations
#
# Relocations that LLVM emits for kernels: how one place in a linked object is patched towards a
# symbol.
#
#     kind  a number of the machine's ELF supplement
#           --> Rule: how the symbol is reached, and what is written
#     stub  code beside the object that jumps through a slot of its table of addresses:
#           a call reaches any address
#
# Sources: System V ABI, AMD64 supplement, table 4.9; ELF for the Arm 64-bit Architecture, tables 5
# to 10. Both machines use the small code model: an object's parts lie within 2 GiB of one another,
# what lies elsewhere is reached by a slot.


STUB_BYTES = 16
SLOT_BYTES = 8

Patch = Callable[[memoryview, int, int, int], None]
"""(bytes of the section, offset in them, value, address of the place): writes one field.

Raises CompileFailure where the value does not fit.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """``width`` bytes are patched.

    ``by``: towards the symbol, its stub where it is external, or its slot.
    """

    name: str
    width: int
    by: Literal["symbol", "stub", "slot"]
    patch: Patch


@dataclass(frozen=True, slots=True)
class Machine:
    """``number`` is ELF's; ``write_stub(bytes, address of the stub, address of its slot)``."""

    name: str
    number: int
    rules: Mapping[int, Rule]
    write_stub: Callable[[memoryview, int, int], None]


def _fit(distance: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= distance < 1 << (bits - 1):
        raise CompileFailure(f"a distance of {distance} bytes does not fit a field of {bits} bits")
    return distance


def _absolute64(data: memoryview, at: int, value: int, _: int) -> None:
    struct.pack_into("<Q", data, at, value % (1 << 64))


def _relative64(data: memoryview, at: int, value: int, place: int) -> None:
    struct.pack_into("<q", data, at, _fit(value - place, 64))


def _relative32(data: memoryview, at: int, value: int, place: int) -> None:
    struct.pack_into("<i", data, at, _fit(value - place, 32))


def _nothing(_data: memoryview, _at: int, _value: int, _place: int) -> None:
    """R_NONE."""


def _stub_x86(data: memoryview, stub: int, slot: int) -> None:
    data[:2] = b"\xff\x25"  # jmp *slot(%rip), 6 bytes
    _relative32(data, 2, slot, stub + 6)


def _set_bits(data: memoryview, at: int, mask: int, bits: int) -> None:
    """Put ``bits`` where ``mask`` is in the instruction at ``at``."""
    (word,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at, (word & ~mask) | bits)


def _branch26(data: memoryview, at: int, value: int, place: int) -> None:
    distance = _fit(value - place, 28)
    if distance % 4:
        raise CompileFailure(f"a branch over {distance} bytes: not a multiple of 4")
    _set_bits(data, at, 0x03FFFFFF, distance // 4 % (1 << 26))


def _page21(data: memoryview, at: int, value: int, place: int) -> None:
    pages = _fit((value & ~0xFFF) - (place & ~0xFFF), 33) // 4096 % (1 << 21)
    _set_bits(data, at, 0x60FFFFE0, (pages & 3) << 29 | pages >> 2 << 5)


def _low12(shift: int) -> Patch:
    """The lowest 12 bits of an address, in units of ``1 << shift`` bytes."""

    def patch(data: memoryview, at: int, value: int, _: int) -> None:
        low = value & 0xFFF
        if low % (1 << shift):
            raise CompileFailure(
                f"address {value:#x}: not a multiple of {1 << shift}, as the access asks"
            )
        _set_bits(data, at, 0x003FFC00, low >> shift << 10)

    return patch


def _stub_arm(data: memoryview, stub: int, slot: int) -> None:
    struct.pack_into(
        "<III", data, 0, 0x90000010, 0xF9400210, 0xD61F0200
    )  # adrp x16; ldr x16, [x16]; br x16
    _page21(data, 0, slot, stub)
    _low12(3)(data, 4, slot, stub + 4)


_X86_64 = Machine("x86_64", 62, {
    0: Rule("R_X86_64_NONE", 0, "symbol", _nothing),
    1: Rule("R_X86_64_64", 8, "symbol", _absolute64),
    2: Rule("R_X86_64_PC32", 4, "symbol", _relative32),
    4: Rule("R_X86_64_PLT32", 4, "stub", _relative32),
    9: Rule("R_X86_64_GOTPCREL", 4, "slot", _relative32),
    24: Rule("R_X86_64_PC64", 8, "symbol", _relative64),
    41: Rule("R_X86_64_GOTPCRELX", 4, "slot", _relative32),
    42: Rule("R_X86_64_REX_GOTPCRELX", 4, "slot", _relative32),
}, _stub_x86)  # fmt: skip

_AARCH64 = Machine("aarch64", 183, {
    0: Rule("R_AARCH64_NONE", 0, "symbol", _nothing),
    257: Rule("R_AARCH64_ABS64", 8, "symbol", _absolute64),
    260: Rule("R_AARCH64_PREL64", 8, "symbol", _relative64),
    261: Rule("R_AARCH64_PREL32", 4, "symbol", _relative32),
    275: Rule("R_AARCH64_ADR_PREL_PG_HI21", 4, "symbol", _page21),
    277: Rule("R_AARCH64_ADD_ABS_LO12_NC", 4, "symbol", _low12(0)),
    278: Rule("R_AARCH64_LDST8_ABS_LO12_NC", 4, "symbol", _low12(0)),
    282: Rule("R_AARCH64_JUMP26", 4, "stub", _branch26),
    283: Rule("R_AARCH64_CALL26", 4, "stub", _branch26),
    284: Rule("R_AARCH64_LDST16_ABS_LO12_NC", 4, "symbol", _low12(1)),
    285: Rule("R_AARCH64_LDST32_ABS_LO12_NC", 4, "symbol", _low12(2)),
    286: Rule("R_AARCH64_LDST64_ABS_LO12_NC", 4, "symbol", _low12(3)),
    299: Rule("R_AARCH64_LDST128_ABS_LO12_NC", 4, "symbol", _low12(4)),
    311: Rule("R_AARCH64_ADR_GOT_PAGE", 4, "slot", _page21),
    312: Rule("R_AARCH64_LD64_GOT_LO12_NC", 4, "slot", _low12(3)),
}, _stub_arm)  # fmt: skip

MACHINES: Mapping[str, Machine] = {"x86_64": _X86_64, "AMD64": _X86_64, "aarch64": _AARCH64}
"""By ``platform.machine()``."""


# ---- loader


_ALIGN = 64
"""Alignment of each part, at least: a line of the cache, and the widest vector."""

_MOST_BYTES = 1 << 30
"""The largest object, in memory: every distance in it fits 32 bits."""

_MAP_FAILED = (1 << 64) - 1


class Library:
    """A linked object. Addresses are valid until ``close``; closing twice is fine. ``imported``
    names what it takes from elsewhere.
    """

    __slots__ = ("__weakref__", "_release", "addresses", "imported")

    def __init__(
        self,
        image: bytes,
        exports: Iterable[str],
        imports: Mapping[str, int],
        stateless: bool = False,
    ) -> None:
        """Link ``image``; ``imports`` maps undefined symbols to addresses, others come from this
        process (libc, libm). ``stateless``: see ``check_stateless``.

        Raises CompileFailure when the bytes are no object of this machine, damaged, or a symbol is
        missing; MemoryError when there is no memory for them.
        """
        wanted = tuple(exports)
        try:
            linked = _Linked(image, imports, wanted, stateless)
        except CompileFailure as error:
            raise CompileFailure(f"linking {', '.join(wanted)}: {error}") from error
        self.addresses: dict[str, int] = {
            name: linked.address + at for name, at in linked.exports.items()
        }
        if perf_map():
            _tell_perf(linked.address, linked.size, _called.get() or wanted[0])
        self.imported = frozenset(linked.object.symbols[i].name for i in linked.externals)
        self._release = weakref.finalize(self, _unmap, linked.address, linked.size)
        self._release.atexit = False  # threads may run in it until the process is gone

    def close(self) -> None:
        """Unmap the code. Nothing may be running in it."""
        self._release()
        self.addresses = {}


class _Linked:
    """An object in new memory from ``address`` on; where it fails it raises and leaves nothing
    behind.

    Places are in bytes from the start of the region: of sections by their index, of stubs and slots
    by symbol, of exports by name. Code ends at ``code_end``, constants at ``constants_end``: both
    on a page.
    """

    address: int
    exports: Mapping[str, int]
    externals: Mapping[int, int]

    def __init__(
        self, image: bytes, imports: Mapping[str, int], wanted: Iterable[str], stateless: bool
    ) -> None:
        self.machine, self.object = _host(), read_object(image)
        if self.object.machine != self.machine.number:
            raise CompileFailure(
                f"object of ELF machine {self.object.machine}, not {self.machine.number} "
                f"({self.machine.name})"
            )
        if stateless:
            check_stateless(self.object, imports.keys())
        self.at: dict[int, int] = {}
        self._place()
        symbols = self.object.symbols
        self.externals = {
            i: _resolve(symbols[i].name, imports) for i in self.slots if symbols[i].external
        }
        self.exports = {name: self._export(name) for name in wanted}
        self.address = _map(self.size)
        try:
            self._fill()
            self._protect()
        except BaseException:
            _unmap(self.address, self.size)
            raise

    def _place(self) -> None:
        """Give every part its place. Raises CompileFailure for more than ``_MOST_BYTES``."""
        stubbed: dict[int, None] = {}
        slotted: dict[int, None] = {}
        for relocation in self.object.relocations:
            by, symbol = self._rule(relocation).by, relocation.symbol
            external = self.object.symbols[symbol].external
            if by == "stub" and external:
                stubbed[symbol] = None
            if by == "slot" or external:
                slotted[symbol] = None
        parts = self.object.sections
        end = self._row([s for s in parts if s.executable], 0)
        self.stubs = {symbol: end + i * STUB_BYTES for i, symbol in enumerate(stubbed)}
        self.code_end = _up(end + len(stubbed) * STUB_BYTES, mmap.PAGESIZE)
        end = self._row([s for s in parts if not s.executable and not s.writable], self.code_end)
        self.slots = {symbol: end + i * SLOT_BYTES for i, symbol in enumerate(slotted)}
        self.constants_end = _up(end + len(slotted) * SLOT_BYTES, mmap.PAGESIZE)
        end = self._row([s for s in parts if s.writable], self.constants_end)
        self.size = _up(max(end, 1), mmap.PAGESIZE)
        if self.size > _MOST_BYTES:
            raise CompileFailure(f"object of {self.size} bytes in memory: at most {_MOST_BYTES}")

    def _row(self, sections: Iterable[Section], start: int) -> int:
        """Place sections one after another from ``start`` on; returns the next, aligned, start."""
        for section in sections:
            self.at[section.index] = _up(start, max(_ALIGN, section.align))
            start = self.at[section.index] + section.size
        return _up(start, _ALIGN)

    def _rule(self, relocation: Relocation) -> Rule:
        rule = self.machine.rules.get(relocation.kind)
        if rule is None:
            raise CompileFailure(
                f"relocation {relocation.kind} of {self.machine.name}: unknown here"
            )
        return rule

    def _export(self, name: str) -> int:
        for symbol in self.object.symbols:
            if symbol.name == name and not symbol.local and symbol.section in self.at:
                return self.at[symbol.section] + symbol.value
        raise CompileFailure(f"symbol {name}: the object does not define it")

    def _fill(self) -> None:
        """Copy, write stubs and slots, relocate."""
        address = self.address
        memory = memoryview((ctypes.c_ubyte * self.size).from_address(address)).cast("B")
        parts: dict[int, memoryview] = {}
        for section in self.object.sections:
            start = self.at[section.index]
            parts[section.index] = memory[start : start + section.size]
            memory[start : start + len(section.data)] = section.data
        for symbol, at in self.slots.items():
            struct.pack_into("<Q", memory, at, self._target(symbol))
        for symbol, at in self.stubs.items():
            stub, slot = memory[at : at + STUB_BYTES], address + self.slots[symbol]
            self.machine.write_stub(stub, address + at, slot)
        for relocation in self.object.relocations:
            self._relocate(relocation, parts[relocation.section])

    def _relocate(self, relocation: Relocation, part: memoryview) -> None:
        rule, symbol = self._rule(relocation), relocation.symbol
        if relocation.offset + rule.width > len(part):
            raise CompileFailure(
                f"{rule.name} at {relocation.offset} of a section of {len(part)} bytes"
            )
        if rule.by == "slot":
            to = self.address + self.slots[symbol]
        elif rule.by == "stub" and symbol in self.stubs:
            to = self.address + self.stubs[symbol]
        else:
            to = self._target(symbol)
        place = self.address + self.at[relocation.section] + relocation.offset
        try:
            rule.patch(part, relocation.offset, to + relocation.addend, place)
        except CompileFailure as error:
            name = self.object.symbols[symbol].name or f"number {symbol}"
            raise CompileFailure(f"{rule.name} towards symbol {name}: {error}") from error

    def _target(self, index: int) -> int:
        """The address of a symbol."""
        symbol = self.object.symbols[index]
        if symbol.external:
            return self.externals[index]
        if symbol.section is None:
            return symbol.value
        start = self.at.get(symbol.section)
        if start is None:
            raise CompileFailure(
                f"symbol {symbol.name or index}: its section {symbol.section} is not loaded"
            )
        return self.address + start + symbol.value

    def _protect(self) -> None:
        """Let code run and constants be read; nothing is both written and run.

        Where caches of instructions are not coherent (aarch64), Linux cleans them as pages become
        executable.
        """
        spans = (
            (0, self.code_end, mmap.PROT_READ | mmap.PROT_EXEC),
            (self.code_end, self.constants_end, mmap.PROT_READ),
        )
        for start, end, rights in spans:
            size = end - start
            if size > 0 and _process().mprotect(self.address + start, size, rights) != 0:
                code = ctypes.get_errno()
                if code == errno.ENOMEM:
                    raise MemoryError(f"code of {self.size} bytes: {os.strerror(code)}")
                raise CompileFailure(f"mprotect of {size} bytes: {os.strerror(code)}")


@cache
def _host() -> Machine:
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise CompileFailure(f"no linker for {platform.machine()}; valid: {', '.join(MACHINES)}")
    return machine


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


def _map(size: int) -> int:
    """New memory that can be written.

    By hand: a ``mmap.mmap`` would be unmapped while the interpreter is torn down.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _process().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address is None or address == _MAP_FAILED:
        raise MemoryError(f"code of {size} bytes: {os.strerror(ctypes.get_errno())}")
    return int(address)


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


_called: ContextVar[str] = ContextVar("_called", default="")


@contextmanager
def linked_as(name: str) -> Iterator[None]:
    """Code that is linked in here has this name in ``perf``: all kernels are one symbol."""
    token = _called.set(name)
    try:
        yield
    finally:
        _called.reset(token)


def _tell_perf(address: int, size: int, name: str) -> None:
    """Add code to the file in which ``perf report`` looks for names of this process's code.

    Linux's tools/perf/Documentation/jit-interface.txt.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with suppress(OSError):  # a confined process writes no file
        file = os.open(f"/tmp/perf-{os.getpid()}.map", flags, 0o600)
        with os.fdopen(file, "w") as out:
            out.write(f"{address:x} {size:x} tunegrad:{name}\n")
