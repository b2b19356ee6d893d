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

    def team(self, cores: Sequence[int], openmp: OpenMP | None = None) -> Played:
        return Played(self, cores, 0 if openmp is None else ctypes.addressof(openmp.functions))

    def call(self, name: str, *arguments: int) -> int:
        result, kinds = _SIGNATURES[name]
        return ctypes.CFUNCTYPE(result, *kinds)(self._library.addresses[name])(*arguments)


class Played:
    """A team of such a machine, and what its shares were run by."""

    def __init__(self, system: System, cores: Sequence[int], openmp: int) -> None:
        self.system = system
        places = (_I32 * len(cores))(*cores)
        self.team = system.call("tg_team_create", len(cores), ctypes.addressof(places), openmp)
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


def test_late_helper_without_a_core_of_its_own_is_not_moved(system: System) -> None:
    played = system.team((-1, -1))
    system.still = {1}
    played.on_share, system.on_sleep = lambda _: played.claim(1), lambda: played.finish(1)
    played.launch()
    assert (played.ran, system.placed, system.slept) == ([0], [], 1)


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


def _ways(system: System, runs: int, took_ns: Callable[[list[bool]], int]) -> list[bool]:
    """Of each run of a plan, whose helper is late in the first, True where the team ran it.
    ``took_ns``: the time of the last of these.
    """
    played = system.team((0, 1))
    system.still = {1}
    plan, teams = _plan(played), list[bool]()
    before = [0]

    def share(tid: int) -> None:
        teamed = played.generation != before[0]
        before[0] = played.generation
        if tid == 0:
            teams.append(teamed)
            system.ns += took_ns(teams)
            if teamed:
                played.claim(1)

    played.on_share, system.on_sleep = share, lambda: played.finish(1)
    for _ in range(runs):
        system.call("tg_plan_run", played.team, plan.address, 1)
    return teams


@pytest.mark.parametrize(
    ("team_ns", "alone_ns", "by_team"), [(900, 500, 5), (500, 900, 29), (50_000, 500, 0)]
)
def test_run_beside_others_is_by_the_team_or_alone_as_was_faster(
    system: System, team_ns: int, alone_ns: int, by_team: int
) -> None:
    teams = _ways(system, 33, lambda teams: team_ns if teams[-1] else alone_ns)
    # the first is late, the next tries the team, the third the caller
    # then the fourth of the slower team, the eighth and the twelfth, and 1 of 16, or 1 of 99
    assert teams[:3] == [True, True, False]
    assert sum(teams[3:]) == by_team - (by_team > 15)


def test_pause_of_the_process_keeps_no_plan_from_the_faster_way_for_long(system: System) -> None:
    """A process may be stopped in any run: here for ten seconds, in the first by the caller alone
    and in a later one.
    """

    def took_ns(teams: list[bool]) -> int:
        stopped = not teams[-1] and teams.count(False) in (1, 51)
        return (3000 if teams[-1] else 500) + 10**10 * stopped

    teams = _ways(system, 600, took_ns)
    assert sum(teams[:300]) < 270
    assert sum(teams[300:]) < 25


def test_one_late_run_is_followed_by_few_alone(system: System) -> None:
    """As of a neighbour that was there for a moment: two of the team's runs took long. Sixteen runs
    alone were behind these, 1.8 times as long each.
    """
    played = system.team((0, 1))
    system.still = {1}
    plan, teams, before = _plan(played), list[bool](), [0]

    def share(tid: int) -> None:
        if tid == 0:
            teams.append(played.generation != before[0])
            before[0] = played.generation
            system.ns += 500 if not teams[-1] else 900
            if teams[-1] and system.still:
                played.claim(1)
        if len(teams) == 3:
            system.still = set()

    played.on_share, system.on_sleep = share, lambda: played.finish(1)
    for _ in range(40):
        system.call("tg_plan_run", played.team, plan.address, 1)
    assert teams.index(False) == 2
    assert teams.count(False) == 2


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


# ---- threads of OpenMP


