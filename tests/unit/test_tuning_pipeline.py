"""The next batch is asked for while a batch compiles; nothing compiles while something is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest
from search_surface import Clock, ModelCase, Surface, SurfaceMeasurer, kernel, separable

from tunegrad.compiling import HOOKS, Payload
from tunegrad.config import ModelSpec, TuneSettings
from tunegrad.devices import (
    Beside,
    Candidate,
    CompiledCandidate,
    Geometry,
    KernelIO,
    Limits,
    host_device,
)
from tunegrad.events import CandidateMeasured, Event
from tunegrad.opts import Schedule
from tunegrad.search import (
    BeamSearcher,
    BudgetPolicy,
    Measurer,
)
from tunegrad.trial import Measured, Measurement, Policy, Status
from tunegrad.tuning.budget import Costs
from tunegrad.tuning.executor import CandidateMeasurer, open_executor
from tunegrad.tuning.interrupt import Interrupt

SPACE, SURFACE = separable(Random(1), decisions=6, options=6)
OTHER = Surface(
    SURFACE.factors,
    2e-3,
    fails={("d3", 2): Status.WRONG, ("d4", 5): Status.COMPILE_ERROR},
    merged=frozenset({"d2"}),
)
SURFACES = {"a": SURFACE, "b": OTHER}
A, B = kernel("a", 64), kernel("b", 65)
TEXTS = [f"tile(axis=d{i}, size={n})" for i in range(6) for n in range(2, 7)]


class Device:
    """Compiles in the background and times, on surfaces; ``log`` holds what happened.

    Its clock is its own.

    Compiling takes 1 s a batch from its beginning, timing 0.1 s. ``breaks`` is raised by the next
    wait.
    """

    device = host_device(1)

    def __init__(self) -> None:
        self.log: list[tuple[str, ...]] = []
        self.best_s: dict[str, float] = {}
        self.under_way: Compiling | None = None
        self.clock = Clock()
        self.breaks: BaseException | None = None
        self.on_timed: Callable[[], None] = lambda: None

    def begin_compile(self, candidates: Sequence[Candidate], known: Collection[str]) -> Compiling:
        assert self.under_way is None, "two batches compile at once"
        self.under_way = Compiling(self, candidates, frozenset(known))
        self.log.append(("compile", *(payload(c).actions for c in candidates)))
        return self.under_way

    def compile(
        self, candidates: Sequence[Candidate], known: Collection[str]
    ) -> list[CompiledCandidate | Measured]:
        self.wait_idle()
        return self.begin_compile(candidates, known).wait()

    def wait_idle(self) -> None:
        if self.under_way is not None:
            self.under_way.wait()

    def refer(self, kernels: object) -> None:
        assert self.under_way is None

    def measure_compiled(
        self,
        candidate: Candidate,
        code: CompiledCandidate,
        policy: Policy,
        best_s: float,
        beside: Beside | None = None,
    ) -> Measurement:
        assert self.under_way is None, "something compiles while a candidate is timed"
        assert code.image, "a known program is measured again"
        found = payload(candidate)
        self.log.append(("timed", found.actions))
        self.best_s[found.actions] = best_s
        self.on_timed()
        self.raise_what_breaks()
        self.clock.now_s += 0.1
        return SURFACES[found.kernel.name].measure(Schedule.parse(found.actions))

    def raise_what_breaks(self) -> None:
        if (error := self.breaks) is not None:
            self.breaks = None
            raise error


class Compiling:
    def __init__(
        self, device: Device, candidates: Sequence[Candidate], known: frozenset[str]
    ) -> None:
        self.device, self.candidates, self.known = device, candidates, known
        self.ends_s = device.clock.now_s + 1.0
        self.found: list[CompiledCandidate | Measured] | None = None

    def wait(self) -> list[CompiledCandidate | Measured]:
        if self.found is None:
            assert self.device.under_way is self, "was given up"
            self.device.under_way = None
            self.device.raise_what_breaks()
            self.device.clock.now_s = max(self.device.clock.now_s, self.ends_s)
            self.device.log.append(("compiled",))
            self.found = [self._compiled(payload(c)) for c in self.candidates]
        return self.found

    def close(self) -> None:
        if self.device.under_way is self:
            self.device.under_way = None
            self.device.log.append(("given up",))

    def _compiled(self, found: Payload) -> CompiledCandidate | Measured:
        schedule, surface = Schedule.parse(found.actions), SURFACES[found.kernel.name]
        program, measurement = surface.program(schedule), surface.measure(schedule)
        if measurement.status is Status.COMPILE_ERROR:
            return Measured(program, measurement)
        image = b"" if program in self.known else b"x"
        return CompiledCandidate(image, "k", KernelIO(()), (), Geometry(), program, 0.25, 1.0)


def payload(candidate: Candidate) -> Payload:
    found = candidate.payload
    assert isinstance(found, Payload)
    return found


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def measurer(device: Device) -> CandidateMeasurer:
    return measurer_on(device)


def measurer_on(device: Device, costs: Costs | None = None) -> CandidateMeasurer:
    return CandidateMeasurer(device, Policy(), costs=costs)  # type: ignore[arg-type]  # what it asks of a device


def schedules(*numbers: int) -> list[Schedule]:
    return [Schedule.parse(TEXTS[i]) for i in numbers]


def texts(*numbers: int) -> tuple[str, ...]:
    return tuple(TEXTS[i] for i in numbers)


# ---- one batch behind the other


def test_batch_compiles_from_the_call_on_and_is_timed_when_it_is_read(device, measurer):
    found = measurer.measure(A, schedules(0, 1), math.inf, ())
    assert device.log == [("compile", *texts(0, 1))]
    next(found)
    assert device.log[1:] == [("compiled",), ("timed", TEXTS[0])]


def test_second_batch_compiles_right_after_the_last_candidate_of_the_first(device, measurer):
    first = measurer.measure(A, schedules(0, 1), math.inf, ())
    second = measurer.measure(B, schedules(2), math.inf, ())
    next(first)
    assert device.log[-1] == ("timed", TEXTS[0])
    next(first)
    assert device.log[-2:] == [("timed", TEXTS[1]), ("compile", TEXTS[2])]
    assert next(first, None) is None
    assert len(list(second)) == 1
    assert device.log[-2:] == [("compiled",), ("timed", TEXTS[2])]


def test_second_batch_that_is_read_first_waits_for_what_compiles(device, measurer):
    first = measurer.measure(A, schedules(0), math.inf, ())
    second = measurer.measure(B, schedules(1), math.inf, ())
    device.begin_compile, begin = (
        lambda *a: (device.wait_idle(), begin(*a))[1],
        device.begin_compile,
    )
    assert len(list(second)) == len(list(first)) == 1
    assert [what for what, *_ in device.log] == [
        "compile",
        "compiled",
        "compile",
        "compiled",
        "timed",
        "timed",
    ]


def test_empty_batch_has_no_results(device, measurer):
    assert list(measurer.measure(A, [], math.inf, ())) == []
    assert len(list(measurer.measure(A, schedules(0), math.inf, ()))) == 1


def test_primed_code_is_not_compiled_again(device, measurer):
    measurer.prime([(A, s) for s in schedules(0, 1)])
    found = measurer.measure(A, schedules(0, 2), math.inf, ())
    assert device.log == [("compile", *texts(0, 1)), ("compiled",), ("compile", TEXTS[2])]
    assert len(list(found)) == 2


def test_kernel_that_has_a_reference_is_not_compiled_again_to_have_one(device, measurer):
    measurer.stand([(A, schedules(0)[0], 1.0)])
    measurer.stand([(A, schedules(1)[0], 2.0)])
    assert measurer.references.of(A.key).seconds == 1.0
    assert ("compile", TEXTS[0]) in device.log
    assert ("compile", TEXTS[1]) not in device.log


def test_priming_waits_for_a_batch_that_compiles_and_the_batch_keeps_its_code(device, measurer):
    found = measurer.measure(A, schedules(0), math.inf, ())
    measurer.prime([(A, s) for s in schedules(1)])
    assert [what for what, *_ in device.log] == ["compile", "compiled", "compile", "compiled"]
    assert len(list(found)) == 1


def test_settled_means_that_nothing_compiles(device, measurer):
    found = measurer.measure(A, schedules(0), math.inf, ())
    measurer.wait_idle()
    assert device.under_way is None
    assert len(list(found)) == 1


# ---- what came to light since


def test_time_to_beat_is_the_one_that_is_known_when_a_candidate_is_timed(device, measurer):
    first = measurer.measure(A, schedules(0), 1.0, ())
    second, other = (
        measurer.measure(A, schedules(1), 1.0, ()),
        measurer.measure(B, schedules(2), 1.0, ()),
    )
    best_s = [m.measurement.seconds for m in first if m is not None]
    assert len(list(second)) == len(list(other)) == 1
    assert (device.best_s[TEXTS[0]], device.best_s[TEXTS[1]], device.best_s[TEXTS[2]]) == (
        1.0,
        best_s[0],
        1.0,
    )


def test_program_that_the_batch_before_measured_is_not_measured_again(device, measurer):
    # To kernel b, answers of d2 are one program.
    same = [Schedule.parse(f"tile(axis=d2, size={n})") for n in (2, 3, 4)]
    first = measurer.measure(B, same[:1], math.inf, ())
    second = measurer.measure(B, [*same[1:], *schedules(0)], math.inf, ())
    assert [m is None for m in first] == [False]
    assert [m is None for m in second] == [True, True, False]
    assert [what for what, *_ in device.log].count("timed") == 2


def test_default_is_measured_where_its_program_is_known_already(device, measurer):
    same = [Schedule.parse(f"tile(axis=d2, size={n})") for n in (2, 3)]
    assert [m is None for m in measurer.measure(B, same[:1], math.inf, ())] == [False]
    assert [m is None for m in measurer.measure(B, same[1:], math.inf, ())] == [
        False
    ]  # as its caller knows none


# ---- given up


def test_closed_while_it_compiles_it_is_given_up(device, measurer):
    found = measurer.measure(A, schedules(0), math.inf, ())
    found.close()
    found.close()
    assert device.log == [("compile", TEXTS[0]), ("given up",)]
    assert list(found) == []


def test_closed_while_it_waits_its_turn_it_never_compiles(device, measurer):
    first = measurer.measure(A, schedules(0), math.inf, ())
    second, third = (
        measurer.measure(B, schedules(1), math.inf, ()),
        measurer.measure(A, schedules(2), math.inf, ()),
    )
    second.close()
    assert len(list(first)) == len(list(third)) == 1
    assert list(second) == []
    assert ("compile", TEXTS[1]) not in device.log


def test_closed_while_it_is_timed_nothing_more_of_it_is(device, measurer):
    found = measurer.measure(A, schedules(0, 1), math.inf, ())
    next(found)
    found.close()
    assert list(found) == []
    assert device.log[-1] == ("timed", TEXTS[0])
    assert len(list(measurer.measure(A, schedules(2), math.inf, ()))) == 1


def test_all_closed_nothing_is_left_compiling(device, measurer):
    batches = [measurer.measure(A, schedules(i), math.inf, ()) for i in range(3)]
    for batch in batches:
        batch.close()
    assert device.under_way is None
    assert device.log == [("compile", TEXTS[0]), ("given up",)]


def test_second_batch_can_be_read_after_the_first_was_closed(device, measurer):
    first, second = (measurer.measure(A, schedules(i), math.inf, ()) for i in range(2))
    first.close()
    assert len(list(second)) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")])
def test_wait_that_is_broken_off_ends_the_batch_and_not_the_measurer(device, measurer, error):
    first, second = (measurer.measure(A, schedules(i), math.inf, ()) for i in range(2))
    device.breaks = error
    with pytest.raises(type(error)):
        next(first)
    assert list(first) == []
    assert device.under_way is None
    assert len(list(second)) == 1


def test_candidate_that_is_interrupted_ends_the_batch_and_starts_nothing(device, measurer):
    first, second = (measurer.measure(A, schedules(i), math.inf, ()) for i in range(2))
    device.on_timed = lambda: setattr(device, "breaks", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        next(first)
    device.on_timed = lambda: None
    assert device.under_way is None
    assert ("compile", TEXTS[1]) not in device.log
    assert len(list(second)) == 1


# ---- costs


def test_costs_of_asking_while_a_batch_compiles_count_once_and_add_up(device):
    costs = Costs(device.clock)
    measurer = measurer_on(device, costs)
    found = measurer.measure(A, schedules(0, 1), math.inf, ())
    with costs.part("asking"):
        device.clock.now_s += 0.6
    assert len(list(found)) == 2
    seconds = costs.seconds
    assert seconds["asking"] == pytest.approx(0.6)
    # Of the batch's second, 0.4 s were waited for.
    assert seconds["lowering"] + seconds["compiling"] == pytest.approx(0.4)
    assert sum(seconds.values()) == pytest.approx(device.clock.now_s) == pytest.approx(1.2)


def test_costs_of_a_batch_that_was_done_before_it_was_waited_for_are_none(device):
    costs = Costs(device.clock)
    found = measurer_on(device, costs).measure(A, schedules(0), math.inf, ())
    with costs.part("asking"):
        device.clock.now_s += 3.0
    assert len(list(found)) == 1
    assert costs.seconds.keys().isdisjoint({"lowering", "compiling"})
    assert sum(costs.seconds.values()) == pytest.approx(device.clock.now_s)


# ---- a search


def test_site_of_this_machine_keeps_one_batch_under_way_and_one_asked_for():
    settings = TuneSettings(ModelSpec("toy", "a:b"), "cpu", 1, 60.0, "beam", Path("s.db"), 0)
    with open_executor(
        settings, lambda _: Policy(), Limits(), HOOKS, Interrupt(), Costs(), print
    ) as executor:
        assert [executor.in_flight(batch) for batch in (8, 16)] == [9, 17]


class Asking(BeamSearcher):
    """Notes in the device's log when it is asked, and that it takes a while."""

    device: Device

    def ask(self, n):
        found = super().ask(n)
        self.device.log.append(("ask", *(p.schedule.text for p in found)))
        self.device.clock.now_s += 0.1 * len(found)
        return found


