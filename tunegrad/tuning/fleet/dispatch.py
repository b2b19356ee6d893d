"""Calls handed to stations: kept busy, retried where one is lost, cut off where one hangs.

    submit --> queue --> a station with a free place --> answer
                 ^                |
                 |                |  lost, hung: back into the queue, the station started
                 +----------------+              anew or given up

A call may be for one station alone: it waits for a place there, and runs nowhere else.

Nothing here decides what is searched: when, where and how often a call runs changes no answer that
is recorded, and the caller reads answers in its own order. The transport and the clock are handed
in.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from tunegrad.errors import DeviceError, InternalError
from tunegrad.trial import Fingerprint

from .work import Answer, Call

_PLACES = 2
"""Calls that a station holds: one runs while the next is on its way."""

_TRIES = 3
"""Number of times in a row that a station may be lost."""

_START_S = 90.0
_TICK_S = 1.0
_LOOK_S = 5.0
_GRACE_S = 60.0
"""Seconds that a fleet without machines is waited for."""

_CONSIDERED = 64
"""Free stations that are compared for a call: enough to find one that knows the kernel."""

Ticket = Hashable


class StationLost(Exception):
    """The station died, or its machine did, before the call was answered."""


class StationRaised(StationLost):
    """The station answered with an exception: a bug, or a machine on which nothing works.

    ``error`` is it.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


class Stations(Protocol):
    """The transport: stations by name, calls sent to them, answers taken when they are there."""

    def names(self) -> tuple[str, ...]:
        """The stations that there may be now: of every machine of the kind, new ones too."""

    def open(self, name: str) -> bool:
        """Start a station, or start it anew where there is one; False where its machine is gone."""

    def end(self, name: str) -> None:
        """Stop a station and all of its processes, for good."""

    def send(self, name: str, call: Call) -> Ticket:
        """Begin a call; calls of one station run one after the other."""

    def done(self, tickets: Collection[Ticket], timeout_s: float) -> list[Ticket]:
        """Tickets whose calls ended, well or not; waits ``timeout_s`` at most for the first."""

    def take(self, ticket: Ticket) -> Answer:
        """The answer of a call that ended. Raises StationLost or StationRaised."""


class JobLost(Exception):
    """A call was tried several times, and each time its station was lost, or its only one is gone.

    The message says how.
    """


@dataclass(slots=True, eq=False)
class Job:
    """One call until it is answered.

    Mutable. ``losses`` are why stations were lost while they ran it.
    """

    number: int
    call: Call
    answer: Answer | None = None
    losses: list[str] = field(default_factory=list)
    dropped: bool = False
    raised: Exception | None = None

    @property
    def over(self) -> bool:
        """True when nothing more is to be done for it."""
        return self.answer is not None or self.dropped or len(self.losses) >= self.call.tries


@dataclass(slots=True, eq=False)
class _Seat:
    """A station as the dispatcher sees it.

    ``since_s`` is when the first of its tickets began to run.
    """

    name: str
    ready: bool = False
    tickets: list[Ticket] = field(default_factory=list)
    since_s: float = 0.0
    losses: int = 0
    prepared: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Sent:
    job: Job
    seat: _Seat


