"""CUDA C++ to a shared object for this CPU, by the C++ compiler that is here."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tunegrad.errors import CompileFailure, DeviceError

__all__ = ["build", "compiler"]

_MAX_MESSAGE = 4000
_HEADER = Path(__file__).with_name("host.hpp")
_OPTIONS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off", "-fno-strict-aliasing",
    "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-Wl,--build-id=none", "-lm",
)  # fmt: skip
"""A product and a sum are fused where the program says so; nothing else of it is reordered."""


def build(text: str, entry: str) -> bytes:
    """The shared object of a text, a function of it and of the compiler.

    Raises CompileFailure in the compiler's words, DeviceError where there is no compiler.
    """
    program, _ = _found()
    whole = f'{_HEADER.read_text()}\n#line 1 "program.cu"\n{text}\nTG_ENTRY({entry})\n'
    with tempfile.TemporaryDirectory(prefix="tunegrad-") as folder:
        made = Path(folder) / "program.so"
        # -lm stands after what uses it.
        command = [program, "-x", "c++", "-", *_OPTIONS, "-o", str(made)]
        done = subprocess.run(
            command, input=whole, text=True, capture_output=True, cwd=folder, check=False
        )
        if done.returncode:
            words = done.stderr.strip()[:_MAX_MESSAGE]
            raise CompileFailure(f"program {entry} for this CPU: {words}")
        return made.read_bytes()


def compiler() -> str:
    """The compiler and the options it always gets. Raises DeviceError where there is none."""
    return f"{_found()[1]} {' '.join(_OPTIONS)}"


@functools.cache
def _found() -> tuple[str, str]:
    """The compiler's path, and what it says of itself."""
    wanted = os.environ.get("CXX", "")
    for name in (wanted,) if wanted else ("g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            words = subprocess.run([path, "--version"], text=True, capture_output=True, check=False)
            return path, words.stdout.splitlines()[0] if words.stdout else name
    where = f"CXX={wanted}" if wanted else "g++ or clang++"
    raise DeviceError(f"device cuda-host: no C++ compiler ({where}) was found; apt install g++")
