"""CUDA C++ to a shared object for this CPU, by the C++ compiler that is here.

    numbers.hpp + tg_host.hpp + text + entry  --g++-->  image: ELF | digest      each kernel
    runtime.cpp and its like                  --g++-->  a library in the cache   once a compiler

An image is a function of its text and of ``compiler()``: no path, time or name of a file is in it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tunegrad.config import cache_dir
from tunegrad.devices.lowered import with_source
from tunegrad.errors import CandidateCrashed, CompileFailure, DeviceError

__all__ = ["build", "checked", "compiler", "runtime_library"]

_MAX_MESSAGE = 4000
_SECONDS = 120.0
_FOLDER = Path(__file__).parent
_HEADERS = ("numbers.hpp", "tg_host.hpp")
_RUNTIME = ("runtime.cpp", "shared.cpp", "memory.cpp", "warp.cpp", "copies.cpp")
_SHARED = ("fibers.hpp", "numbers.hpp", "runtime.hpp")
"""Headers that the runtime's files include."""

_COMMON = ("-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-strict-aliasing",
           "-fno-rtti", "-Wl,--build-id=none")  # fmt: skip
_OPTIONS = (
    *_COMMON, "-Wl,-s", "-O1", "-w", "-ffp-contract=off", "-fno-exceptions", "-fno-math-errno",
    "-fwrapv", "-fno-asynchronous-unwind-tables", "-fno-stack-protector",
    "-fstack-clash-protection",
)  # fmt: skip
"""A product and a sum are fused where the program says so; nothing else of it is reordered.
Integers wrap around, as on a GPU. Each page of a stack is touched, so a full one is noticed.
"""
_RUNTIME_OPTIONS = (*_COMMON, "-O3", "-fno-exceptions", "-pthread")
_LIBRARIES = ("-nodefaultlibs", "-lm", "-lc", "-lgcc")
_GUARDS = """\
SECTIONS
{
  tg_shared : ALIGN(CONSTANT(COMMONPAGESIZE))
  {
    HIDDEN(tg_shared_before = .);
    . += CONSTANT(COMMONPAGESIZE);
    HIDDEN(tg_shared_first = .);
    *(tg_shared)
    HIDDEN(tg_shared_last = .);
    . = ALIGN(CONSTANT(COMMONPAGESIZE));
    HIDDEN(tg_shared_beyond = .);
    . += CONSTANT(COMMONPAGESIZE);
  }
}
INSERT AFTER .data;
"""
"""For the linker: arrays that a block shares stand between pages that the loader shuts."""
_ICE = 4
"""Exit code of g++ where the compiler itself has crashed."""
_V3 = frozenset(("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"))
"""Of the flags in /proc/cpuinfo, where abm is lzcnt."""
_DIGEST_BYTES = 16


def build(text: str, entry: str) -> bytes:
    """The image of a text, a function of it and of the compiler.

    Raises CompileFailure in the compiler's words, CandidateCrashed where it crashed on the text,
    DeviceError where there is no compiler.
    """
    with tempfile.TemporaryDirectory(prefix="tunegrad-") as folder:
        guards = _guards() if "__shared__" in text else ()
        whole = _whole(text, entry)
        try:
            done = _compile(whole, Path(folder), guards)
        except subprocess.TimeoutExpired as error:
            raise CompileFailure(
                f"program {entry} for this CPU: over {_SECONDS:g} s of compiling"
            ) from error
        if done.returncode:
            words = f"program {entry} for this CPU: {done.stderr.strip()[:_MAX_MESSAGE]}"
            words = with_source(words, whole)
            crashed = done.returncode == _ICE or done.returncode < 0
            raise CandidateCrashed(words) if crashed else CompileFailure(words)
        image = (Path(folder) / "image.so").read_bytes()
    return image + _digest(image)