class Dispatcher:
    """Runs calls on the stations of one kind of machine.

    Not for several threads; ``clock`` is monotonic.

    ``warn`` is told of machines that were lost. An answer from a machine of another kind is not
    taken.
    """

    def __init__(
        self,
        stations: Stations,
        expected: Fingerprint,
        clock: Callable[[], float],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._stations, self._expected, self._clock, self._warn = stations, expected, clock, warn
        self._seats: dict[str, _Seat] = {}
        self._free: dict[str, _Seat] = {}
        self._given_up: set[str] = set()
        self._queue: list[Job] = []
        self._sent: dict[Ticket, _Sent] = {}
        self._count = 0
        self._empty_since_s = self._looked_s = clock()
        self._join(stations.names())

    @property
    def machines(self) -> int:
        """Stations that answered and were not lost since."""
        return sum(seat.ready for seat in self._seats.values())

    def station(self, name: str = "") -> str:
        """The station of that name while there is one, else the first that is ready; waits for it.

        Raises DeviceError where none is left.
        """
        while name not in self._seats:
            name = next((seat.name for seat in self._seats.values() if seat.ready), "")
            if not name:
                self.pump()
        return name

    def restart(self, name: str) -> None:
        """End what a station does, and start it anew; its other calls go back."""
        if (seat := self._seats.get(name)) is not None:
            self._take_back(seat)
            self._open(seat)

    def submit(self, call: Call) -> Job:
        """Begin a call as soon as a station has a place."""
        self._count += 1
        job = Job(self._count, call)
        self._queue.append(job)
        self._assign()
        return job

    def answer(self, job: Job) -> Any:
        """Wait for a call.

        Raises JobLost where it took several stations with it, DeviceError where none is left.

        Raises InternalError where a station raised, and others did the same: that is a bug, and no
        candidate's fault.
        """
        while job.answer is None:
            if job.dropped:
                raise InternalError(
                    f"call {job.number} ({job.call.method}) was dropped, and is asked for"
                )
            if job.over:
                if job.raised is not None:
                    raise InternalError(
                        f"{job.call.method} of {job.call.key}: {job.losses[-1]}"
                    ) from job.raised
                raise JobLost("; ".join(job.losses))
            if job.call.on and job.call.on not in self._seats:
                self.drop(job)
                raise JobLost("; ".join([*job.losses, f"{job.call.on} is gone"]))
            self.pump()
        return job.answer.value

    def drop(self, job: Job) -> None:
        """Drop a job whose answer is not needed any more."""
        job.dropped = True
        if job in self._queue:
            self._queue.remove(job)

    def collect(self) -> None:
        """Take the answers that are there, without waiting for any."""
        for ticket in self._stations.done(tuple(self._sent), 0.0):
            self._settle(ticket)

    def pump(self) -> None:
        """Wait a little for something to happen, and act on it."""
        self._assign()
        now_s = self._clock()
        if self._seats:
            self._empty_since_s = now_s
        elif now_s - self._empty_since_s > _GRACE_S:
            raise DeviceError(
                f"no machine of the fleet is left, and none came back within {_GRACE_S:g} s"
            )
        for ticket in self._stations.done(tuple(self._sent), _TICK_S):
            self._settle(ticket)
        now_s = self._clock()
        self._cut_off(now_s)
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._join(self._stations.names())
        self._assign()

    # ---- stations

    def _join(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._seats and name not in self._given_up:
                self._open(_Seat(name))

    def _open(self, seat: _Seat) -> None:
        """(Re)start a station; it gets work once it has answered."""
        seat.ready, seat.prepared = False, set()
        self._note(seat)
        if not self._stations.open(seat.name):
            self._seats.pop(seat.name, None)
            return
        self._seats[seat.name] = seat
        self._count += 1
        self._send(seat, Job(self._count, Call("hello", limit_s=_START_S)))

    def _send(self, seat: _Seat, job: Job) -> None:
        ticket = self._stations.send(seat.name, job.call)
        if not seat.tickets:
            seat.since_s = self._clock()
        seat.tickets.append(ticket)
        seat.prepared.add(job.call.key)
        self._sent[ticket] = _Sent(job, seat)
        self._note(seat)

    def _note(self, seat: _Seat) -> None:
        """Keep the list of stations with a free place."""
        if seat.ready and len(seat.tickets) < _PLACES:
            self._free[seat.name] = seat
        else:
            self._free.pop(seat.name, None)

    def _lose(self, seat: _Seat, why: str) -> None:
        """Everything that was with a station goes back; only the call that ran may be to blame."""
        if seat.tickets:
            self._sent[seat.tickets[0]].job.losses.append(f"{seat.name}: {why}")
        self._take_back(seat)
        seat.losses += 1
        self._warn(f"machine {seat.name} was lost: {why}")
        if seat.losses >= _TRIES:
            self._give_up(seat, f"it was lost {seat.losses} times in a row")
        else:
            self._open(seat)

    def _give_up(self, seat: _Seat, why: str) -> None:
        seat.ready = False
        self._note(seat)
        self._given_up.add(seat.name)
        self._seats.pop(seat.name, None)
        self._stations.end(seat.name)
        self._warn(f"machine {seat.name} is left out from here on: {why}")

    def _again(self, job: Job) -> None:
        if not job.over and job.call.method != "hello":
            insort(self._queue, job, key=lambda j: j.number)

    # ---- calls

    def _assign(self) -> None:
        """Hand out the oldest calls that some free station may run."""
        staying: list[Job] = []
        while self._queue and self._free:
            job = self._queue.pop(0)
            if (seat := self._place(job.call)) is not None:
                self._send(seat, job)
            else:
                staying.append(job)
        self._queue[:0] = staying

    def _place(self, call: Call) -> _Seat | None:
        """A free station: an idle one first, and among equals one that knows the kernel."""
        if call.on:
            return self._free.get(call.on)
        some = islice(self._free.values(), _CONSIDERED)
        return min(some, key=lambda s: (len(s.tickets), call.key not in s.prepared))

    def _settle(self, ticket: Ticket) -> None:
        sent = self._sent.get(ticket)
        if sent is None:
            return  # it went with a station that was lost a moment ago
        job, seat = sent.job, sent.seat
        try:
            answer = self._stations.take(ticket)
        except StationLost as error:
            job.raised = error.error if isinstance(error, StationRaised) else None
            self._lose(seat, str(error))
            return
        self._remove(ticket, sent)
        if answer.fingerprint != self._expected:
            fields = ", ".join(name for name, *_ in self._expected.differences(answer.fingerprint))
            self._take_back(seat)
            self._give_up(seat, f"it is of another kind now: other {fields}")
            self._again(job)
            return
        seat.ready, seat.losses = True, 0
        self._note(seat)
        job.answer = answer

    def _take_back(self, seat: _Seat) -> None:
        for ticket in seat.tickets:
            self._again(self._sent.pop(ticket).job)
        seat.tickets.clear()

    def _remove(self, ticket: Ticket, sent: _Sent) -> None:
        del self._sent[ticket]
        if sent.seat.tickets and sent.seat.tickets[0] == ticket:
            sent.seat.since_s = self._clock()
        sent.seat.tickets.remove(ticket)
        self._note(sent.seat)

    def _cut_off(self, now_s: float) -> None:
        """Lose the stations whose call takes longer than it may."""
        for seat in list(self._seats.values()):
            if seat.tickets:
                limit_s = self._sent[seat.tickets[0]].job.call.limit_s
                if now_s - seat.since_s > limit_s:
                    self._lose(seat, f"no answer within {limit_s:g} s")
