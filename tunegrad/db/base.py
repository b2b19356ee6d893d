"""The base of every store: lookups, session blocks, refusing to write when opened for reading."""

from __future__ import annotations

import json
import math
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from tunegrad.db.lookup import Lookup, look_up
from tunegrad.db.protocol import Mode
from tunegrad.db.records import WITHDRAWN, Properties, Session, Withdrawal, withdrawn_by
from tunegrad.db.rows import clean_text, properties_faults
from tunegrad.errors import InternalError, StoreError
from tunegrad.trial import Fingerprint, Status, Trial

__all__ = ["BaseStore", "described", "withdrawn"]

_REASON_CHARACTERS = 4000


class BaseStore(ABC):
    """Common part of the stores.

    ``label`` names the store in messages, ``clock`` gives seconds since the epoch.
    """

    def __init__(self, label: str, mode: Mode, clock: Callable[[], float]) -> None:
        self.label = label
        self._mode: Mode = mode
        self._clock = clock
        self._owner = os.getpid()
        self._closed = False

    @property
    def mode(self) -> Mode:
        """The mode in which it was opened."""
        return self._mode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds."""

    @abstractmethod
    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The winner for exactly this, or None."""

    @abstractmethod
    def knows(self, kernel_key: str) -> bool:
        """True when any row names this kernel."""

    @abstractmethod
    def places(self, kernel_key: str) -> Sequence[tuple[Fingerprint, int]]:
        """Distinct (fingerprint, space version) pairs with an OK trial of this kernel, the newest
        first.
        """

    @abstractmethod
    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first."""

    @abstractmethod
    def _start_session(self, session: Session) -> bool:
        """Write a session's row; False when its id is taken."""

    @abstractmethod
    def _end_session(self, session: Session) -> None:
        """Write its end."""

    @abstractmethod
    def _write_state(self, session: Session) -> None:
        """Write its state."""

    @abstractmethod
    def sessions(self) -> list[Session]:
        """Every session, oldest first."""

    def lookup(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Lookup:
        """The winner, or what differs between here and what is stored."""
        return look_up(self, kernel_key, fingerprint, space_version)

    @contextmanager
    def session(
        self,
        command: str,
        seed: int,
        settings: Mapping[str, object],
        version: str,
        session_id: str | None = None,
        versions: Properties = (),
        state: Properties = (),
    ) -> Iterator[Session]:
        """Open a session row and note the time when the block ends, however it ends."""
        self._check_writable()
        if not -(2**63) <= seed < 2**63:
            raise StoreError(f"store {self.label}: seed {seed} does not fit 64 bits")
        try:
            text = json.dumps(dict(settings), sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InternalError(
                f"store {self.label}: settings of a session are not JSON: {error}"
            ) from error
        if faults := [*properties_faults("versions", versions), *properties_faults("state", state)]:
            raise InternalError(f"store {self.label}: session: {'; '.join(faults)}")
        name, now_s = session_id or uuid.uuid4().hex, self._clock()
        session = Session(
            name, now_s, None, clean_text(command), seed, text, version, versions, state
        )
        if not self._start_session(session):
            raise StoreError(
                f"store {self.label}: session id {session.id!r} is taken; choose another, or none"
            )
        try:
            yield session
        finally:
            if not self._closed:
                self._end_session(replace(session, ended_s=self._clock()))

    def add_facts(self, session_id: str, facts: Properties) -> None:
        """Add facts to a session's state; those of a known name replace it."""
        self._check_writable()
        found = next((s for s in self.sessions() if s.id == session_id), None)
        if found is None:
            raise StoreError(f"store {self.label}: no session {session_id!r}")
        state = tuple(sorted({**dict(found.state), **dict(facts)}.items()))
        if faults := list(properties_faults("state", state)):
            raise InternalError(f"store {self.label}: session: {'; '.join(faults)}")
        self._write_state(replace(found, state=state))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"store {self.label}: is closed")
        if self._owner != os.getpid():
            raise StoreError(
                f"store {self.label}: was opened by process {self._owner} and is used in "
                f"process {os.getpid()}; "
                "workers return rows to the owner"
            )

    def _check_writable(self) -> None:
        self._check_open()
        if self._mode == "read":
            raise StoreError(
                f"store {self.label}: is open for reading; open it with mode 'write' to change it"
            )

    def _check_spend(self, model_key: str, seconds: float) -> None:
        if not (math.isfinite(seconds) and seconds >= 0):
            raise InternalError(
                f"store {self.label}: spend of model {model_key} is {seconds!r}, not a finite "
                "time >= 0"
            )

    def _reason(self, reason: str) -> str:
        """The reason of a withdrawal as it is kept: valid Unicode of a bounded length."""
        return clean_text(reason, _REASON_CHARACTERS)

    def _nothing_to_withdraw(self, trial_id: int) -> StoreError:
        return StoreError(
            f"store {self.label}: trial {trial_id} can not be withdrawn: no such trial"
        )

    def _nothing_to_describe(self, trial_id: int) -> StoreError:
        return StoreError(f"store {self.label}: there is no trial {trial_id} to describe")

    def _no_such_winner(self, trial_id: int, trial: Trial | None) -> StoreError:
        what = (
            "no such trial"
            if trial is None
            else f"its status is {trial.measurement.status}, without usable samples"
        )
        if trial is not None and trial.measurement.error.startswith(WITHDRAWN):
            what = f"it was {trial.measurement.error}"
        return StoreError(
            f"store {self.label}: trial {trial_id} can not be promoted: {what}; a winner is ok "
            "and has samples"
        )


def described(trial: Trial, facts: Properties) -> Trial:
    """A trial with more facts of its program; what it says itself stays."""
    known = tuple(sorted((dict(facts) | dict(trial.measurement.facts)).items()))
    return replace(trial, measurement=replace(trial.measurement, facts=known))


def withdrawn(trial: Trial, reason: str, session: str) -> Trial:
    """A withdrawn trial as the store returns it to every reader: a wrong one."""
    said = withdrawn_by(session, reason)
    wrong = replace(
        trial.measurement, status=Status.WRONG, samples_s=(), reference_samples_s=(), error=said
    )
    return replace(trial, measurement=wrong)