def _compile(whole: str, folder: Path, guards: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """To ``image.so`` in a folder."""
    (folder / "guards.ld").write_text(_GUARDS, encoding="utf-8")
    command = [*_found()[0], "-x", "c++", "-", *_machine(), *_OPTIONS, "-o", "image.so"]
    return subprocess.run(
        [*command, *guards, *_LIBRARIES],  # libraries stand after what uses them
        input=whole, text=True, cwd=folder, capture_output=True, check=False, timeout=_SECONDS,
        env=_environment(str(folder)),
    )  # fmt: skip


@functools.cache
def _guards() -> tuple[str, ...]:
    """The options that put guards about shared arrays; () where the linker does not take them."""
    options = ("-Wl,-T,guards.ld",)
    with tempfile.TemporaryDirectory(prefix="tunegrad-") as folder:
        done = _compile("int number = 1;\n", Path(folder), options)
    return () if done.returncode else options


def checked(image: bytes, entry: str) -> bytes:
    """The shared object of an image. Raises CompileFailure for one that is none, or of another
    version of this folder: the system's loader does not survive any bytes.
    """
    made, digest = image[:-_DIGEST_BYTES], image[-_DIGEST_BYTES:]
    if not made or _digest(made) != digest:
        raise CompileFailure(f"program {entry}: its image is none of this version for this CPU")
    return made


def compiler() -> str:
    """The compiler, the options it always gets, and the version of what stands before a text.

    Raises DeviceError where there is none.
    """
    options = " ".join((*_machine(), *_OPTIONS, *_guards()))
    return f"{_found()[1]} {options} host {_version().hex()}"


def runtime_library() -> Path:
    """The runtime that every image calls, built where it is not in the cache.

    Raises DeviceError where there is no compiler, or it does not build.
    """
    command = [*_found()[0], *_machine(), *_RUNTIME_OPTIONS]
    key = hashlib.blake2b(digest_size=16)
    for part in (_found()[1], *command, *(_read(n) for n in (*_RUNTIME, *_SHARED))):
        key.update(part.encode() + b"\0")
    place = cache_dir() / "cuda-host" / f"runtime-{key.hexdigest()}.so"
    if not place.exists():
        try:
            _build_runtime(command, place)
        except OSError as error:
            raise DeviceError(f"device cuda-host: its runtime can not be kept: {error}") from error
    return place


def _build_runtime(command: list[str], place: Path) -> None:
    """In a folder beside it, and then to its place at once: others may build it, too."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=place.parent) as folder:
        made = Path(folder) / "runtime.so"
        sources = [str(_FOLDER / name) for name in _RUNTIME]
        done = subprocess.run(
            [*command, *sources, "-o", str(made), "-ldl"], text=True, capture_output=True,
            check=False, env=_environment(folder),
        )  # fmt: skip
        if done.returncode:
            words = done.stderr.strip()[:_MAX_MESSAGE]
            raise DeviceError(f"device cuda-host: its runtime does not build: {words}")
        made.replace(place)


def _whole(text: str, entry: str) -> str:
    """The text that the compiler reads; its line numbers in messages are those of the program's own
    text.
    """
    bounds = re.search(rf"__launch_bounds__\(\s*(\d+)[^)]*\)\s*{re.escape(entry)}\s*\(", text)
    most = bounds[1] if bounds else "1024"
    heads = "".join(f'#line 1 "{name}"\n{_read(name)}' for name in _HEADERS)
    return f'{heads}#line 1 "program.cu"\n{text}\n#line 1 "entry"\nTG_ENTRY({entry}, {most})\n'


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _version() -> bytes:
    """Digest of the headers before a text, and so of how an image calls the runtime."""
    whole = "\0".join(_read(name) for name in _HEADERS)
    return hashlib.blake2b(whole.encode(), digest_size=8).digest()


def _digest(image: bytes) -> bytes:
    return hashlib.blake2b(image, digest_size=_DIGEST_BYTES, key=_version()).digest()


def _environment(folder: str) -> dict[str, str]:
    """Messages in one language, temporary files in one place."""
    return os.environ | {"LC_ALL": "C", "TMPDIR": folder}


@functools.cache
def _machine() -> tuple[str, ...]:
    """The options of what this processor can do beyond any of its kind: fused products, above all.

    In words of its own, not ``native``: machines with the same words have the same images.
    """
    try:
        words = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return ()
    return ("-march=x86-64-v3",) if frozenset(words) >= _V3 else ()


@functools.cache
def _found() -> tuple[tuple[str, ...], str]:
    """The compiler's command, and what it says of itself."""
    return _find(os.environ)


def _find(environ: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    wanted = environ.get("CXX", "").strip()
    for name in (wanted,) if wanted else ("g++", "clang++"):
        first, *more = shlex.split(name)
        path = shutil.which(first)
        if path is not None:
            command = (path, *more)
            words = subprocess.run(
                [*command, "--version"], text=True, capture_output=True, check=False
            )
            return command, words.stdout.splitlines()[0] if words.stdout else name
    where = f"CXX={wanted}" if wanted else "g++ or clang++"
    raise DeviceError(f"device cuda-host: no C++ compiler ({where}) was found; apt install g++")
