"""The values of tensors, computed with default schedules; equal graphs share one plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tunegrad import devices
from tunegrad.compiling import KeptPlan, graph_key
from tunegrad.config import allowed_threads
from tunegrad.forks import ForkSafeLock
from tunegrad.frontend import Tensor, joined
from tunegrad.inference.choosing import compiled_choice, engine_of, process_compiler
from tunegrad.ir import graph
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.rewrites import rewritten
from tunegrad.runtime import Runner

if TYPE_CHECKING:
    from tunegrad.devices import Engine
    from tunegrad.frontend import Known

Array = NDArray[Any]

_CACHED_PLANS, _CACHED_BYTES = 64, 256 << 20
"""Plans of computed tensors that are kept, and bytes of their memory; the oldest go first."""
_LITTLE = 1 << 16
"""Elements that numpy computes at once, in the time of making a plan or less."""
_KNOWN = graph.MOVEMENT | {GraphOp.FULL, GraphOp.CONST}

_CACHED_CALLS = 256
_calls: dict[tuple[Known, tuple[int, ...]], tuple[Node, ...]] = {}
"""The plans that ``runs`` of forms run."""
_plans: OrderedDict[tuple[Node, ...], Runner] = OrderedDict()
_plans_lock = ForkSafeLock()


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
        _remember((pending.known, order), nodes, run)
    return list(runner.run({new: bindings[old] for old, new in names.items()}))


def _remember(
    call: tuple[Known, tuple[int, ...]],
    nodes: tuple[Node, ...],
    run: Callable[[Sequence[int]], Sequence[Array]] | None,
) -> None:
    """Let results of a form be what a plan's run gives, while the plan is kept."""
    with _plans_lock:
        if run is not None and nodes in _plans:
            while len(_calls) >= _CACHED_CALLS:
                _forget(next(iter(_calls)))
            _calls[call] = nodes
            call[0].runs[call[1]] = run


def _forget(call: tuple[Known, tuple[int, ...]]) -> None:
    del _calls[call], call[0].runs[call[1]]


def _constants(nodes: tuple[Node, ...]) -> list[Array] | None:
    """The values of a graph without inputs by numpy; None where that has much to compute."""
    from tunegrad.ir.folding import fold_constants
    from tunegrad.ir.interpret.evaluate import evaluate

    folded = fold_constants(nodes)
    computing = (n for n in graph.topological(folded) if n.op not in _KNOWN)
    if sum(max(m.size for m in (n, *n.srcs)) for n in computing) > _LITTLE:
        return None
    return [np.array(values, order="C") for values in evaluate(folded)]


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
            return runner
        runner = _plans[nodes] = _default_plan(nodes)
        while len(_plans) > _CACHED_PLANS or (len(_plans) > 1 and _plan_bytes() > _CACHED_BYTES):
            gone, _ = _plans.popitem(last=False)
            for call in [call for call, of in _calls.items() if of == gone]:
                _forget(call)
        return runner


def _plan_bytes() -> int:
    return sum(r.memory_bytes for r in _plans.values())


def _default_plan(nodes: tuple[Node, ...]) -> Runner:
    engine, compiler = engine_of(devices.host_device(allowed_threads())), process_compiler()
    key = graph_key(nodes, engine.device)
    kept = compiler.plan(key, nodes, engine.device)
    if kept is None:
        kept = _planned(nodes, engine)
        compiler.keep(key, kept, nodes, engine.device)
    codes = {
        key: compiler.code(kernel, kept.schedules[key], engine)
        for key, (kernel, _) in kept.plan.kernels().items()
    }
    return Runner(kept.plan, codes, engine, guards=kept.guards)


def _planned(nodes: tuple[Node, ...], engine: Engine) -> KeptPlan:
    """The plan of a graph that no process of this machine has planned yet."""
    from tunegrad.ir.validate import validated_guards
    from tunegrad.planning import plan_launches, prepared

    here, target = engine.device.fingerprint(), engine.device.target
    outputs, guards = validated_guards(nodes)
    ready = prepared(outputs, "contract", target)
    plan = plan_launches(ready, target, here, None, "contract").plan
    schedules = {
        key: compiled_choice(kernel, engine, here, None, "default", process_compiler())[0].actions
        for key, (kernel, _) in plan.kernels().items()
    }
    return KeptPlan(plan, schedules, guards)
