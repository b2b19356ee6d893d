"""Trials that are withdrawn for what they did in a whole model: they are never returned again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunegrad.db import Store
from tunegrad.errors import CandidateFailure, InternalError
from tunegrad.events import Event, Warned
from tunegrad.trial import Fingerprint, Trial

from .decisions import in_model

__all__ = ["Withdrawals"]


@dataclass(frozen=True, slots=True)
class Withdrawals:
    """Withdraws trials of this machine in the name of a session, and says so."""

    store: Store
    here: Fingerprint
    session: str
    tell: Callable[[Event], None]

    def trial(self, trial: Trial, failure: CandidateFailure) -> None:
        """Withdraw one trial."""
        number = self.store.id_of(trial)
        if number is None:
            raise InternalError(
                f"kernel {trial.kernel_key}: {trial.actions!r} ran in a model and is not in "
                "the store"
            )
        self.store.withdraw(number, in_model(failure), self.session)
        name = self.store.kernel_name(trial.kernel_key)
        self.tell(Warned(f"kernel {name}: {trial.actions!r} is withdrawn: {in_model(failure)}"))

    def actions(self, key: str, actions: str, failure: CandidateFailure) -> None:
        """Withdraw every trial of a kernel here that has these actions."""
        for trial in self.store.trials(key, self.here):
            if trial.actions == actions and trial.measurement.ran:
                self.trial(trial, failure)
