"""Object bytes into this process: one JIT linker per process, one library per object, freed on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from typing import Any

import llvmlite.binding as llvm

from tunegrad.errors import CompileFailure

__all__ = ["Library"]

_names = count()


class Library:
    """A linked object. Addresses are valid until ``close``; closing twice is fine."""

    __slots__ = ("_tracker", "addresses")

    def __init__(self, image: bytes, exports: Iterable[str], imports: Mapping[str, int]) -> None:
        """Link ``image``; ``imports`` maps undefined symbols to addresses, others come from this process (libc, libm).

        Raises CompileFailure when the bytes are no object, or a symbol is missing.
        """
        wanted = tuple(exports)
        builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        for symbol, address in imports.items():
            builder.import_symbol(symbol, address)
        for symbol in wanted:
            builder.export_symbol(symbol)
        try:
            self._tracker: Any = builder.link(_linker(), f"tunegrad-{next(_names)}")
        except RuntimeError as error:
            raise CompileFailure(f"linking {', '.join(wanted)}: a symbol is missing or no object ({error})") from error
        self.addresses: dict[str, int] = {symbol: int(self._tracker[symbol]) for symbol in wanted}

    def close(self) -> None:
        """Unmap the code. Nothing may be running in it."""
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None
            self.addresses = {}


@cache
def _linker() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(None, suppress_errors=True)
