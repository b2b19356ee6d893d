"""The end of a session: a tuned model computes what its graph says, or the winners that spoil it
are withdrawn.

    tuned model, fresh process, both input sets  -->  outputs as an independent evaluation
             |                                        has them: sound
             v  otherwise
    the default schedules, alike                 -->  they fail too: no winner is to blame,
             |                                        and the report says so
             v  they are right
    the winners, by halves                       -->  one fails alone, twice: it is withdrawn
             |                                        none does: all of them are
             v
    once more, with what the store has then
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunegrad.db import Store
from tunegrad.errors import CandidateFailure, InternalError
from tunegrad.events import Event, Warned
from tunegrad.trial import Fingerprint, Trial

from .models import Models, culprit
from .questions.rows import in_model
from .race.values import FAULTS
from .workload import Workload

__all__ = ["Soundness", "Withdrawals", "made_sound"]

Void = Callable[[str, str, CandidateFailure], None]


@dataclass(frozen=True, slots=True)
class Soundness:
    """The soundness of a model's outputs: they are as they must be (no ``mismatch``), at once or
    after winners were ``voided``.

    ``judged``: there was an independent evaluation. ``voided`` are (kernel, actions, why),
    ``mismatch`` says what is still wrong.
    """

    judged: bool = True
    voided: tuple[tuple[str, str, str], ...] = ()
    mismatch: str = ""


def made_sound(work: Workload, models: Models, void: Void) -> Soundness:
    """Withdraw winners until the model computes what its graph says; ``void`` withdraws one, by
    kernel key.

    Raises CandidateFailure where a kernel has no schedule that compiles.
    """
    voided: list[tuple[str, str, str]] = []
    names = {u.key: u.name for u in work.kernels}
    while True:
        failure = _failure(work, models, None)
        if failure is None:
            return Soundness(models.bench.judged(models.of(work)), tuple(voided))
        wrong = in_model(failure)
        suspects = [
            s
            for s in _winners(work, models).items()
            if (names[s[0]], s[1]) not in {v[:2] for v in voided}
        ]
        if not suspects or _failure(work, models, {}) is not None:
            return Soundness(True, tuple(voided), f"with default schedules: {wrong}")
        found = culprit(suspects, lambda few: _failure(work, models, dict(few)))
        for (key, actions), why in [found] if found else [(s, failure) for s in suspects]:
            void(key, actions, why)
            voided.append((names[key], actions, in_model(why)))


def _winners(work: Workload, models: Models) -> dict[str, str]:
    """The stored schedules that the model runs, by kernel key, as far as they are not the
    defaults.
    """
    default = models.of(work, stored=False).actions
    return {key: text for key, text in models.of(work).actions.items() if text != default[key]}


def _failure(
    work: Workload, models: Models, actions: dict[str, str] | None
) -> CandidateFailure | None:
    """Failure of the model in a fresh process, with its stored winners, or with these actions over
    the defaults.
    """
    made = models.of(work) if actions is None else models.of(work, actions, stored=False)
    models.bench.renew()
    try:
        models.bench.check([made])
    except FAULTS as error:
        return error
    return None


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
