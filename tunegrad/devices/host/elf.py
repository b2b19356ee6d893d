"""ELF relocatable objects, every offset checked: bytes to sections, symbols and relocations, or
CompileFailure.

Source: System V ABI, chapter 4 (ELF-64, little endian). What LLVM emits for kernels is read; what
else an object may hold (thread-local data, constructors, common symbols) is refused, not passed
over.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tunegrad.errors import CompileFailure

__all__ = ["ElfObject", "Relocation", "Section", "Symbol", "read_object"]

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
    """``kind`` (the machine's number) applies at ``offset`` of ``section``, towards ``symbol`` plus
    ``addend``.
    """

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