class OpenMP:
    """An OpenMP of ``many`` threads, which run a region one after the other in this one.

    ``come``: the order in which they come to it. ``usual``: threads of a region that asks for none.
    ``on_end`` is what happens before it ends.
    """

    def __init__(self, come: Sequence[int], usual: int) -> None:
        self.come, self.usual = come, usual
        self.asked: list[int] = []
        self.on_end: Callable[[], None] = lambda: None
        self._own = 0
        part = ctypes.CFUNCTYPE(None, _P)

        def parallel(run: int, data: int, threads: int, _flags: int) -> None:
            self.asked.append(threads)
            for own in self.come:
                self._own = own
                part(run)(data)
            self.on_end()

        played = (
            ctypes.CFUNCTYPE(None, _P, _P, _I32, _I32)(parallel),
            ctypes.CFUNCTYPE(_I32)(lambda: self._own),
            ctypes.CFUNCTYPE(_I32)(lambda: len(self.come)),
            ctypes.CFUNCTYPE(_I32)(lambda: self.usual),
        )
        self._kept = played
        self.functions = (_P * 4)(*(ctypes.cast(f, _P) for f in played))


@pytest.mark.parametrize("come", [(0, 1, 2), (0, 2, 1, 3)])
def test_thread_of_openmp_that_comes_late_finds_its_share_run(
    system: System, come: tuple[int, ...]
) -> None:
    openmp = OpenMP(come, 8)
    played = system.team((-1, -1, -1), openmp)
    plan = _plan(played)
    for _ in range(3):
        assert system.call("tg_plan_run", played.team, plan.address, 1) == 1
    assert (played.ran, openmp.asked, played.generation) == ([0, 1, 2] * 3, [0] * 3, 3)
    system.call("tg_team_destroy", played.team)


def test_region_of_too_few_threads_runs_nothing(system: System) -> None:
    openmp = OpenMP((0, 1), 8)
    played = system.team((-1, -1, -1), openmp)
    plan = _plan(played)
    assert system.call("tg_plan_run", played.team, plan.address, 1) == 0
    assert (played.ran, played.generation) == ([], 0)


@pytest.mark.parametrize(("usual", "asked"), [(2, 3), (3, 0), (4, 0)])
def test_region_asks_for_threads_where_there_are_usually_fewer(
    system: System, usual: int, asked: int
) -> None:
    openmp = OpenMP((0, 1, 2), usual)
    played = system.team((-1, -1, -1), openmp)
    system.call("tg_plan_run", played.team, _plan(played).address, 1)
    assert openmp.asked == [asked]


@pytest.mark.parametrize(("apart", "regions"), [(True, []), (False, [0])])
def test_run_by_the_caller_alone_is_in_a_region_where_threads_wait_for_each_other(
    system: System, apart: bool, regions: list[int]
) -> None:
    openmp = OpenMP((0, 1), 8)
    played = system.team((-1, -1), openmp)
    plan = LaunchTable([Launch(played.address, 0, 0, 2, apart)])
    _I32.from_address(plan.address).value = 1  # others want the cores
    for at, ns in ((16, 900), (24, 500)):  # the team was slower
        _I64.from_address(plan.address + at).value = ns
    system.on_sleep = lambda: played.finish(1)
    assert system.call("tg_plan_run", played.team, plan.address, 1) == 1
    assert (openmp.asked, played.ran) == (regions, [0, 1] if apart else [0])


@pytest.mark.parametrize(("ns", "late"), [(40_000, 0), (60_000, 1)])
def test_region_that_waits_for_a_thread_behind_its_plan_had_a_late_one(
    system: System, ns: int, late: int
) -> None:
    openmp = OpenMP((0, 1), 8)
    played = system.team((-1, -1), openmp)
    plan = _plan(played)

    def wait() -> None:
        system.ns += ns

    def work(tid: int) -> None:
        system.ns += 10**9

    played.on_share, openmp.on_end = work, wait
    assert system.call("tg_plan_run", played.team, plan.address, 1) == 1
    assert _I32.from_address(plan.address).value == late
