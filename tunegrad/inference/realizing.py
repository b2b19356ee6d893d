"""The values of tensors, computed with default schedules; equal graphs share one plan.

    first run      little work has quick code: rows and columns in loops, LLVM's level 0, one
                   object for shapes that differ in constants alone
    second run     ``LATER`` compiles the default schedules beside the caller
    further runs   use them as soon as they are there

Both codes add in one order, so that all runs are equal bit for bit.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tunegrad import devices
from tunegrad.compiling import KeptPlan, behind, graph_key
from tunegrad.config import allowed_threads
from tunegrad.errors import CandidateFailure, IllegalAction
from tunegrad.forks import ForkSafeLock, in_child
from tunegrad.frontend import Tensor, joined
from tunegrad.inference.choosing import engine_of, process_compiler
from tunegrad.ir import graph
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.rewrites import rewritten
from tunegrad.lazy import logger, sha256
from tunegrad.runtime import Runner

if TYPE_CHECKING:
    from tunegrad.devices import Device, Engine
    from tunegrad.frontend import Known
    from tunegrad.ir.kernel import Kernel, Reduce
    from tunegrad.opts import Action

Array = NDArray[Any]

_CACHED_PLANS, _CACHED_BYTES = 64, 256 << 20
"""Plans of computed tensors that are kept, and bytes of their memory; the oldest go first."""
_LITTLE = 1 << 16
"""Elements that numpy computes at once, in the time of making a plan or less."""
_KNOWN = graph.MOVEMENT | {GraphOp.FULL, GraphOp.CONST}

_LITTLE_WORK = 1 << 22
"""Operations and elements of a graph whose first run has quick code. In turns on a Zen 5, up to 5
million, it saved 2 to 11 ms of 7 to 24 (a product of 64x64x64, an addition of 512x512, a softmax of
512x512, a transposition of 1024x1024), and 55 of 95 of a cumulative sum.
"""
_FEW = 1 << 17
"""Operations and elements of a graph that one thread computes. In turns on two quiet cores of a Zen
5, a call on one thread took less up to 98,000 (softmax), 147,000 (addition), 295,000 (sums of rows)
and 1,037,000 (product).
"""
_SCALAR_WORK = 1 << 20
_OF_AN_AXIS = frozenset(("thread", "tile", "unroll", "upcast", "vectorize"))
"""Operations and elements of a kernel whose quick code may be its loops as they are, and actions
that do nothing to another axis than theirs. In turns on two quiet cores of a Zen 5 that saved 1.5
to 2.5 ms of the first call of a product (7 ms) or a convolution (13) of up to 750,000, and nothing
of a product of a million.
"""
_DIGITS = "0123456789"
_FEW_TERMS = 16
"""Terms of the smallest block in which lowering adds up a long sum (``opts.lowering.reductions``):
blocks begin where they do in loops.
"""
_GIVES_WAY_S = 1e-3
"""Sleep of a thread for what may wait, before it begins: else the caller, who waits until it has
started, would get Python's lock back after the switch interval alone, 5 ms later.
"""
_CACHED_CALLS = 256
_calls: dict[tuple[Known, tuple[int, ...]], tuple[Node, ...]] = {}
"""The plans that ``runs`` of forms run."""
_plans: OrderedDict[tuple[Node, ...], Runner] = OrderedDict()
_first: set[tuple[Node, ...]] = set()
"""Plans of quick code that have run once."""
_plans_lock = ForkSafeLock()


class Later:
    """Does what may wait, one thing after the other, in a thread that ends when all is done, behind
    what others compile.

    What has not begun when the program forks is not done in the child, nor ``optional`` jobs when
    it ends.
    """

    def __init__(self) -> None:
        self.forked()
        in_child(self)

    def forked(self) -> None:
        self._left: deque[tuple[Callable[[], None], bool]] = deque()
        self._lock = threading.RLock()  # a signal's handler may compute while ``do`` goes on
        self._thread: threading.Thread | None = None

    def do(self, *jobs: Callable[[], None], optional: bool = False) -> None:
        """Do these after all that was given before; where one fails, that is logged."""
        with self._lock:
            self._left += ((job, optional) for job in jobs)
            if self._thread is None and self._left:
                self._thread = threading.Thread(target=self._work, name="tunegrad later")
                try:
                    with suppress(RuntimeError):  # no more threads, or the program ends
                        self._thread.start()
                finally:  # Ctrl-C may come before it is there
                    if not self._thread.is_alive():
                        self._thread = None

    def wait(self) -> None:
        """Return when all is done."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        time.sleep(_GIVES_WAY_S)
        while True:
            with self._lock:
                if not self._left:
                    self._thread = None
                    return
                job, optional = self._left.popleft()
            if optional and not threading.main_thread().is_alive():
                continue
            try:
                with behind():
                    job()
            except Exception as error:  # noqa: BLE001  # the caller is elsewhere, and has what it needs
                logger(__name__).info("later: %s", error)


