"""What was compiled once is not compiled again: in this process, in the next one, and for equal
graphs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from benchmarks.hand_schedules import GPU
from tests.graph_builders import add, calls_of, scale, tensor
from tests.null_device import NullDevice
from tests.opencl_device import opencl_device
from tunegrad import inference
from tunegrad.compiling import Compiler, artifact, behind, graph_key, object_key
from tunegrad.devices import host_device
from tunegrad.devices.cpu import device as cpu
from tunegrad.devices.job import Geometry, Lowered
from tunegrad.inference import realizing
from tunegrad.ir.dtypes import F32
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import Node, const
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import rewrite
from tunegrad.models import mlp
from tunegrad.opts import Schedule
from tunegrad.runtime import ObjectCache, Runner

MODEL = mlp(sizes=(16, 8, 8, 8))
DEVICE = host_device(1)
ENGINE = DEVICE.open()
UNSCHEDULED = Schedule(())


def kernels() -> list[Kernel]:
    outputs = MODEL.build(MODEL.weights())
    return [
        k for k, _ in schedule(fold_constants(tuple(t.node for t in outputs))).kernels().values()
    ]


def test_equal_kernels_of_a_model_are_compiled_once(tmp_path: Path) -> None:
    compiler = Compiler(ObjectCache(tmp_path))
    twice = [compiler.code(k, UNSCHEDULED, ENGINE) for k in (*kernels(), *kernels())]
    assert len(kernels()) == 3
    assert (compiler.counts.lowered, compiler.counts.compiled, compiler.counts.linked) == (3, 3, 3)
    assert [c.loaded for c in twice[:3]] == [c.loaded for c in twice[3:]]


def test_code_for_a_caller_is_made_before_code_that_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither waits for the other where code that may wait is being compiled."""
    (first, second, third), compiler = kernels(), Compiler()
    made, inside, go_on = list[str](), threading.Event(), threading.Event()
    compile_of = type(DEVICE).compile

    def compiled(self: Any, lowered: Any, *args: Any, **kwargs: Any) -> bytes:
        name = threading.current_thread().name
        if name == "behind" and not made:
            inside.set()
            assert go_on.wait(60)
        made.append(name)
        return compile_of(self, lowered, *args, **kwargs)

    def may_wait() -> None:
        with behind():
            for kernel in (first, third):
                compiler.code(kernel, UNSCHEDULED, ENGINE)

    monkeypatch.setattr(type(DEVICE), "compile", compiled)
    later = threading.Thread(target=may_wait, name="behind")
    later.start()
    assert inside.wait(60)
    with compiler.first():
        go_on.set()
        compiler.code(second, UNSCHEDULED, ENGINE)
        compiler.code(kernels()[1], Schedule.parse("tile(axis=a, size=4)"), ENGINE)
    later.join()
    mine = threading.current_thread().name
    assert [name for name in made if name == mine] == [mine] * 2
    assert made[-1] == "behind"
    assert compiler.counts.compiled == 4


@dataclass(frozen=True)
class _Loaded:
    launch: Geometry
    image: bytes


class _Loader:
    """An engine that keeps what it is told to load."""

    device = NullDevice(GPU)

    def load(self, lowered: Lowered, image: bytes) -> _Loaded:
        return _Loaded(lowered.geometry, image)


def test_kernels_of_one_text_are_launched_each_by_its_own_geometry() -> None:
    engine: Any = _Loader()
    compiler, loaded = Compiler(), list[Any]()
    for n in (512, 1024, 512):
        x = tensor("x", n)
        ((kernel, _),) = schedule((add(x, scale(x, 2.0)),)).kernels().values()
        default = compiler.default(kernel, engine.device)
        loaded.append(compiler.code(kernel, default, engine).loaded)
    few, many, again = loaded
    assert few.image == many.image
    assert again is few
    assert many.launch.groups * many.launch.items == 2 * few.launch.groups * few.launch.items
    assert (compiler.counts.compiled, compiler.counts.linked) == (1, 2)


LOADS = """
import json, sys
import numpy as np
import tunegrad as tg
from tunegrad.inference import process_compiler
from tunegrad.models import mlp

model = tg.load(mlp(sizes=(16, 8, 8, 8)), store=False, threads=1)
y = model(np.ones((1, 16), np.float32))
counts = process_compiler().counts
print(json.dumps([counts.lowered, counts.compiled, counts.from_disk, counts.linked, y.tolist()]))
"""


