"""Locks that a forked child finds open.

A fork copies the memory of a process and one of its threads. What another thread had locked would
stay locked in the child for ever, since no thread there opens it again. What these locks guard is a
table or a plan of this process, which is whole between two statements of Python, or written anew by
the next thread that takes the lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

__all__ = ["ForkSafeLock", "in_child"]


class _Forked(Protocol):
    def forked(self) -> None:
        """This process is a new child."""


_told: weakref.WeakSet[_Forked] = weakref.WeakSet()


def in_child(told: _Forked) -> None:
    """Call ``told.forked()`` in every child that is forked while it lives."""
    _told.add(told)


def _tell() -> None:
    for one in list(_told):
        one.forked()


class ForkSafeLock:
    """A reentrant lock; in a child that is forked while another thread holds it, it is open.

    ``inner`` is the lock of this process: ``with lock.inner`` is the same, four times as fast.
    """

    __slots__ = ("__weakref__", "inner")

    def __init__(self) -> None:
        self.inner = threading.RLock()
        in_child(self)

    def forked(self) -> None:
        self.inner = threading.RLock()

    def __enter__(self) -> None:
        self.inner.acquire()

    def __exit__(self, *_: object) -> None:
        self.inner.release()


os.register_at_fork(after_in_child=_tell)
