"""The gain of each action of a schedule: its prefixes timed one after another, and the list with
one action left out.

    (no actions)                 12.0 ms
    tile(axis=n, size=16)        11.8 ms    1.02x     without it: not legal
    vectorize(axis=n1)            1.1 ms   10.7 x     without it: 9.9 ms, 9.0x

Candidates are compiled, verified and timed in processes that can be killed; nothing is stored.

Neighbours of a schedule: the same list with one action changed, left out or added, with the time
that the store has, or the rule that each breaks.

    tile(axis=b, size=6)  ->  tile(axis=b, size=4)      0.5612 ms   1.12x
    without unroll(axis=rc)                             0.5310 ms   1.06x
    upcast(axis=b1)  ->  upcast(axis=a1)                illegal: vectorize(axis=c2): ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Protocol

from tunegrad.compiling import Payload
from tunegrad.devices import Candidate, CompiledCandidate, Device, relative_interval
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.target import Target
from tunegrad.opts import Action, Schedule, Space, parse_actions, print_actions
from tunegrad.reports import ExplainStep, Neighbour, StepTime
from tunegrad.trial import Measured, Measurement, Policy, Status, Trial
from tunegrad.tuning import one_change, tried_neighbour

EXPLAIN_POLICY = Policy(
    cache="warm", min_samples=5, max_samples=40, tolerance=0.02, budget_s=0.05, timeout_s=10.0
)
"""The policy for timing a chosen schedule again."""

_STEP_POLICY = Policy(
    cache="warm", min_samples=3, max_samples=20, tolerance=0.02, budget_s=0.03, timeout_s=3.0
)
"""The policy for timing its parts. One that takes longer is stopped: an early prefix may run a
thousand times as long.
"""

_LEAST_S = 0.25

_SPENT = StepTime(note="not timed: the budget is spent")


class StepDevice(Protocol):
    """The part of a ``DeviceMeasurer`` that stepping needs."""

    def compile(self, candidates: Sequence[Candidate]) -> list[CompiledCandidate | Measured]:
        """Lower and compile a batch, in order; failures are Outcomes."""

    def measure_compiled(
        self, candidate: Candidate, compiled: CompiledCandidate, policy: Policy
    ) -> Measurement:
        """Verify and time one candidate."""


@dataclass(slots=True)
class ScheduleTimer:
    """Times action lists of kernels until ``deadline_s`` of ``clock``.

    Equal programs are timed once. Mutable.
    """

    workers: StepDevice
    device: Device
    deadline_s: float = inf
    clock: Callable[[], float] = time.monotonic
    _code: dict[tuple[str, str], CompiledCandidate | Measured] = field(default_factory=dict)
    _times: dict[tuple[str, str], StepTime] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.deadline_s - self.clock()

    def compile(self, work: Sequence[tuple[Kernel, str]]) -> None:
        """Compile in one batch what is not there yet; nothing once the budget is spent."""
        fresh = [(k, text) for k, text in dict.fromkeys(work) if (k.key, text) not in self._code]
        if not fresh or self.left_s <= 0:
            return
        made = self.workers.compile([_candidate(k, text, self.device) for k, text in fresh])
        self._code.update(
            ((k.key, text), code) for (k, text), code in zip(fresh, made, strict=True)
        )

    def forget(self, kernel: Kernel) -> None:
        """Drop a kernel's code; its times stay."""
        self._code = {at: code for at, code in self._code.items() if at[0] != kernel.key}

    def time(
        self, kernel: Kernel, text: str, policy: Policy = EXPLAIN_POLICY, again: bool = False
    ) -> StepTime:
        """The time of one action list that was compiled.

        ``again`` times it once more and takes the better of both: one may have been disturbed.
        """
        code = self._code.get((kernel.key, text))
        if code is None:
            return _SPENT
        if isinstance(code, Measured):
            return _step_time(code.measurement)
        at = kernel.key, code.program_hash
        known = self._times.get(at)
        if known is not None and not (again and known.ms is not None and not known.over):
            return known
        if self.left_s <= 0:
            return known or _SPENT
        # No time to beat is given: a clear loser would be timed by its first run, whose caches are
        # cold.
        limit_s = max(_LEAST_S, min(policy.timeout_s, self.left_s))
        candidate = _candidate(kernel, text, self.device)
        found = _step_time(
            self.workers.measure_compiled(candidate, code, replace(policy, timeout_s=limit_s))
        )
        if known is None or (
            found.ms is not None and not found.over and found.ms < (known.ms or inf)
        ):
            self._times[at] = found
        return self._times[at]