def loaded_elsewhere(cache: Path, hash_seed: int) -> list[Any]:
    """[programs lowered, objects compiled, from disk, linked, outputs] of a process of its own that
    loads and runs the model.
    """
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        check=True, capture_output=True, text=True, cwd=Path(tg.__file__).parents[1], env=env,
    )  # fmt: skip
    found: list[Any] = json.loads(done.stdout)
    return found


def test_another_process_lowers_and_compiles_nothing(tmp_path: Path) -> None:
    first, second = (loaded_elsewhere(tmp_path, seed) for seed in (1, 2))
    assert first[:4] == [3, 3, 0, 3]
    assert second[:4] == [0, 0, 3, 3]
    assert second[4] == first[4]


def test_other_code_of_tunegrad_lowers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, lowered in (("one", 3), ("two", 3), ("one", 0), ("", 3)):
        monkeypatch.setattr(artifact, "_own_code", lambda code=code: code)
        compiler = Compiler(ObjectCache(tmp_path))
        for k in kernels():
            compiler.code(k, UNSCHEDULED, ENGINE)
        assert compiler.counts.lowered == lowered


def test_a_program_whose_object_is_gone_is_made_again(tmp_path: Path) -> None:
    kernel = kernels()[0]
    Compiler(ObjectCache(tmp_path)).code(kernel, UNSCHEDULED, ENGINE)
    key = artifact.program_key(kernel, UNSCHEDULED.text, DEVICE)
    for path in tmp_path.iterdir():
        if path.stem != key:
            path.unlink()
    second = Compiler(ObjectCache(tmp_path))
    second.code(kernel, UNSCHEDULED, ENGINE)
    assert (second.counts.lowered, second.counts.compiled) == (1, 1)


def test_the_hash_of_a_known_program_needs_no_lowering(tmp_path: Path) -> None:
    kernel, first = kernels()[0], Compiler(ObjectCache(tmp_path))
    first.code(kernel, UNSCHEDULED, ENGINE)
    second = Compiler(ObjectCache(tmp_path))
    assert second.program_hash(kernel, UNSCHEDULED, DEVICE) == first.program_hash(
        kernel, UNSCHEDULED, DEVICE
    )
    assert second.counts.lowered == 0


def test_another_compiler_finds_none_of_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for release, expected in (("one", (3, 0)), ("two", (3, 0)), ("one", (0, 3))):
        monkeypatch.setattr(cpu, "compiler_version", lambda release=release: release)
        compiler = Compiler(ObjectCache(tmp_path))
        for k in kernels():
            compiler.code(k, UNSCHEDULED, ENGINE)
        assert (compiler.counts.compiled, compiler.counts.from_disk) == expected


def test_a_damaged_object_is_compiled_again(tmp_path: Path) -> None:
    Compiler(ObjectCache(tmp_path)).code(kernels()[0], UNSCHEDULED, ENGINE)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    second = Compiler(ObjectCache(tmp_path))
    second.code(kernels()[0], UNSCHEDULED, ENGINE)
    assert (second.counts.compiled, second.counts.from_disk) == (1, 0)


def test_code_stays_linked_for_the_next_load() -> None:
    compiler = Compiler()
    for _ in range(3):
        compiler.code(kernels()[0], UNSCHEDULED, ENGINE)
    assert compiler.counts.linked == 1


def test_one_text_is_launched_over_as_many_items_as_each_kernel_has() -> None:
    """Copies of 256 and of 512 numbers, eight an item, have one text on a GPU."""
    device = opencl_device().name
    for rows in (16, 32):
        x = np.arange(rows * 16, dtype=np.float32).reshape(rows, 16)
        double = tg.compile(lambda x: x * 2, x, device=device, store=False)
        np.testing.assert_array_equal(double(x), x * 2)


def test_code_is_unmapped_when_nobody_holds_it_and_others_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(artifact, "_LINKED", 1)
    compiler = Compiler()
    held = compiler.code(kernels()[1], UNSCHEDULED, ENGINE)
    for _ in range(2):
        for k in kernels():
            compiler.code(k, UNSCHEDULED, ENGINE)
    assert (compiler.counts.linked, compiler.counts.compiled) == (5, 3)
    assert compiler.code(kernels()[1], UNSCHEDULED, ENGINE).loaded is held.loaded


