"""Chooses what each kernel runs with: its stored winner, a near one or its default schedule."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tunegrad.compiling import Compiler
from tunegrad.config import cache_dir
from tunegrad.errors import CandidateFailure, IllegalAction, InternalError, MissError
from tunegrad.ir.kernel import Kernel
from tunegrad.lazy import dataclass, logger
from tunegrad.runtime import ObjectCache

if TYPE_CHECKING:
    from tunegrad.db import Nearby, Store
    from tunegrad.devices import Device, Engine
    from tunegrad.reports import Outcome
    from tunegrad.runtime import Code
    from tunegrad.trial import Fingerprint, Trial

OnMiss = Literal["default", "nearest", "error"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The schedule that a kernel runs with, and the reason.

    ``trial`` is the stored one it comes from; None for a default schedule.

    ``differs`` says what kept a stored winner from being a hit, as ``field: here != stored``.

    ``passes_over``: the store has a winner for here that can not be used, which is logged when it
    is looked up.
    """

    kernel: Kernel
    outcome: Outcome
    actions: str
    trial: Trial | None = None
    differs: tuple[str, ...] = ()
    passes_over: bool = False


def choices(
    kernel: Kernel,
    device: Device,
    here: Fingerprint,
    store: Store | None,
    on_miss: OnMiss,
    compiler: Compiler,
) -> Iterator[Choice]:
    """Schedules that ``kernel`` may run with, best first; the last one is its default schedule.

    A stored winner is among them where it lowers to the program that was measured; one of another
    machine may be illegal here.

    Raises MissError, naming the kernel and what differs, for ``on_miss="error"`` and no hit, and
    IllegalAction for the schedule of a fence that is not legal here.
    """
    if kernel.fixed:
        from tunegrad.opts import Space

        yield Choice(kernel, "fixed", Space(kernel, device.target).fixed().text)
        return
    hit, nearest, differs = _looked_up(kernel, here, store)
    if hit is not None:
        fault = stale(kernel, hit, device, compiler)
        if not fault:
            yield Choice(kernel, "hit", hit.actions, hit)
            fault = "program: the stored winner does not compile here"
        differs = (fault,)
    if on_miss == "error":
        raise MissError(
            f"kernel {kernel.name} ({kernel.key}): no stored winner: {'; '.join(differs)}"
        )
    if on_miss == "nearest":
        for near in nearest:
            yield Choice(
                kernel,
                "near",
                near.trial.actions,
                near.trial,
                tuple(d.brief for d in near.differences),
            )
    yield Choice(kernel, "miss", compiler.default(kernel, device), None, differs, hit is not None)


def _looked_up(
    kernel: Kernel, here: Fingerprint, store: Store | None
) -> tuple[Trial | None, Sequence[Nearby], tuple[str, ...]]:
    """The stored winner for here; those of similar machines; and what keeps them from it."""
    if store is None:
        return None, (), ("store: there is none",)
    from tunegrad.db import Hit
    from tunegrad.opts import SPACE_VERSION

    found = store.lookup(kernel.key, here, SPACE_VERSION)
    if isinstance(found, Hit):
        return found.trial, (), ()
    return None, found.nearest, tuple(d.brief for d in found.differences)


def stale(kernel: Kernel, trial: Trial, device: Device, compiler: Compiler) -> str:
    """Say why a stored schedule is not what was measured, and log it; '' where it lowers to the
    same program.

    A row without a program's hash was written by hand: it has no program that could be another one,
    and only has to be legal.
    """
    try:
        now = compiler.program_hash(kernel, trial.actions, device)
    except IllegalAction as error:
        fault, detail = "actions: the stored winner is not legal here", str(error)
    except CandidateFailure as error:
        fault, detail = "program: the stored winner is too large here", str(error)
    else:
        if trial.program_hash in ("", now):
            return ""
        fault = "program: the stored schedule lowers to other code now; tune into a new store"
        detail = f"program {now} is not {trial.program_hash}, which was measured"
    logger(__name__).warning(
        "kernel %s: the stored schedule can not be used: %s (%s)", kernel.name, fault, detail
    )
    return fault


def compiled_choice(
    kernel: Kernel,
    engine: Engine,
    here: Fingerprint,
    store: Store | None,
    on_miss: OnMiss,
    compiler: Compiler,
) -> tuple[Choice, Code]:
    """The choice that ``kernel`` runs with, as code: the first of its ``choices`` that is legal
    here and compiles.

    A stored one that is passed over is logged. Raises IllegalAction or CandidateFailure where the
    default fails too.
    """
    for choice in choices(kernel, engine.device, here, store, on_miss, compiler):
        try:
            return choice, compiler.code(kernel, choice.actions, engine)
        except (IllegalAction, CandidateFailure) as error:
            if choice.trial is None:
                raise
            logger(__name__).warning(
                "kernel %s: the stored schedule can not be used: %s", kernel.name, error
            )
    raise InternalError(f"kernel {kernel.name}: no schedule at all")


# ---- shared objects of a process
#
# Shared objects of the models of one process: open devices, and the compiler.


@functools.lru_cache(maxsize=8)
def engine_of(device: Device) -> Engine:
    """Open devices are kept: models take turns on one of them."""
    return device.open()


def process_compiler() -> Compiler:
    """The compiler of this process: all models share what it lowered, loaded and cached on disk."""
    return _compiler_at(cache_dir())


@functools.lru_cache(maxsize=2)
def _compiler_at(directory: Path) -> Compiler:
    return Compiler(ObjectCache(directory / "objects"))
