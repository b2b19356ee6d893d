"""Seeds for kernels that are new here, out of the rows of the nearest kernels in the store.

    this machine, other kernels  nearest first  \\
    other machines, any kernel   nearest first   >  their fastest, in turns  -->  a few seeds
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tunegrad.db import Hit, Store
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space
from tunegrad.search import Shape, different, distance, seeds_from
from tunegrad.trial import Fingerprint, Policy, Trial

_MOST = 4
"""Seeds of one kernel."""

_SOURCES = 3
"""Kernels that lend them."""

_EACH = 2
"""Schedules of each of those."""


@dataclass(slots=True)
class Seeding:
    """Finds seeds in a store. Mutable: it keeps the shapes of the store's kernels.

    Rows of the sessions in ``leave_out`` (this one, and those that it goes on from) lend nothing,
    so that a resumed session has the seeds that it had.
    """

    store: Store
    here: Fingerprint
    policy: Policy
    leave_out: frozenset[str]
    _shapes: dict[str, Shape] | None = field(default=None)

    def seeds(self, kernel: Kernel, space: Space) -> tuple[Schedule, ...]:
        """Schedules to try on a kernel after its defaults; none if it was searched before."""
        stored = self.store.trials(kernel.key, self.here, self.policy, self.leave_out)
        if _searched([t for t in stored if self._counts(t, space)]):
            return ()
        rows = [list(lent) for lent in self._sources(kernel, space)]
        texts = [lent[rank].actions for rank in range(_EACH) for lent in rows if rank < len(lent)]
        return seeds_from(space, [*self._winner(kernel, space), *texts], _MOST)

    def _winner(self, kernel: Kernel, space: Space) -> list[str]:
        """Schedules that were found for this kernel here when candidates were timed in another way,
        else by an older tunegrad.

        Its rows are of another space version, or lack fields that this machine tells of itself
        today.
        """
        found = [
            t for t, _ in self.store.promotions(kernel.key, self.here) if self._counts(t, space)
        ]
        if found:
            return [found[-1].actions]
        answer = self.store.lookup(kernel.key, self.here, space.version)
        near = () if isinstance(answer, Hit) else answer.nearest
        older = [
            n
            for n in near
            if all(d.field == "space_version" or not d.stored for d in n.differences)
        ]
        return [n.trial.actions for n in older if n.trial.session not in self.leave_out][:1]

    def _sources(self, kernel: Kernel, space: Space) -> Iterator[Sequence[Trial]]:
        """The fastest rows of each of the nearest kernels and machines."""
        shape = Shape.of(kernel.text)
        near = sorted(
            (far, key)
            for key, other in self._known().items()
            if (far := distance(shape, other)) is not None
        )
        count = 0
        for elsewhere in (False, True):
            for _, key in near:
                for rows in self._by_machine(key, space, elsewhere):
                    if count == _SOURCES:
                        return
                    count += 1
                    yield rows

    def _by_machine(self, key: str, space: Space, elsewhere: bool) -> Iterator[Sequence[Trial]]:
        """The fastest rows of a kernel: those of this machine, or of each other one.

        Each program counts once.
        """
        found: dict[Fingerprint, list[Trial]] = {}
        for trial in self.store.trials(key, policy=self.policy, without=self.leave_out):
            if (trial.fingerprint != self.here) == elsewhere and self._counts(trial, space):
                found.setdefault(trial.fingerprint, []).append(trial)
        for place in sorted(found, key=lambda f: (len(f.differences(self.here)), f.text)):
            ran = sorted(
                (t for t in found[place] if t.measurement.ran), key=lambda t: t.measurement.seconds
            )
            if _searched(ran):
                yield different(ran)[:_EACH]

    def _counts(self, trial: Trial, space: Space) -> bool:
        return trial.session not in self.leave_out and trial.space_version == space.version

    def _known(self) -> dict[str, Shape]:
        if self._shapes is None:
            self._shapes = {key: Shape.of(text) for key, text in self.store.kernels()}
        return self._shapes


def _searched(rows: Sequence[Trial]) -> bool:
    """True when more than the defaults of a kernel was measured."""
    return any(t.origin != "default" for t in rows)
