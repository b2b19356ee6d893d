"""A position out of range is an error, through every door and on every device."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.cuda_host import cuda_host
from tests.opencl_device import opencl_device
from tunegrad.errors import IndexOutOfRange
from tunegrad.frontend.ops.indexing import within
from tunegrad.inference.loading import measured_deviation
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.tuning.workload import workload_of_function

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.ones((2, 3), np.float32)
IDS = np.array([1, 3])

CALLS: dict[str, Any] = {
    "getitem": lambda x, i: x[i],
    "getitem of two": lambda x, i: x[:, :1][i, i * 0],
    "gather": lambda x, i: x.gather(0, i.reshape(2, 1).expand(2, 3)),
    "take": lambda x, i: x.take(i, 0),
    "take_along_dim": lambda x, i: x.take_along_dim(i.reshape(2, 1), 0),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: tg.nn.functional.embedding(i, x),
    "scatter": lambda x, i: x.scatter(0, i.reshape(2, 1).expand(2, 3), tg.Tensor(Y)),
    "scatter_add": lambda x, i: x.scatter_add(0, i.reshape(2, 1).expand(2, 3), tg.Tensor(Y)),
    "index_add": lambda x, i: x.index_add(0, i, tg.Tensor(Y)),
    "index_copy": lambda x, i: x.index_copy(0, i, tg.Tensor(Y)),
    "index_fill": lambda x, i: x.index_fill(0, i, 7),
    "one_hot": lambda x, i: x.sum() + tg.nn.functional.one_hot(i, 4).cast("f32"),
    "nll_loss": lambda x, i: x.transpose(0, 1)[:2].log_softmax(1).nll_loss(i),
}


def error_of(bad: int) -> str:
    return f"index {bad} is out of range for an extent of 4"


@pytest.mark.parametrize("name", CALLS)
def test_a_position_out_of_range_is_an_error_eager_and_compiled(name: str) -> None:
    call = CALLS[name]
    run = tg.compile(call, X, IDS, store=False, threads=1)
    np.testing.assert_array_equal(
        run(X, IDS), np.asarray(call(tg.Tensor(X), tg.Tensor(IDS)).numpy())
    )
    for bad in (4, 99, -5, 2**62, -(2**62), 2**63 - 1, -(2**63)):
        ids = np.array([0, bad])
        with pytest.raises(IndexOutOfRange) as eager:
            call(tg.Tensor(X), tg.Tensor(ids)).numpy()
        with pytest.raises(IndexError) as compiled:
            run(X, ids)
        assert error_of(bad) in str(eager.value)
        assert error_of(bad) in str(compiled.value)
    np.testing.assert_array_equal(run(X, IDS), call(tg.Tensor(X), tg.Tensor(IDS)).numpy())


@pytest.mark.parametrize("loss", ["nll_loss", "cross_entropy"])
def test_a_class_below_zero_is_an_error_unless_it_does_not_count(loss: str) -> None:
    """It names no class: positions that count from the end are of indices alone."""
    call = getattr(tg.nn.functional, loss)
    run = tg.compile(call, X, np.array([0, 1, 2, 0]), store=False, threads=1)
    assert np.isfinite(run(X, np.array([0, 1, -100, 2])))
    for bad in (-1, -3):
        targets = np.array([0, 1, 2, bad])
        said = f"index {bad} is out of range for an extent of 3; it can not be negative"
        with pytest.raises(IndexOutOfRange, match=said):
            run(X, targets)
        with pytest.raises(IndexOutOfRange, match=said):
            call(tg.Tensor(X), tg.Tensor(targets)).numpy()
    with pytest.raises(IndexOutOfRange):
        call(tg.Tensor(X), tg.Tensor(np.array([0, 1, 2, 2**64 - 1], np.uint64))).numpy()


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_both_ends_of_every_integer_type_are_told(dtype: str) -> None:
    kind = np.dtype(dtype.replace("i", "int").replace("u", "uint"))
    x = np.arange(100, dtype=np.float32)
    run = tg.compile(lambda a, i: a[i], x, np.zeros(3, kind), store=False, threads=1)
    low = max(-100, int(np.iinfo(kind).min))
    good = np.array([low, 0, 99], np.int64).astype(kind)
    np.testing.assert_array_equal(run(x, good), x[good])
    for bad in {100, -101, int(np.iinfo(kind).max), int(np.iinfo(kind).min)}:
        if not np.iinfo(kind).min <= bad <= np.iinfo(kind).max or -100 <= bad < 100:
            continue
        with pytest.raises(IndexOutOfRange, match=f"index {bad} is out of range"):
            run(x, np.array([0, bad, 1], kind))


def test_indices_that_are_computed_are_checked() -> None:
    run = tg.compile(lambda x, i: x[i * 2 + 1], X, IDS, store=False, threads=1)
    np.testing.assert_array_equal(run(X, np.array([0, 1])), X[[1, 3]])
    with pytest.raises(IndexOutOfRange, match="index 5 is out of range"):
        run(X, np.array([0, 2]))


def test_only_the_part_of_a_tensor_that_is_read_by_is_checked() -> None:
    run = tg.compile(lambda x, i: x[i[:2]], X, np.zeros(4, np.int64), store=False, threads=1)
    np.testing.assert_array_equal(run(X, np.array([0, 3, 99, -99])), X[[0, 3]])


def test_constants_are_checked_when_the_graph_is_made() -> None:
    for key in ([0, 9], np.array([0, 9]), 9, (slice(None), [3])):
        with pytest.raises(IndexOutOfRange, match="is out of range"):
            tg.Tensor(X)[key]
    with pytest.raises(IndexOutOfRange, match="index 9 is out of range for an extent of 4"):
        tg.compile(lambda x: x[tg.Tensor.constant(np.array([0, 9]))], X, store=False)


def test_indices_that_can_not_be_out_of_range_cost_no_kernel() -> None:
    i = np.zeros(5, np.int64)
    checked = tg.compile(lambda x, i: x[i], X, i, store=False)
    clamped = tg.compile(lambda x, i: x[i.clamp(0, 3)], X, i, store=False)
    bytes_ = tg.compile(lambda t, i: t[i], np.zeros(256, np.float32), i.astype(np.uint8))
    assert len(checked._guards) == 1
    assert not clamped._guards
    assert not bytes_._guards


def test_a_tuned_model_has_the_kernels_that_a_loaded_one_runs() -> None:
    def look_up(x: tg.Tensor, i: tg.Tensor) -> tg.Tensor:
        return (x[i] * 2).sum(1)

    work = workload_of_function(look_up, (X, IDS))
    assert set(work.plan.kernels()) == set(tg.compile(look_up, X, IDS)._plan.kernels())
    assert len(work.plan.outputs) == 2


def test_two_reads_by_one_tensor_share_a_guard() -> None:
    run = tg.compile(lambda x, i: x[i] + (x * 2)[i.reshape(1, 2)][0], X, IDS, store=False)
    assert len(run._guards) == 1


@pytest.mark.parametrize("dtype", ["u8", "i64"])
@pytest.mark.parametrize("order", [(4, 10), (10, 4)])
def test_two_tensors_read_by_one_number_are_both_checked(
    dtype: str, order: tuple[int, int]
) -> None:
    tables = [tg.Tensor(np.arange(n, dtype=np.float32)) for n in order]

    def rows(i: tg.Tensor) -> tuple[tg.Tensor, ...]:
        return tuple(t[within(i, "rows", 0, t.shape[0])] for t in tables)

    kind = np.dtype(dtype.replace("i", "int").replace("u", "uint"))
    run = tg.compile(rows, np.zeros(2, kind), store=False, threads=1)
    for good in ([0, 1], [2, 3], [3, 0]):
        for found in run(np.array(good, kind)):
            np.testing.assert_array_equal(found, good)
    for bad in (4, 9, 10):
        with pytest.raises(IndexOutOfRange, match=f"index {bad} is out of range"):
            run(np.array([0, bad], kind))


@pytest.mark.parametrize("at", [3, 4])
def test_a_position_that_is_known_when_the_graph_is_folded_is_checked(at: int) -> None:
    run = tg.compile(lambda x, i: x[i * 0 + at], X, IDS, store=False, threads=1)
    if at < 4:
        np.testing.assert_array_equal(run(X, IDS), X[[at, at]])
    else:
        with pytest.raises(IndexOutOfRange, match=error_of(at)):
            run(X, IDS)


def test_a_guards_number_may_be_an_output() -> None:
    ids = np.array([1, 3], np.uint32)
    run = tg.compile(lambda x, i: (x[i], i.amax()), X, ids, store=False, threads=1)
    for n in (3, 2):
        rows, top = run(X, np.array([1, n], np.uint32))
        np.testing.assert_array_equal(rows, X[[1, n]])
        assert top == n
    with pytest.raises(IndexOutOfRange, match=error_of(5)):
        run(X, np.array([1, 5], np.uint32))


@pytest.mark.parametrize("name", ["take", "gather", "index_select", "take_along_dim"])
def test_modes_clip_and_wrap_check_nothing(name: str) -> None:
    ids = np.array([5, -1, 99, -6, 2])

    def read(mode: str) -> Any:
        x, i = tg.Tensor(np.arange(4.0)), tg.Tensor(ids)
        if name == "take":
            return x.take(i, mode=mode)
        if name == "take_along_dim":
            return x.take_along_dim(i, 0, mode=mode)
        return getattr(x, name)(0, i, mode=mode)

    np.testing.assert_array_equal(read("clip").numpy(), np.arange(4.0).take(ids, mode="clip"))
    np.testing.assert_array_equal(read("wrap").numpy(), np.arange(4.0).take(ids, mode="wrap"))
    with pytest.raises(IndexOutOfRange):
        read("raise").numpy()
    with pytest.raises(ValueError, match="mode 'fill'; valid: raise, clip, wrap"):
        read("fill")


def test_a_saved_model_checks(tmp_path: Path) -> None:
    path = str(tmp_path / "m.plan")
    tg.compile(lambda x, i: x[i], X, IDS, store=False, threads=1).save(path)
    model = tg.load(path)
    np.testing.assert_array_equal(model(X, IDS), X[IDS])
    with pytest.raises(IndexOutOfRange, match=r"index: index -5 is out of range|take: index -5"):
        model(X, np.array([0, -5]))


def test_the_graphs_own_meaning_is_an_error() -> None:
    x, i = tg.Tensor.input("x", (4, 3)), tg.Tensor.input("i", (2,), "i64")
    graph = (x[i].node,)
    np.testing.assert_array_equal(evaluate(graph, {"x": X, "i": IDS})[0], X[IDS])
    with pytest.raises(IndexOutOfRange, match="index 4 is out of range"):
        evaluate(graph, {"x": X, "i": np.array([0, 4])})


@pytest.mark.parametrize("device", ["cpu", "opencl", "cuda-host"])
def test_a_position_out_of_range_is_an_error_on_every_device(device: str) -> None:
    if device == "opencl":
        device = opencl_device().name
    if device == "cuda-host":
        cuda_host()
    run = tg.compile(lambda x, i: x[i] * 2, X, IDS, store=False, device=device)
    np.testing.assert_array_equal(run(X, IDS), X[IDS] * 2)
    for bad in (4, -5, 2**40):
        with pytest.raises(IndexOutOfRange, match=error_of(bad)):
            run(X, np.array([0, bad]))
    np.testing.assert_array_equal(run(X, IDS), X[IDS] * 2)


def test_a_position_out_of_range_is_an_error_where_tensors_lie_on_the_device() -> None:
    cuda_host()
    run = tg.compile(lambda x, i: x[i], X, IDS, store=False, device="cuda-host")
    with pytest.raises(IndexOutOfRange, match=error_of(9)):
        run.on_device(X, np.array([0, 9]))
    np.testing.assert_array_equal(np.from_dlpack(run.on_device(X, IDS)), X[IDS])
    ids = IDS.astype(np.uint32)
    both = tg.compile(lambda x, i: (x[i], i.amax()), X, ids, store=False, device="cuda-host")
    assert np.from_dlpack(both.on_device(X, ids)[1]) == ids.max()
    with pytest.raises(IndexOutOfRange, match=error_of(9)):
        both.on_device(X, np.array([0, 9], np.uint32))


def test_benchmarks_and_deviations_draw_positions_in_range() -> None:
    def look_up(x: tg.Tensor, i: tg.Tensor) -> tg.Tensor:
        return x[i]

    example = (look_up, [np.zeros((2, 3), np.float32), np.zeros(50, np.int64)])
    model = tg.load(example, store=False, dtype="bf16")
    ids = model._drawn(0)[model.inputs[1].name]
    assert (ids.min(), ids.max()) == (0, 1)
    assert measured_deviation(model, example) is not None


ONNX = {
    "Gather": (["x", "i"], {}, (2,)),
    "GatherElements": (["x", "i"], {}, (2, 1)),
    "GatherND": (["x", "i"], {}, (2, 1)),
    "ScatterElements": (["x", "i", "y"], {}, (2, 3)),
    "ScatterND": (["x", "i", "y"], {}, (2, 1)),
}


@pytest.mark.parametrize("op", ONNX)
def test_onnx_operators_raise_as_onnx_runtime_does(
    op: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    caplog.set_level(logging.ERROR)
    names, attributes, shape = ONNX[op]
    kinds = {"x": (onnx.TensorProto.FLOAT, X.shape), "y": (onnx.TensorProto.FLOAT, Y.shape)}
    kinds["i"] = onnx.TensorProto.INT64, shape
    inputs = [onnx.helper.make_tensor_value_info(n, *kinds[n]) for n in names]
    node = onnx.helper.make_node(op, names, ["z"], **attributes)
    z = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "g", inputs, [z])
    opsets = [onnx.helper.make_opsetid("", 18)]
    path = str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    model = tg.load(path, store=False)
    given = {"x": X, "y": Y, "i": np.zeros(shape, np.int64)}
    for good in (3, -4):
        given["i"] = np.full(shape, good)
        model(**{n: given[n] for n in names})
    for bad in (4, -5):
        given["i"] = np.full(shape, bad)
        with pytest.raises(IndexOutOfRange, match=error_of(bad)):
            model(**{n: given[n] for n in names})


def test_a_branch_that_is_not_taken_raises_nothing(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    h, tp = onnx.helper, onnx.TensorProto
    z = h.make_tensor_value_info("z", tp.FLOAT, (2, 3))
    w = h.make_tensor_value_info("w", tp.FLOAT, (2, 3))
    there = h.make_graph([h.make_node("Gather", ["x", "i"], ["z"])], "then", [], [z])
    other = h.make_graph([h.make_node("Gather", ["x", "j"], ["w"])], "else", [], [w])
    node = h.make_node("If", ["c"], ["r"], then_branch=there, else_branch=other)
    inputs = [
        h.make_tensor_value_info("c", tp.BOOL, ()), h.make_tensor_value_info("x", tp.FLOAT, (4, 3)),
        h.make_tensor_value_info("i", tp.INT64, (2,)),
        h.make_tensor_value_info("j", tp.INT64, (2,)),
    ]  # fmt: skip
    r = h.make_tensor_value_info("r", tp.FLOAT, (2, 3))
    graph = h.make_graph([node], "g", inputs, [r])
    path = str(tmp_path / "m.onnx")
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), path)
    model = tg.load(path, store=False)
    good, bad = IDS, np.array([0, 77])
    np.testing.assert_array_equal(model(np.array(True), X, good, bad), X[good])
    np.testing.assert_array_equal(model(np.array(False), X, bad, good), X[good])
    for condition, i, j in ((True, bad, good), (False, good, bad)):
        with pytest.raises(IndexOutOfRange, match=error_of(77)):
            model(np.array(condition), X, i, j)


def torch_cases(torch: Any) -> dict[str, Any]:
    y = torch.ones(2, 3)

    def column(i: Any) -> Any:
        return i.reshape(2, 1).expand(2, 3)

    return {
        "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
        "getitem": lambda x, i: x[i],
        "gather": lambda x, i: torch.gather(x, 0, column(i)),
        "index_select": lambda x, i: torch.index_select(x, 0, i),
        "scatter": lambda x, i: torch.scatter(x, 0, column(i), y),
        "index_add": lambda x, i: torch.index_add(x, 0, i, y),
        "index_put": lambda x, i: torch.index_put(x, (i,), y),
        "index_put of two": lambda x, i: torch.index_put(x, (i, i * 0), y[:, 0]),
    }


@pytest.mark.parametrize(
    "name",
    [
        "embedding", "getitem", "gather", "index_select", "scatter", "index_add", "index_put",
        "index_put of two",
    ],
)  # fmt: skip
def test_torch_compile_and_from_torch_raise_where_eager_does(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    call = torch_cases(torch)[name]

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, i: Any) -> Any:
            return call(x, i)

    x, good = torch.tensor(X), torch.tensor(IDS)
    torch._dynamo.reset()
    compiled = torch.compile(Module().eval(), backend="tunegrad")
    loaded = tg.load((Module().eval(), [x, good]), store=False)
    with torch.inference_mode():
        want = call(x, good)
        torch.testing.assert_close(compiled(x, good), want)
        np.testing.assert_array_equal(loaded(X, IDS), want.numpy())
        for bad in (4, -5, -1):
            ids = torch.tensor([0, bad])
            try:
                call(x, ids)
            except (IndexError, RuntimeError):
                with pytest.raises(IndexOutOfRange, match="is out of range"):
                    compiled(x, ids)
                with pytest.raises(IndexOutOfRange, match="is out of range"):
                    loaded(X, ids.numpy())
            else:
                assert bad == -1
                torch.testing.assert_close(compiled(x, ids), call(x, ids))