def test_everything_that_changes_an_object_changes_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [
        object_key("a", DEVICE),
        object_key("b", DEVICE),
        object_key("a", replace(DEVICE, opt_level=3)),
        object_key("a", replace(DEVICE, target=replace(DEVICE.target, arch="generic"))),
        object_key("a", replace(DEVICE, target=replace(DEVICE.target, features=("+sse2",)))),
    ]
    assert len(set(keys)) == len(keys)
    assert object_key("a", DEVICE) == keys[0]
    monkeypatch.setattr(cpu, "compiler_version", lambda: "another")
    assert object_key("a", DEVICE) not in keys


def test_equal_graphs_share_a_plan_whatever_the_values() -> None:
    def run(value: float) -> None:
        a = tg.Tensor(np.full((3, 5), value, np.float32))
        np.testing.assert_allclose((a * 2 + a).numpy(), 3 * value, rtol=1e-6)

    run(1.0)
    run(2.0)
    realizing.LATER.wait()  # the code of further runs
    plans, lowered = len(realizing._plans), inference.process_compiler().counts.lowered
    for value in range(3, 7):
        run(float(value))
    assert (len(realizing._plans), inference.process_compiler().counts.lowered) == (plans, lowered)


def _named_plan(nodes: tuple[Node, ...]) -> Runner:
    return realizing._plan_of(realizing._canonical(nodes)[0])


def test_an_equal_graph_is_not_scheduled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Naming its inputs and finding its plan is a twentieth of making that, compilers left out."""
    monkeypatch.setattr(Compiler, "default", lambda *_: "")
    monkeypatch.setattr(realizing, "_LITTLE_WORK", 0)
    monkeypatch.setattr(realizing, "graph_key", lambda *_: None)
    monkeypatch.setattr(Compiler, "code", lambda *_: None)
    monkeypatch.setattr(realizing, "Runner", lambda plan, *_, **__: plan)
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(realizing, "_plan_bytes", lambda: 0)
    calls: list[int] = []
    for value in (1.0, 2.0):
        x, w = (tg.Tensor(np.full((7, 7), value, np.float32)) for _ in range(2))
        for _ in range(12):
            x = ((x @ w) * 0.5 + 1).relu().softmax(-1)
        calls.append(calls_of(partial(_named_plan, (x.node,))))
    first, second = calls
    assert len(realizing._plans) == 1
    assert second < 0.05 * first


def test_other_shapes_get_another_plan() -> None:
    before = set(realizing._plans)
    for n in (2, 3):
        (tg.Tensor(np.ones((n, 77), np.float32)) + 5).numpy()
    assert len(set(realizing._plans) - before) == 2


def test_plans_of_tensors_are_bounded_in_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizing, "_CACHED_PLANS", 3)
    for n in range(1, 6):
        ((tg.Tensor(np.ones(n, np.float32)) - 1).contiguous() * 2).numpy()  # the fence takes memory
    assert len(realizing._plans) == 3
    monkeypatch.setattr(realizing, "_CACHED_BYTES", 0)
    ((tg.Tensor(np.ones(9, np.float32)) - 1).contiguous() * 2).numpy()
    assert len(realizing._plans) == 1


CYCLES = """
import gc, resource, sys
import numpy as np
import tunegrad as tg
from tunegrad.models import mlp

def rss():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def cycle():
    model = tg.load(mlp(sizes=(16, 8, 8)), store=False, threads=1)
    model(np.zeros((1, 16), np.float32))

for _ in range(30):
    cycle()
gc.collect()
before = rss()
for _ in range(200):
    cycle()
gc.collect()
print(rss() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the resident set is read from /proc"
)
def test_two_hundred_loads_keep_less_than_5_mb() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CYCLES],
        check=True, capture_output=True, text=True, cwd=Path(tg.__file__).parents[1],
        env=dict(os.environ),
    )  # fmt: skip
    assert int(done.stdout) < 5 << 20