LATER = Later()
"""Keeps what was made, and compiles in full what has run for the second time."""


def realize(tensors: Sequence[Tensor]) -> list[Array]:
    """The values of tensors whose inputs are all known, with default schedules, on all of this
    process's threads.

    Equal graphs of equal shapes share one plan, whatever the values. Constants, views of them, and
    a little arithmetic of those or of positions launch nothing.
    """
    pending = tensors[0].pending if len(tensors) == 1 else None
    if pending is not None and (known := pending.computed()) is not None:
        return [known]
    nodes, names = _canonical(tuple(t.node for t in tensors))
    if not names and (constants := _constants(nodes)) is not None:
        return constants
    bindings = joined(tensors)
    runner = _plan_of(nodes)
    if pending is not None:
        of_array = {id(bindings[old]): new for old, new in names.items()}
        order, leaves = pending.leaves()
        run = runner.direct([of_array.get(id(x.parts[0]), "") for x in leaves], addressed=True)
        _remember((pending.known, order), nodes, runner, run)
    return list(runner.run({new: bindings[old] for old, new in names.items()}))


def _remember(
    call: tuple[Known, tuple[int, ...]],
    nodes: tuple[Node, ...],
    runner: Runner,
    run: Callable[[Sequence[int]], Sequence[Array]] | None,
) -> None:
    """Let results of a form be what a plan's run gives, while the plan is kept."""
    with _plans_lock:
        if run is not None and _plans.get(nodes) is runner and nodes not in _first:
            while len(_calls) >= _CACHED_CALLS:
                _forget(next(iter(_calls)))
            _calls[call] = nodes
            call[0].runs[call[1]] = run, runner


def _forget(call: tuple[Known, tuple[int, ...]]) -> None:
    del _calls[call], call[0].runs[call[1]]


def _forget_calls(gone: tuple[Node, ...]) -> None:
    """Forget all calls that run a plan."""
    for call in [call for call, of in _calls.items() if of == gone]:
        _forget(call)


def _constants(nodes: tuple[Node, ...]) -> list[Array] | None:
    """The values of a graph without inputs by numpy; None where that has much to compute."""
    from tunegrad.ir.folding import fold_constants
    from tunegrad.ir.interpret.evaluate import evaluate

    folded = fold_constants(nodes)
    if _work(folded) > _LITTLE:
        return None
    return [np.array(values, order="C") for values in evaluate(folded)]


def _work(nodes: tuple[Node, ...]) -> int:
    """Elements that the operations of a graph read or make."""
    computing = (n for n in graph.topological(nodes) if n.op not in _KNOWN)
    return sum(max(m.size for m in (n, *n.srcs)) for n in computing)


def _canonical(outputs: tuple[Node, ...]) -> tuple[tuple[Node, ...], dict[str, str]]:
    """The graph with its inputs numbered in order, so that equal graphs are the same nodes; and new
    names by old.
    """
    names: dict[str, str] = {}

    def renamed(n: Node) -> Node | None:
        if n.op is not GraphOp.INPUT:
            return None
        name = names.setdefault(str(n.arg), f"in{len(names)}")
        return graph.graph_input(name, n.shape, n.dtype)

    return rewritten(outputs, renamed), names