class Case(ModelCase):
    """A search of both kernels for so many seconds of the device's clock."""

    def __init__(
        self, measurer: Measurer, device: Device, trials: int = 120, batch: int = 8, **more
    ) -> None:
        def asking(space, rng):
            searcher = Asking(space, rng)
            searcher.device = device
            return searcher

        policy = BudgetPolicy(batch=batch, in_flight=batch + 1)
        super().__init__(SURFACES, trials, measurer=measurer, cls=asking, policy=policy, **more)

    def observe(self, event: Event) -> None:
        super().observe(event)
        if isinstance(event, CandidateMeasured):
            self.clock.now_s += 1.0


def test_search_asks_for_a_batch_while_the_one_before_it_compiles(device, measurer):
    Case(measurer, device).run()
    asked = [entry[1:] for entry in device.log if entry[0] == "ask"]
    assert len(asked) > 10
    after_first = device.log[device.log.index(("ask", *asked[0])) + 1 :]
    compiling: tuple[str, ...] = ()
    for number, entry in enumerate(asked[1:-1], 1):
        before = after_first[: after_first.index(("ask", *entry))]
        compiling = next(e for e in reversed(before) if e[0] in ("compile", "compiled"))
        assert compiling == ("compile", *asked[number - 1]), (
            "the batch before it compiles, and nothing else"
        )


