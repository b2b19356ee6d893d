"""The runtime's library in this process: what it is asked for, with its types."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

from tests.cuda_host.build import checked, runtime_library
from tunegrad.errors import CompileFailure, DeviceError, InternalError

__all__ = ["Image", "Job", "call", "load", "open_image", "unload"]

_TEXT_BYTES = 1024


class Job(ctypes.Structure):
    """``Job`` of runtime.cpp."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("groups", ctypes.c_uint32),
        ("items", ctypes.c_uint32),
        ("dynamic_bytes", ctypes.c_uint32),
        ("lazy", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("declared", ctypes.c_void_p * 4),
    )


class _Table(ctypes.Structure):
    """``tg_host_image`` of tg_host.hpp."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("shared", ctypes.c_void_p * 4),
        ("section", ctypes.c_void_p * 2),
        ("arguments", ctypes.c_uint32),
        ("most_items", ctypes.c_uint32),
    )


class Image(NamedTuple):
    """An image that is loaded: the library's handle, and what its table says of the kernel.

    ``shared``: where a page before the shared arrays begins, where they begin and end, and where a
    page after them begins; those pages are shut. Without guards, start and end stand twice.
    """

    library: int
    run: int
    shared: tuple[int, int, int, int]
    arguments: int
    most_items: int


@functools.cache
def load() -> ctypes.CDLL:
    """The runtime; images find its functions by name, so they are global.

    Raises DeviceError where it can not be built or loaded.
    """
    place = runtime_library()
    try:
        library = ctypes.CDLL(str(place), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DeviceError(f"device cuda-host: its runtime does not load: {error}") from error
    word, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
        ("tg_host_launch", ctypes.c_int, (ctypes.POINTER(Job), ctypes.c_char_p, size)),
        ("tg_host_allocate", word, (size,)),
        ("tg_host_free", None, (word, size)),
        ("tg_host_shut", None, (word, size)),
        ("tg_host_open", word, (ctypes.c_char_p, size, ctypes.c_char_p, size)),
        ("tg_host_symbol", word, (word, ctypes.c_char_p)),
        ("tg_host_close", None, (word,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def open_image(image: bytes, entry: str) -> Image:
    """Raises CompileFailure for an image that is none, or lacks the entry."""
    library, made = load(), checked(image, entry)
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    handle = library.tg_host_open(made, len(made), text, _TEXT_BYTES)
    if not handle:
        words = text.value.decode(errors="replace")
        raise CompileFailure(f"program {entry}: its image does not load: {words}")
    place = library.tg_host_symbol(handle, f"tg_kernel_{entry}".encode())
    if not place:
        library.tg_host_close(handle)
        raise CompileFailure(f"program {entry}: its image has no kernel of that name")
    t = _Table.from_address(place)
    before, first, last, beyond = (x or 0 for x in t.shared)
    if before:
        library.tg_host_shut(before, first - before)
        library.tg_host_shut(beyond, first - before)
    else:
        before = first = t.section[0] or 0
        last = beyond = t.section[1] or 0
    return Image(handle, t.run, (before, first, last, beyond), t.arguments, t.most_items)


def unload(image: Image) -> None:
    """Nothing of it may be running."""
    load().tg_host_close(image.library)


def call(job: Job) -> str:
    """Run a launch to its end: what its fault says, '' for none. Raises MemoryError."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    code = load().tg_host_launch(ctypes.byref(job), text, _TEXT_BYTES)
    if code > 1:
        raise MemoryError(f"stacks for {job.items} threads, and {job.dynamic_bytes} shared bytes")
    found = text.value.decode(errors="replace")
    if bool(code) != bool(found):
        raise InternalError(f"the runtime of cuda-host gives {code} and {found!r}")
    return found
