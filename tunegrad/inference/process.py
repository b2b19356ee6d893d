"""Shared objects of the models of one process: open devices, and the compiler."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from tunegrad.compiling import Compiler
from tunegrad.config import cache_dir
from tunegrad.runtime import ObjectCache

if TYPE_CHECKING:
    from tunegrad.devices import Device, Engine


@functools.lru_cache(maxsize=8)
def engine_of(device: Device) -> Engine:
    """Open devices are kept: models take turns on one of them."""
    return device.open()


def process_compiler() -> Compiler:
    """The compiler of this process, with the user's cache of images: all models share what it
    lowered and loaded.
    """
    return _compiler_at(cache_dir() / "objects")


@functools.lru_cache(maxsize=2)
def _compiler_at(directory: Path) -> Compiler:
    return Compiler(ObjectCache(directory))