def _plan_of(nodes: tuple[Node, ...]) -> Runner:
    with _plans_lock:
        runner = _plans.get(nodes)
        if runner is not None:
            _plans.move_to_end(nodes)
            if nodes in _first:
                _first.discard(nodes)
                LATER.do(lambda: _in_full(nodes), optional=True)
            return runner
        with process_compiler().first() as left:
            runner = _plans[nodes] = _default_plan(nodes)
        LATER.do(*left)
        while len(_plans) > _CACHED_PLANS or (len(_plans) > 1 and _plan_bytes() > _CACHED_BYTES):
            gone, _ = _plans.popitem(last=False)
            _first.discard(gone)
            _forget_calls(gone)
        return runner


def _in_full(nodes: tuple[Node, ...]) -> None:
    """Let a plan that is kept run the default schedules in place of quick code."""
    runner = _default_plan(nodes, in_full=True)
    with _plans_lock:
        _first.discard(nodes)
        if nodes in _plans:
            _plans[nodes] = runner
            _forget_calls(nodes)


def _plan_bytes() -> int:
    return sum(r.memory_bytes for r in _plans.values())


def _default_plan(nodes: tuple[Node, ...], *, in_full: bool = False) -> Runner:
    threads = 1 if _work(nodes) <= _FEW else allowed_threads()
    compiler, engine = process_compiler(), engine_of(devices.host_device(threads))
    device = engine.device
    key = graph_key(nodes, device)
    kept = compiler.plan(key, nodes, device)
    if kept is None:
        kept, device = _made(nodes, key, engine, in_full=in_full)
    codes = {
        key: compiler.code(kernel, kept.schedules[key], engine, device)
        for key, (kernel, _) in kept.plan.kernels().items()
    }
    return Runner(kept.plan, codes, engine, guards=kept.guards)


def _made(
    nodes: tuple[Node, ...], key: str | None, engine: Engine, *, in_full: bool
) -> tuple[KeptPlan, Device]:
    """The plan of a graph that this machine has no full code of, and what compiles it: the engine's
    device, or a quick one for little work. Plans are kept for other processes, by ``key`` and by
    one of quick code.
    """
    compiler, device = process_compiler(), engine.device
    hasty = devices.host_device(device.target.threads, opt_level=0)
    quick_key = None if key is None else sha256(f"{key} {hasty.compiler()}".encode()).hexdigest()
    quick = compiler.plan(quick_key, nodes, hasty)
    found = quick or _launches(nodes, engine)
    kernels = {name: kernel for name, (kernel, _) in found.plan.kernels().items()}
    decided: dict[str, str] = dict(found.decided or {})

    def default(name: str) -> str:
        """A default schedule, found once."""
        if name not in decided:
            decided[name] = compiler.default(kernels[name], device)
        return decided[name]

    if quick is None and not in_full:
        work = sum(n * _work_of(k) for k, n in found.plan.kernels().values())
        if work <= _LITTLE_WORK:
            rolled = {n: _rolled(k, partial(default, n), hasty) for n, k in kernels.items()}
            quick = replace(found, schedules=rolled, decided=decided)
            compiler.keep(quick_key, quick, nodes, hasty)
    if quick is not None and not in_full:
        _first.add(nodes)
        return quick, hasty
    full = replace(found, schedules={n: default(n) for n in kernels}, decided=None)
    compiler.keep(key, full, nodes, device)
    return full, device


def _work_of(kernel: Kernel) -> int:
    """Operations and elements of a kernel."""
    return kernel.flops + sum(p.size for p in kernel.params)