TUNES = """
import gc, resource, sys, tempfile
import numpy as np
import tunegrad as tg
from tunegrad.models import mlp

def rss():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def cycle(place, n):
    store = f"{place}/{n}.db"
    tg.tune(mlp(sizes=(16, 8, 8)), budget_s=0.3, store=store, threads=1, max_trials=4)
    tg.load(mlp(sizes=(16, 8, 8)), store=store, threads=1)(np.zeros((1, 16), np.float32))

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for n in range(8):
            cycle(place, n)
        gc.collect()
        before = rss()
        for n in range(8, 48):
            cycle(place, n)
        gc.collect()
    print(rss() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the resident set is read from /proc"
)
def test_forty_tunes_keep_less_than_5_mb(tmp_path: Path) -> None:
    """What is known of the latest kernels is kept, 128 of them: it is bounded."""
    script = tmp_path / "tunes.py"
    script.write_text(TUNES)
    done = subprocess.run(
        [sys.executable, str(script)],
        check=True, capture_output=True, text=True, cwd=Path(tg.__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(Path(tg.__file__).parents[1])},
    )  # fmt: skip
    assert int(done.stdout) < 5 << 20


def test_a_loaded_model_keeps_its_constants_once_as_kernels_read_them() -> None:
    loaded = inference.load(MODEL, store=False, threads=1)
    assert all(b.data is None or not b.data.array.size for b in loaded._plan.buffers)
    assert all(b.data is None or not b.data.array.size for b in loaded._runner.schedule.buffers)
    x = np.ones((1, 16), np.float32)
    report = loaded.benchmark(budget_s=0.01)  # default schedules need the weights once more
    assert report.default_ms > 0
    np.testing.assert_array_equal(loaded(x), inference.load(MODEL, store=False, threads=1)(x))


def test_a_tuned_model_meets_its_defaults_though_its_weights_are_gone(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    tg.tune("mlp", budget_s=600.0, max_trials=8, store=store, threads=1)
    loaded = tg.load("mlp", store=store, threads=1)
    assert "hit" in {row.outcome for row in loaded.report()}
    assert loaded.benchmark(budget_s=0.05).default_ms > 0
    x = np.random.default_rng(0).standard_normal((1, 784), np.float32)
    default = loaded._defaults().run({loaded.inputs[0].name: x})
    np.testing.assert_allclose(default[0], loaded(x), rtol=1e-3, atol=1e-4)


def graphs() -> list[tuple[Node, ...]]:
    """Graphs of eager results: of several kernels, of one that is bounds-checked, of two outputs,
    and of one that is none of these.
    """
    x, w = tg.Tensor.input("x", (4, 6)), tg.Tensor.input("w", (6, 6))
    i = tg.Tensor.input("i", (3,), "i64")
    h = (x @ w).relu()
    return [(h.softmax(-1).node,), (x[i].node,), (h.node, (x + 1).sum(0).node), (x.T.node,)]


@pytest.mark.parametrize("place", range(4))
def test_a_kept_plan_is_the_plan_of_its_graph(place: int, tmp_path: Path) -> None:
    made, nodes = realizing._planned(graphs()[place], ENGINE), graphs()[place]
    key = graph_key(nodes, DEVICE)
    Compiler(ObjectCache(tmp_path)).keep(key, made, nodes, DEVICE)
    second = Compiler(ObjectCache(tmp_path))
    kept = second.plan(key, nodes, DEVICE)
    assert kept is not None
    assert (kept.plan, kept.schedules, kept.guards) == (made.plan, made.schedules, made.guards)
    for launch in kept.plan.launches:
        second.code(launch.kernel, kept.schedules[launch.kernel.key], ENGINE)
    assert (second.counts.lowered, second.counts.compiled) == (0, 0)


@pytest.mark.parametrize("variant", ["direct", "winograd2", "channels_last_winograd4"])
def test_a_kept_plan_of_computed_weights_computes_them_of_the_graphs(
    variant: str, tmp_path: Path
) -> None:
    """Weights with a folded scale, as they are or as a Winograd variant reads them."""
    rng = np.random.default_rng(0)
    w, scales = rng.standard_normal((8, 8, 3, 3), np.float32), np.arange(8, dtype=np.float32)
    y = tg.Tensor.input("x", (1, 8, 8, 8)).conv2d(
        tg.Tensor.constant(w) * tg.Tensor.constant(scales).reshape(8, 1, 1, 1), padding=1
    )
    nodes = (y.node,)
    folded = fold_constants(nodes)
    direct = schedule(folded)
    plan = rewrite(direct, dict.fromkeys(direct.kernels(), variant))
    compiler, key = Compiler(ObjectCache(tmp_path)), graph_key(nodes, DEVICE)
    schedules = {k: compiler.default(kernel, DEVICE) for k, (kernel, _) in plan.kernels().items()}
    made = artifact.KeptPlan(plan, schedules, ())
    compiler.keep(key, made, nodes, DEVICE)
    assert compiler.plan(key, nodes, DEVICE, lambda: folded) is None
    compiler.keep(key, made, (*nodes, *folded), DEVICE)
    assert compiler.plan(key, nodes, DEVICE) is None
    assert compiler.plan(key, nodes, DEVICE, lambda: nodes) is None
    kept = compiler.plan(key, nodes, DEVICE, lambda: folded)
    assert kept is not None
    pairs = [(b.data, k.data) for b, k in zip(plan.buffers, kept.plan.buffers, strict=True)]
    constants = [(b, k) for b, k in pairs if b is not None and k is not None]
    assert len(constants) == sum(b is not None for b, _ in pairs) == 1
    for before, after in constants:
        np.testing.assert_array_equal(before.array, after.array, strict=True)


def test_the_key_of_a_graph_holds_what_its_plan_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    other = cpu.CpuDevice(replace(DEVICE.target, threads=DEVICE.target.threads + 1))
    keys = {graph_key(nodes, device) for nodes in graphs() for device in (DEVICE, other)}
    x = tg.Tensor.input("x", (4, 6))
    keys |= {graph_key(((x + c).node,), DEVICE) for c in (0.0, -0.0, 1.0)}
    swapped = graphs()[2][::-1]
    keys.add(graph_key(swapped, DEVICE))
    monkeypatch.setattr(artifact, "_own_code", lambda: "another")
    keys.add(graph_key(swapped, DEVICE))
    assert None not in keys
    assert len(keys) == 8 + 3 + 2


def test_each_part_of_a_graph_is_in_its_key() -> None:
    """Graphs that differ in one thing: a shape, a dtype, a name, an argument, the elements of a
    constant, which nodes are outputs; and one graph by two settings.
    """
    x = tg.Tensor.input("x", (4, 6))
    ones = np.ones(3, np.float32)
    found: list[tuple[Node, ...]] = [
        (x.node,), (tg.Tensor.input("x", (6, 4)).node,), (tg.Tensor.input("y", (4, 6)).node,),
        (tg.Tensor.input("x", (4, 6), "i32").node,), (x.sum(0).node,), (x.sum(1).node,),
        (const(ones, F32),), (const(2 * ones, F32),),
        (x.exp().node,), (x.exp().node, x.node), (x.node, x.exp().node),
    ]  # fmt: skip
    keys = {graph_key(nodes, DEVICE) for nodes in found}
    keys |= {graph_key(found[0], DEVICE, setting) for setting in ("one", "another")}
    assert None not in keys
    assert len(keys) == len(found) + 2


def test_graphs_of_live_arrays_and_unknown_code_have_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array = np.ones(3, np.float32)
    live = array.view()
    live.flags.writeable = False
    assert graph_key((const(array, F32),), DEVICE) is not None
    assert graph_key((const(live, F32),), DEVICE) is None
    monkeypatch.setattr(artifact, "_own_code", lambda: "")
    assert graph_key(graphs()[0], DEVICE) is None


@pytest.mark.parametrize("damage", ["bytes", "pickle", "name", "gone"])
def test_a_damaged_plan_is_made_again(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = graphs()[0]
    key, cache = graph_key(nodes, DEVICE), ObjectCache(tmp_path)
    assert key is not None
    Compiler(cache).keep(key, realizing._planned(nodes, ENGINE), nodes, DEVICE)
    path = tmp_path / f"{key}.o"
    if damage == "bytes":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif damage == "pickle":
        cache.put(key, (cache.get(key) or b"")[:-9])
    elif damage == "name":
        cache.put(key, (cache.get(key) or b"").replace(b"LaunchPlan", b"LaunchPlam"))
    else:
        path.unlink()
    assert Compiler(cache).plan(key, nodes, DEVICE) is None
    assert len(caplog.records) == (damage == "bytes")


def test_a_kept_plan_whose_object_is_gone_is_compiled_again(tmp_path: Path) -> None:
    nodes = graphs()[0]
    key = graph_key(nodes, DEVICE)
    Compiler(ObjectCache(tmp_path)).keep(key, realizing._planned(nodes, ENGINE), nodes, DEVICE)
    for path in tmp_path.iterdir():
        if path.stem != key:
            path.unlink()
    second = Compiler(ObjectCache(tmp_path))
    kept = second.plan(key, nodes, DEVICE)
    assert kept is not None
    for launch in kept.plan.launches:
        second.code(launch.kernel, kept.schedules[launch.kernel.key], ENGINE)
    assert second.counts.compiled == len(kept.plan.kernels())
