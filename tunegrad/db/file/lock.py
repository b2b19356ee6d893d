"""The writer's lock: one process at a time owns a store for writing, and a killed one owns nothing.

A POSIX record lock on the side file ``<store>.lock`` is held for as long as the store is open. The
kernel drops it when the process ends, however it ends, and does not pass it on to forked workers,
so nothing stale is left to clean up. Such a lock does not exclude its own process, so a table of
the locks held here does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path

from tunegrad.errors import StoreError

__all__ = ["WriterLock"]

_held: dict[Path, int] = {}
_guard = threading.Lock()


class WriterLock:
    """The lock of one store; taken when made, given back by ``release``.

    Raises StoreError when another writer has it (naming the process), or when the side file can not
    be made.
    """

    __slots__ = ("_descriptor", "_owner", "path")

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".lock")
        self._owner = os.getpid()
        with _guard:
            # Never open the side file while this process holds it: closing any descriptor would
            # drop the lock.
            if _held.get(self.path) == self._owner:
                raise StoreError(_taken(store, self.path, f"this process ({self._owner})"))
            self._descriptor = _acquire(store, self.path)
            _held[self.path] = self._owner
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{self._owner}\n".encode())

    def release(self) -> None:
        """Give the lock back and remove the side file. In a forked child this does nothing."""
        if self._descriptor < 0 or self._owner != os.getpid():
            return
        with _guard:
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1
            _held.pop(self.path, None)


def _acquire(store: Path, path: Path) -> int:
    """A locked descriptor of the side file at ``path``; again, when its owner removed it while we
    waited.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"store {store}: can not be written: {path}: {error.strerror}"
            ) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(descriptor), path.stat())
        except BlockingIOError:
            owner = os.read(descriptor, 64).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreError(
                _taken(store, path, f"process {owner}" if owner else "another process")
            ) from None
        except FileNotFoundError:
            same = False
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"store {store}: can not be locked for writing: {path}: {error.strerror}"
            ) from error
        if same:
            return descriptor
        os.close(descriptor)


def _taken(store: Path, lock: Path, owner: str) -> str:
    return (
        f"store {store}: already open for writing by {owner} (lock {lock}); wait for it, or "
        "open for reading"
    )