def _rolled(kernel: Kernel, default: Callable[[], str], device: Device) -> str:
    """The default schedule with less code, in which each sum has the same order: none, for a little
    kernel whose sums it leaves as they are, else rows and columns in loops in place of registers,
    where that is legal. A little kernel without sums is not asked for its default.
    """
    from tunegrad.opts import Schedule, Upcast, chained_terms

    if kernel.fixed:
        return default()
    little = _work_of(kernel) <= _SCALAR_WORK
    schedule = default() if kernel.reduces or not little else ""
    actions = Schedule.parse(schedule).actions
    sums: dict[str, tuple[int, ...]] = {
        a.name: (a.extent,) for r in kernel.reduces for a in r.folds
    }
    """By axis the extents of its loops, of those actions that were looked at."""
    unrolled = {getattr(x, "axis") for x in actions if x.name == "unroll"}  # noqa: B009

    def leaves(x: Action) -> bool:
        """True where an action leaves sums as they are: innermost, each term after the other."""
        if x.name == "unroll" and is_of_sum(x):
            return all(_in_order(loops(r), unrolled) for r in kernel.reduces)
        if x.name == "reorder":
            order: tuple[str, ...] = getattr(x, "order")  # noqa: B009
            inside = tuple(name for r in kernel.reduces for name, _ in loops(r))
            return order[len(order) - len(inside) :] == inside
        if x.name == "tile" and is_of_sum(x):
            return splits(*(getattr(x, name) for name in ("axis", "size")))
        return x.name in _OF_AN_AXIS and not is_of_sum(x)

    def splits(loop: str, size: int) -> bool:
        """True where loops of a tile count to their extents, and no sum is cut into blocks."""
        axis = loop.rstrip(_DIGITS)
        place = int(loop[len(axis) :] or 0)
        extents = sums[axis]
        sums[axis] = (*extents[:place], extents[place] // size, size, *extents[place + 1 :])
        terms = (
            (prod(a.extent for a in r.folds), chained_terms(kernel, r)) for r in kernel.reduces
        )
        return extents[place] % size == 0 and all(most is None or n <= most for n, most in terms)

    def loops(r: Reduce) -> list[tuple[str, int]]:
        """The loops of a sum and their extents, outermost first, as they are numbered."""
        return [
            (f"{a.name}{i}" if len(sums[a.name]) > 1 else a.name, extent)
            for a in r.folds
            for i, extent in enumerate(sums[a.name])
        ]

    def is_of_sum(x: Action) -> bool:
        return str(getattr(x, "axis", "")).rstrip(_DIGITS) in sums

    if little and all(map(leaves, actions)):
        made = Schedule(())
    else:
        made = Schedule(tuple(x for x in actions if not isinstance(x, Upcast) or is_of_sum(x)))
    with suppress(IllegalAction, CandidateFailure):
        process_compiler().program_hash(kernel, made, device)
        return made.text
    return default()


def _in_order(loops: Sequence[tuple[str, int]], unrolled: Collection[str]) -> bool:
    """True if a sum whose innermost loops are unrolled, few terms, is added up as in loops."""
    last = [name in unrolled for name, _ in loops]
    terms = prod(extent for name, extent in loops if name in unrolled)
    return last == sorted(last) and terms <= _FEW_TERMS


def _planned(nodes: tuple[Node, ...], engine: Engine) -> KeptPlan:
    """The plan of a graph that no process of this machine has planned yet, by default schedules."""
    found = _launches(nodes, engine)
    kernels, default = found.plan.kernels().items(), process_compiler().default
    return replace(found, schedules={n: default(k, engine.device) for n, (k, _) in kernels})


def _launches(nodes: tuple[Node, ...], engine: Engine) -> KeptPlan:
    """Such a plan, whose kernels have no schedules yet."""
    from tunegrad.ir.validate import validated_guards
    from tunegrad.planning import plan_launches, prepared

    device = engine.device
    outputs, guards = validated_guards(nodes)
    ready = prepared(outputs, "contract", device.target)
    plan = plan_launches(ready, device.target, device.fingerprint(), None, "contract").plan
    return KeptPlan(plan, {}, guards)
