"""State of a session: one frozen context that every step shares; ``Progress`` is what changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunegrad.config import Numerics, TuneSettings
from tunegrad.db import Store
from tunegrad.events import Event
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Policy

from .budget.costs import Costs
from .executor.executor import Executor
from .interrupt import Interrupt
from .machine.load import CpuUse
from .models import Models
from .progress import Progress

__all__ = ["Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a session: its settings, the place where it measures, and its store.

    ``session`` is the id of its row, ``resumed`` those of the sessions that it goes on from. It
    began at ``began_s``, in seconds since the epoch; ``used`` is the load of the processors then.
    """

    settings: TuneSettings
    executor: Executor
    store: Store
    session: str
    resumed: frozenset[str]
    interrupt: Interrupt
    costs: Costs
    progress: Progress
    began_s: float
    used: CpuUse

    @property
    def here(self) -> Fingerprint:
        """The fingerprint of the machines that measure, and of every row."""
        return self.executor.here

    @property
    def target(self) -> Target:
        """The target of all code."""
        return self.executor.target

    @property
    def policy(self) -> Policy:
        """The policy by which candidates are timed."""
        return self.executor.policy

    @property
    def numerics(self) -> Numerics:
        """The numerics that programs may have."""
        return self.settings.numerics

    @property
    def models(self) -> Models:
        """Whole models of this machine, ready to run."""
        return Models(self.store, self.target, self.here, self.executor.bench)

    @property
    def tell(self) -> Callable[[Event], None]:
        """Hand an event to every observer."""
        return self.progress.tell
