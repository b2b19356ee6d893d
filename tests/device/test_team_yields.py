"""The native runtime beside other processes, on a system that is played: its helpers never get a
core.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence

import pytest

from tunegrad.devices.host.facts import host, own_code
from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team import _SIGNATURES, EXPORTS, Launch, LaunchTable
from tunegrad.devices.host.team_ir import runtime_text

_I32, _I64, _P = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_KERNEL = ctypes.CFUNCTYPE(None, _P, _P, _I64, _P)
_RECORDS, _RECORD, _THREAD, _CLAIMED, _FINISHED, _GENERATION = 1024, 64, 16, 24, 28, 64
_LENT = 36
_RAW, _WAIT, _WAKE = 4, 128, 129
_OWN = 77
"""The caller's thread."""


class System:
    """A machine of four cores with one thread that runs, the caller, on core 0.

    ``still`` are helpers that have no core; ``on_sleep`` and ``on_look`` are what happens while the
    caller sleeps, or looks at a clock.
    """

    def __init__(self) -> None:
        self.core, self.ns = 0, 0
        self.placed: list[tuple[int, int]] = []
        self.slept, self.woken = 0, 0
        self.confined = False
        self.still: set[int] = set()
        self.on_sleep: Callable[[], None] = lambda: None
        self.on_look: Callable[[], None] = lambda: None
        self._clocks = 0
        played = {
            "pthread_create": (_I32, (_P, _P, _P, _P), self._create),
            "pthread_self": (_I64, (), lambda: _OWN),
            "pthread_setaffinity_np": (_I32, (_I64, _I64, _P), self._place),
            "pthread_getcpuclockid": (_I32, (_I64, _P), self._clock_of),
            "clock_gettime": (_I32, (_I32, _P), self._time),
            "sched_getcpu": (_I32, (), lambda: self.core),
            "syscall": (_I64, (_I64, _P, _I64, _I64), self._futex),
        }
        self._kept = {n: ctypes.CFUNCTYPE(r, *a)(f) for n, (r, a, f) in played.items()}
        imports = {n: ctypes.cast(f, _P).value or 0 for n, f in self._kept.items()}
        text = runtime_text(platform.machine(), host().features)
        self._library = Library(own_code(lambda: text), EXPORTS, imports)
        self._made = 0

    def _create(self, thread: int, _attr: int, _start: int, _record: int) -> int:
        self._made += 1
        _I64.from_address(thread).value = self._made
        return 0

    def _place(self, thread: int, size: int, mask: int) -> int:
        (core,) = (8 * n + b for n, x in enumerate(ctypes.string_at(mask, size)) for b in range(8)
                   if x >> b & 1)  # fmt: skip
        self.placed.append((thread, core))
        return int(self.confined)

    def _clock_of(self, thread: int, which: int) -> int:
        _I32.from_address(which).value = 1000 + thread
        return 0

    def _time(self, which: int, at: int) -> int:
        self.on_look()
        self._clocks += which - 1000 not in self.still
        ns = self.ns if which == _RAW else 1 if which - 1000 in self.still else self._clocks
        _I64.from_address(at).value, _I64.from_address(at + 8).value = divmod(ns, 10**9)
        return 0

    def _futex(self, _number: int, _at: int, action: int, _value: int) -> int:
        if action == _WAKE:
            self.woken += 1
        else:
            self.slept += 1
            self.on_sleep()
        return 0

    def team(self, cores: Sequence[int]) -> Played:
        return Played(self, cores)

    def call(self, name: str, *arguments: int) -> int:
        result, kinds = _SIGNATURES[name]
        return ctypes.CFUNCTYPE(result, *kinds)(self._library.addresses[name])(*arguments)


