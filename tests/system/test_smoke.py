"""Each layer once, in seconds: where one of these fails, read it before the thousands after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest
from kernel_corpus import corpus_kernel

import tunegrad as tg
from tests.fault_kernels import CASES
from tests.faults import HOOKS
from tunegrad import devices
from tunegrad.cli.app import run
from tunegrad.compiling import Payload
from tunegrad.db import open_store
from tunegrad.devices import Candidate, DeviceMeasurer
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import ModelError
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space
from tunegrad.search import make_searcher
from tunegrad.trial import Policy, Status

pytestmark = pytest.mark.smoke

QUICK = Policy(min_samples=3, max_samples=5, budget_s=0.005, timeout_s=5.0)
RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(shape).astype(np.float32) for shape in ((16, 32), (32, 24)))
WANTED = np.maximum(X @ W, 0.0)


def layer(x: tg.Tensor) -> tg.Tensor:
    return (x @ tg.Tensor(W)).relu()


@dataclass(frozen=True)
class Tuned:
    store: Path
    report: tg.TuneReport


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A session of eight candidates, however long they take."""
    store = tmp_path_factory.mktemp("smoke") / "tuned.db"
    report = tg.tune_callable(layer, X, threads=1, budget_s=600.0, max_trials=8, store=store)
    return Tuned(store, report)


@pytest.fixture(scope="module")
def measurer() -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(CpuDevice(host_target(2)), HOOKS, compile_workers=1) as measurer:
        yield measurer


def measured(measurer: DeviceMeasurer, kernel: Kernel, actions: str) -> Status:
    payload = Payload(kernel, actions, CpuDevice(host_target(2)))
    (outcome,) = measurer.measure([Candidate(kernel.key, payload)], QUICK)
    assert outcome is not None
    return outcome.measurement.status


# ---- frontend, ir, opts, render


def test_eager_tensors_give_what_numpy_gives() -> None:
    np.testing.assert_allclose(layer(tg.Tensor(X)).numpy(), WANTED, rtol=1e-5, atol=1e-5)


def test_a_kernel_s_text_is_read_back() -> None:
    from tunegrad.ir.parse_kernel import parse_kernel

    kernel = corpus_kernel("gemm")
    assert parse_kernel(kernel.text) == kernel


def test_a_schedule_s_text_is_read_back() -> None:
    space = Space(corpus_kernel("softmax"), host_target(1))
    (schedule, *_) = space.defaults()
    assert Schedule.parse(schedule.text).actions == schedule.actions != ()


def test_defaults_of_a_kernel_lower_for_a_gpu_that_is_not_here() -> None:
    device = devices.open("null:sm_90a")
    space = Space(corpus_kernel("gemm"), device.target)
    assert "__global__" in device.lower(space.lower(space.defaults()[0])).text


def test_rendering_is_the_same_twice() -> None:
    device = CpuDevice(host_target(1))
    space = Space(corpus_kernel("row_sum"), device.target)
    (schedule, *_) = space.defaults()
    assert device.lower(space.lower(schedule)).text == device.lower(space.lower(schedule)).text


# ---- compile and run


def test_a_compiled_function_gives_what_numpy_gives() -> None:
    np.testing.assert_allclose(tg.compile(layer, X, threads=1)(X), WANTED, rtol=1e-5, atol=1e-5)


def test_two_threads_give_what_one_gives() -> None:
    one, two = (tg.compile(layer, X, threads=n)(X) for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)


def test_a_convolution_gives_what_the_interpreter_gives() -> None:
    x = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
    w = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)

    def convolved(x: tg.Tensor) -> tg.Tensor:
        return x.conv2d(tg.Tensor(w), padding=1)

    wanted = sum(
        np.einsum("oc,ncij->noij", w[:, :, i, j], np.pad(x, 1)[1:2, 1:4, i : i + 8, j : j + 8])
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_allclose(tg.compile(convolved, x)(x), wanted, rtol=1e-4, atol=1e-4)


def test_a_saved_model_gives_what_it_gave(tmp_path: Path) -> None:
    path = tmp_path / "layer.plan"
    loaded = tg.load((layer, [X]), store=False, threads=1)
    loaded.save(path)
    np.testing.assert_array_equal(tg.load(str(path))(X), loaded(X))


# ---- measuring


def test_a_right_candidate_is_measured(measurer: DeviceMeasurer) -> None:
    case = CASES["nothing_computed"]
    assert measured(measurer, case.kernel(0), case.actions) is Status.OK


def test_a_wrong_candidate_is_not_measured(measurer: DeviceMeasurer) -> None:
    case = CASES["nothing_computed"]
    wrong = f"nothing_computed|{case.actions}"
    assert measured(measurer, case.kernel(0), wrong) is Status.WRONG


def test_an_illegal_schedule_is_no_candidate(measurer: DeviceMeasurer) -> None:
    assert (
        measured(measurer, corpus_kernel("gemm"), "tile(axis=none, size=4)") is Status.COMPILE_ERROR
    )


# ---- search, tune, store, load


def test_a_searcher_asks_legal_schedules_and_none_twice() -> None:
    space = Space(corpus_kernel("gemm"), host_target(1))
    asked = [p.schedule for p in make_searcher("random", space, Random(0)).ask(8)]
    assert len({s.text for s in asked}) == len(asked) > 0
    for schedule in asked:
        space.lower(schedule)


def test_a_tune_measures_and_remembers(tuned: Tuned) -> None:
    assert not tuned.report.interrupted
    with open_store(tuned.store) as store:
        assert store.verify() == []
        assert store.stats().trials > 1


def test_what_was_tuned_is_loaded_and_right(tuned: Tuned) -> None:
    loaded = tg.load((layer, [X]), store=tuned.store, threads=1)
    assert {row.outcome for row in loaded.report()} == {"hit"}
    np.testing.assert_allclose(loaded(X), WANTED, rtol=1e-5, atol=1e-5)


def test_the_command_line_reads_the_store(tuned: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "verify", "--store", str(tuned.store)]) == 0
    assert capsys.readouterr().out.endswith(": ok\n")


def test_a_user_s_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "resnt18"]) == 1
    assert capsys.readouterr().err.startswith("error: model 'resnt18' is unknown")


def test_a_store_forgets_nothing_when_it_is_opened_again(tuned: Tuned) -> None:
    with open_store(tuned.store) as store:
        before = store.stats()
    with open_store(tuned.store, "write") as store:
        assert store.stats() == before


# ---- models from elsewhere


def test_an_onnx_model_gives_what_numpy_gives(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    h = onnx.helper
    nodes = [h.make_node("MatMul", ["x", "w"], ["p"]), h.make_node("Relu", ["p"], ["y"])]
    graph = h.make_graph(
        nodes,
        "layer",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, X.shape)],
        [h.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(W, "w")],
    )
    path = tmp_path / "layer.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), path)
    np.testing.assert_allclose(
        tg.load(str(path), store=False, threads=1)(X), WANTED, rtol=1e-5, atol=1e-5
    )


def test_a_file_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError) as caught:
        tg.load(str(tmp_path / "no.onnx"), store=False)
    assert "\n" not in str(caught.value)