def test_search_times_a_whole_batch_before_the_next_one_compiles(device, measurer):
    Case(measurer, device).run()
    batch: tuple[str, ...] = ()
    for what, *entry in device.log:
        if what == "compile":
            batch = tuple(entry)
        elif what == "timed":
            assert entry[0] in batch
    assert [what for what, *_ in device.log].count("timed") > 100


@pytest.mark.parametrize("batch", [8, 16])
def test_search_decides_the_same_twice_and_as_where_nothing_overlaps(batch):
    cases = []
    for _ in range(2):
        device = Device()
        cases.append(Case(measurer_on(device), device, batch=batch).run())
    lazy = Case(SurfaceMeasurer(SURFACES), Device(), batch=batch).run()
    assert cases[0].told == cases[1].told == lazy.told
    assert cases[0].rows == cases[1].rows == lazy.rows
    assert len(lazy.told) >= 120


@pytest.mark.parametrize("batch", [8, 16])
def test_search_keeps_one_batch_under_way_and_one_asked_for(device, measurer, batch):
    counts: list[int] = []

    class Counted:
        """Notes how many schedules were handed in and not read."""

        def measure(self, kernel, schedules, best_s, known):
            counts.append(len(schedules))
            return self.read(measurer.measure(kernel, schedules, best_s, known), len(schedules))

        def read(self, found, count):
            yield from found
            counts.append(-count)

    Case(Counted(), device, batch=batch).run()
    under_way = list(accumulate(counts))
    assert max(under_way) == 2 * batch
    assert under_way[-1] == 0


