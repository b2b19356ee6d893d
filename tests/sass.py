"""Machine code of GPUs as text, by NVIDIA's disassembler from its wheel."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

__all__ = ["instructions", "listing"]

_WHEEL = "nvidia-cuda-nvdisasm"
_INSTRUCTION = re.compile(r"\s+/\*\w+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")


@cache
def _program() -> Path | None:
    try:
        files = metadata.files(_WHEEL) or []
    except metadata.PackageNotFoundError:
        return None
    found = [Path(str(f.locate())) for f in files if f.name == "nvdisasm"]
    return found[0] if found else None


def instructions(image: bytes, folder: Path) -> Counter[str]:
    """How often each instruction stands in a cubin, by its first word. Skips without the wheel."""
    lines = listing(image, folder).splitlines()
    runs = (line for line in lines if "@!PT" not in line)  # those never run
    found = (_INSTRUCTION.match(line) for line in runs)
    return Counter(m[1] for m in found if m)


def listing(image: bytes, folder: Path) -> str:
    """The machine code of a cubin. Skips without the wheel."""
    program = _program()
    if program is None:
        pytest.skip(f"{_WHEEL} is not installed: machine code can not be read")
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(image)
    done = subprocess.run([program, "-c", cubin], capture_output=True, text=True, check=True)
    return done.stdout