class Played:
    """A team of such a machine, and what its shares were run by."""

    def __init__(self, system: System, cores: Sequence[int]) -> None:
        self.system = system
        places = (_I32 * len(cores))(*cores)
        self.team = system.call("tg_team_create", len(cores), ctypes.addressof(places))
        self.ran: list[int] = []
        self.on_share: Callable[[int], None] = lambda _: None
        self._kernel = _KERNEL(self._share)
        self.address = ctypes.cast(self._kernel, _P).value or 0
        self.threads = len(cores)

    def _share(self, _buffers: int, _workspace: int, tid: int, _team: int) -> None:
        self.ran.append(tid)
        self.on_share(tid)

    def word(self, tid: int, at: int) -> ctypes.c_int32:
        return _I32.from_address(self.team + _RECORDS + _RECORD * tid + at)

    @property
    def generation(self) -> int:
        return _I32.from_address(self.team + _GENERATION).value

    def launch(self, apart: bool = True) -> None:
        how = Launch(self.address, 0, 0, self.threads, apart).how
        self.system.call("tg_team_run", self.team, self.address, 0, 0, how)

    def claim(self, tid: int) -> None:
        """Be the helper of a share that begins it."""
        self.word(tid, _CLAIMED).value = self.generation

    def finish(self, tid: int) -> None:
        self.word(tid, _FINISHED).value = self.generation


@pytest.fixture
def system() -> System:
    return System()


def test_shares_of_helpers_that_have_no_core_are_run_by_the_caller_each_once(
    system: System,
) -> None:
    played = system.team((0, 1, 2, 3))
    for _ in range(3):
        played.launch()
    assert (played.ran, system.slept) == ([0, 1, 2, 3] * 3, 0)


def test_claimed_share_is_not_run_twice_and_its_helper_gets_the_callers_core(
    system: System,
) -> None:
    played = system.team((0, 1, 2))
    system.still = {2}

    played.on_share, system.on_sleep = lambda _: played.claim(2), lambda: played.finish(2)
    played.launch()
    assert (played.ran, system.placed, system.slept) == ([0, 1], [(2, 0)], 1)


def test_helper_that_runs_is_waited_for_awake(system: System) -> None:
    played = system.team((0, 1))
    looks = []

    def look() -> None:
        looks.append(played.generation)
        if len(looks) > 20:
            played.finish(1)

    played.on_share, system.on_look = lambda _: played.claim(1), look
    played.launch()
    assert (played.ran, system.placed, system.slept) == ([0], [], 0)


def test_helper_on_the_callers_core_changes_places_with_it(system: System) -> None:
    played = system.team((0, 1, 2))
    system.core = 2
    played.launch()
    played.launch()
    assert system.placed == [(2, 0)]


def test_helper_that_a_confined_process_can_not_move_goes_by_itself(system: System) -> None:
    played = system.team((0, 1, 2))
    system.core, system.confined = 2, True
    played.launch()
    assert [played.word(tid, _LENT).value for tid in range(3)] == [0, 0, 1]


def _plan(played: Played) -> LaunchTable:
    return LaunchTable([Launch(played.address, 0, 0, played.threads, True)])


@pytest.mark.parametrize(("team_ns", "alone_ns", "by_team"), [(900, 500, 2), (500, 900, 29)])
def test_run_beside_others_is_by_the_team_or_alone_as_was_faster(
    system: System, team_ns: int, alone_ns: int, by_team: int
) -> None:
    played = system.team((0, 1))
    system.still = {1}
    plan, teams = _plan(played), []
    before = [0]

    def share(tid: int) -> None:
        teamed = played.generation != before[0]
        before[0] = played.generation
        if tid == 0:
            teams.append(teamed)
            system.ns += team_ns if teamed else alone_ns
            if teamed:
                played.claim(1)

    played.on_share, system.on_sleep = share, lambda: played.finish(1)
    for _ in range(33):
        system.call("tg_plan_run", played.team, plan.address, 1)
    # the first is late, the next tries the team, the third the caller; then 1 of 16 is the other
    assert teams[:3] == [True, True, False]
    assert sum(teams[3:]) == by_team - (by_team > 15)


def test_run_of_the_team_in_which_no_helper_was_late_ends_running_alone(system: System) -> None:
    played = system.team((0, 1))
    system.still = {1}
    plan, generations = _plan(played), []

    def share(tid: int) -> None:
        if tid == 0:
            system.ns += 100
            generations.append(played.generation)
            if system.still:
                played.claim(1)

    played.on_share, system.on_sleep = share, lambda: played.finish(1)
    system.call("tg_plan_run", played.team, plan.address, 1)
    system.still = set()
    for _ in range(40):
        system.call("tg_plan_run", played.team, plan.address, 1)
    assert generations == [*range(1, 42)]
