"""State of a session: one frozen context of every step, and ``Progress``, which changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tunegrad.config import Numerics, TuneSettings
from tunegrad.db import Store
from tunegrad.events import (
    BudgetSpent,
    CandidateMeasured,
    Event,
    KernelFinished,
    KernelStanding,
    ModelEstimated,
    Observer,
    Phase,
    PhaseStarted,
    SessionStarted,
)
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Policy

from .budget import Account, Costs
from .executor import Executor
from .interrupt import Interrupt
from .machine import CpuUse
from .models import Models
from .roofline import Roofline


@dataclass(slots=True)
class Progress:
    """Hands events on.

    Mutable: ``measured`` counts trials by status, ``named`` are kernels by the names they go by,
    ``roofline`` has the peaks that a kernel passed as high as that,
    ``standings`` says where the kernels of the models stand.
    """

    observers: Sequence[Observer]
    account: Account
    roofline: Roofline
    budget_s: float
    named: dict[str, Kernel] = field(default_factory=dict)
    measured: Counter[str] = field(default_factory=Counter)
    standings: Callable[[], Sequence[KernelStanding]] = tuple

    def announce(self, s: TuneSettings, session: str, names: str, kernels: int, known: int) -> None:
        """The session begins, with so many kernels, and rows of them that are ``known``."""
        self.tell(
            SessionStarted(
                session, names, s.device, s.threads, s.searcher, s.seed, s.budget_s, kernels,
                str(s.store), known,
                self.roofline.peak_flops_per_s, self.account.before_s,
            )
        )  # fmt: skip

    def phase(self, name: Phase) -> None:
        """The session turns to this."""
        self.tell(PhaseStarted(name))

    def tell(self, event: Event) -> None:
        """Hand an event to every observer.

        What was spent is stored, per cents are of the nearer of the two bounds.
        """
        match event:
            case BudgetSpent():
                elapsed_s = self.account.costs.total_s
                self.account.charge(min(elapsed_s, self.account.most_s))
                spent_s = self.account.before_s + elapsed_s
                event = replace(event, spent_s=spent_s, budget_s=self.budget_s)
            case CandidateMeasured():
                self.measured[str(event.status)] += 1
                self.roofline = self.roofline.raised(self.named[event.kernel], event.best_s)
                event = replace(event, pct_peak=self._pct(event.kernel, event.best_s))
            case KernelFinished():
                event = replace(event, pct_peak=self._pct(event.kernel, event.best_s))
            case _:
                pass
        for observer in self.observers:
            observer.observe(event)
        if isinstance(event, BudgetSpent):
            self.estimate()

    def estimate(self) -> None:
        """Tell what the models are expected to take, where their kernels are known."""
        if kernels := self.standings():
            self.tell(self._estimated(kernels))

    def _estimated(self, kernels: Sequence[KernelStanding]) -> ModelEstimated:
        """The sum, with the kernels that weigh most first."""
        told = [replace(k, pct_peak=self._pct(k.name, k.best_s)) for k in kernels]
        return ModelEstimated(
            sum(k.uses * k.default_s for k in kernels),
            sum(k.uses * k.best_s for k in kernels),
            tuple(sorted(told, key=_weight, reverse=True)),
        )

    def _pct(self, name: str, seconds: float) -> float:
        return self.roofline.pct_peak(self.named[name], seconds)


def _weight(kernel: KernelStanding) -> float:
    return kernel.uses * (kernel.best_s if kernel.best_s < inf else 0.0)


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
