"""The record of a search's trials: a row each, committed before the next; read on resuming."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

from .protocols import Measured, Proposal, TrialStore

Charged = Literal["asking", "store"]
"""Parts of a session's costs that a search takes."""


@dataclass(frozen=True, slots=True)
class TrialLog:
    """A store, and what every row of this session has in common.

    ``resumed`` names the sessions that this one continues: the same searcher, seed and settings,
    cut short. Their trials are not told to the searcher up front. It asks the same questions again,
    and the rows answer, so that it ends where an undisturbed run would have. ``now`` gives a row
    its date, in seconds since the epoch. ``part`` opens a part of the session's costs, ``store`` or
    ``asking``, to which the time of a block is charged.
    """

    store: TrialStore
    fingerprint: Fingerprint
    policy: Policy
    session: str
    now: Callable[[], float]
    resumed: frozenset[str] = frozenset()
    part: Callable[[Charged], AbstractContextManager[object]] = nullcontext

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commit what is recorded in the block at its end, as one."""
        with ExitStack() as stack:
            with self.part("store"):
                stack.enter_context(self.store.together())
            yield
            with self.part("store"):
                stack.close()

    def stored(self, kernel_key: str, space_version: int) -> list[Trial]:
        """The trials that count: this kernel, machine, policy and action meaning; oldest first."""
        with self.part("store"):
            found = self.store.trials(kernel_key, self.fingerprint, self.policy)
        return [t for t in found if t.space_version == space_version]

    def record(
        self,
        kernel_key: str,
        kernel_text: str,
        space_version: int,
        proposal: Proposal,
        measured: Measured,
    ) -> Trial:
        """Commit what came of a proposal and return its row."""
        trial = Trial(
            kernel_key=kernel_key,
            kernel_text=kernel_text,
            fingerprint=self.fingerprint,
            actions=proposal.schedule.text,
            program_hash=measured.program_hash,
            space_version=space_version,
            policy=self.policy,
            measurement=measured.measurement,
            session=self.session,
            origin=proposal.origin,
            created_s=self.now(),
        )
        with self.part("store"):
            self.store.add(trial)
        return trial

    def cost_s(self, measurement: Measurement) -> float:
        """Seconds of a trial by its row alone: a resumed search reckons with the same figure."""
        spent = (
            measurement.lower_s
            + measurement.compile_s
            + measurement.verify_s
            + measurement.timing_s
        )
        return (
            self.policy.timeout_s if measurement.status is Status.TIMED_OUT and not spent else spent
        )


def different(trials: Iterable[Trial]) -> list[Trial]:
    """The first trial of each program; where a program has no hash, of each action text."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(trial.program_hash or trial.actions, trial)
    return list(first.values())