def time_steps(
    timer: ScheduleTimer, kernel: Kernel, schedule: Schedule, rounds: int = 1
) -> tuple[StepTime | None, tuple[ExplainStep, ...]]:
    """The unscheduled kernel's time, and what each action of ``schedule`` bought.

    Every list is timed ``rounds`` times; the whole one, which all others are compared with, twice
    at least.
    """
    actions = schedule.actions
    if not actions:
        return None, ()
    prefixes = [print_actions(actions[:n]) for n in range(len(actions) + 1)]
    others = [_without(kernel, actions, n, timer.device.target) for n in range(len(actions))]
    timer.compile(
        [(kernel, text) for text in (*prefixes, *(t for t in others if isinstance(t, str)))]
    )
    # The longest prefixes first: they are the fastest, and where the budget ends early the slow
    # ones are missing.
    texts = [*reversed(prefixes), *(t for t in others if isinstance(t, str))]
    for turn in range(rounds):
        for text in dict.fromkeys(texts):
            timer.time(kernel, text, _STEP_POLICY, again=turn > 0)
    timer.time(kernel, prefixes[-1], again=True)
    after = [timer.time(kernel, text, _STEP_POLICY) for text in prefixes]
    without = [
        t if isinstance(t, StepTime) else timer.time(kernel, t, _STEP_POLICY) for t in others
    ]
    timer.forget(kernel)
    steps = tuple(
        ExplainStep(
            str(a),
            after[n + 1],
            _ratio(after[n], after[n + 1]),
            without[n],
            _ratio(without[n], after[-1]),
        )
        for n, a in enumerate(actions)
    )
    return after[0], steps


def _without(
    kernel: Kernel, actions: tuple[Action, ...], left_out: int, target: Target
) -> str | StepTime:
    """The list with one action left out, as text; why there is no time, where that is not legal."""
    rest = actions[:left_out] + actions[left_out + 1 :]
    try:
        Space(kernel, target).tree(Schedule(rest))
    except IllegalAction as error:
        return StepTime(note=f"not legal: {error}")
    return print_actions(rest)


def _candidate(kernel: Kernel, text: str, device: Device) -> Candidate:
    return Candidate(kernel.key, Payload(kernel, text, device))


def _step_time(m: Measurement) -> StepTime:
    if m.status is Status.OK:
        off = relative_interval(m.samples_s)
        return StepTime(1e3 * m.seconds, off=off if off < inf else None)
    if m.status is Status.TIMED_OUT and m.timing_s > 0:
        return StepTime(1e3 * m.timing_s, over=True)
    return StepTime(note=f"{m.status}: {m.error.splitlines()[0] if m.error else 'no time'}")


def _ratio(before: StepTime, after: StepTime) -> float | None:
    """Time before over time after; None where one is missing, or both were stopped."""
    if before.ms is None or not after.ms or (before.over and after.over):
        return None
    return before.ms / after.ms


_MOST = 400
"""Lists that are looked at beside those in the store."""


def neighbours(
    kernel: Kernel, target: Target, schedule: Schedule, trials: Sequence[Trial]
) -> tuple[Neighbour, ...]:
    """The neighbours of a schedule: those that the store has, the fastest first; those that failed;
    those that are not legal; those that were not tried.

    ``trials`` are the kernel's, of one machine and space version, as the store counts them. Costs
    are over the row of the schedule itself, where it has one: both beside the same reference.
    """
    actions, rows = schedule.actions, {t.actions: t for t in trials}
    own = rows.get(schedule.text)
    own_s = own.measurement.seconds if own and own.measurement.ran else inf
    found: dict[str, Neighbour] = {}
    for text, trial in rows.items():
        theirs = _parsed(text)
        change = "" if theirs is None else one_change(actions, theirs)
        if change:
            found[text] = tried_neighbour(change, trial, own_s)
    space = Space(kernel, target)
    for changed, change in _made(space, actions):
        text = print_actions(changed)
        if text not in found and text != schedule.text:
            found[text] = _untried(space, changed, change)
    return tuple(sorted(found.values(), key=_order))


_RANK = {"tried": 0, "failed": 1, "illegal": 2, "not tried": 3}


def _order(n: Neighbour) -> tuple[int, float, str]:
    return _RANK[n.kind], n.ms if n.ms is not None else inf, n.change


def _untried(space: Space, changed: Sequence[Action], change: str) -> Neighbour:
    try:
        space.tree(Schedule(tuple(changed)))
    except IllegalAction as error:
        name = space.kernel.name
        said = str(error).removesuffix(f" (kernel {name})").removesuffix(f" in kernel {name}")
        return Neighbour(change, "illegal", why=" ".join(said.split()))
    return Neighbour(change, "not tried")


def _parsed(text: str) -> tuple[Action, ...] | None:
    try:
        return parse_actions(text)
    except IllegalAction:
        return None


def _made(space: Space, actions: Sequence[Action]) -> Iterator[tuple[tuple[Action, ...], str]]:
    """Lists with an argument of one action changed to another that is legal where it stands, with
    one left out, or one added at the end; and what was done.
    """
    count = 0
    tree: LoopTree = space.tree(Schedule(()))
    for n, action in enumerate(actions):
        before, rest = tuple(actions[:n]), tuple(actions[n + 1 :])
        yield (*before, *rest), f"without {action}"
        for other in type(action).options(tree):
            if _one_argument_changed(action, other) and count < _MOST:
                count += 1
                yield (*before, other, *rest), f"{action}  ->  {other}"
        tree = action.apply(tree)
    for other in space.actions(Schedule(tuple(actions))):
        if count < _MOST:
            count += 1
            yield (*actions, other), f"with {other}"


def _one_argument_changed(a: Action, b: Action) -> bool:
    """True when one argument differs: the axis only where there is nothing else to choose."""
    names = [f.name for f in fields(a)]
    changed = [name for name in names if getattr(a, name) != getattr(b, name)]
    return len(changed) == 1 and (changed != ["axis"] or len(names) == 1)