def test_search_that_is_interrupted_keeps_what_was_told_and_leaves_nothing_compiling(
    device, measurer
):
    case = Case(measurer, device)
    device.on_timed = lambda: (
        setattr(device, "breaks", KeyboardInterrupt())
        if sum(e[0] == "timed" for e in device.log) == 40
        else None
    )
    with pytest.raises(KeyboardInterrupt):
        case.run()
    assert device.under_way is None
    assert len(case.told) == sum(map(len, case.rows.values())) >= 39
    assert sum(e[0] == "timed" for e in device.log) == 40


def test_search_that_was_cut_short_is_resumed_where_it_was(device):
    whole = Case(measurer_on(device), device).run()
    for cut_at in (5, 33, 70):
        first = Device()
        cut = Case(measurer_on(first), first, session="s1")
        first.on_timed = lambda d=first, n=cut_at: (
            setattr(d, "breaks", KeyboardInterrupt())
            if sum(e[0] == "timed" for e in d.log) == n
            else None
        )
        with pytest.raises(KeyboardInterrupt):
            cut.run()
        second = Device()
        again = Case(
            measurer_on(second),
            second,
            120 - len(cut.told),
            store=cut.store,
            session="s2",
            resumed={"s1"},
        ).run()
        assert (cut.told + again.told)[:110] == whole.told[:110]
