"""Results of operations that were done before on arrays of the same form: no graph is made of them,
and they mean the same.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest

import tunegrad as tg
from tests.graph_builders import entered
from tunegrad.frontend import handle
from tunegrad.frontend.nodes import tracing
from tunegrad.inference import realizing

_A = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
_B = np.arange(8, dtype=np.float32).reshape(4, 2) / 3


@pytest.fixture(autouse=True)
def _no_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which no tensor requires a gradient: in others forms are not looked up."""
    monkeypatch.setattr(tracing, "_leaves", [False])


def test_forms_of_all_results_are_known_after_the_first_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those of operations on a result that another operation has read, and of the array."""
    monkeypatch.setattr(handle, "_RESULTS", {})

    def run() -> np.ndarray:
        x = tg.Tensor(_A) + 1.5
        y = x * 2.0
        return ((x - y).exp() / x).sum(1).numpy()

    first = run()
    known = dict(handle._RESULTS)
    np.testing.assert_array_equal(run(), first)
    assert known == handle._RESULTS
    assert len(known) == 7


@pytest.mark.parametrize(
    ("operation", "most"),
    [
        (lambda x, y: x @ y, 60),
        (lambda x, y: (x @ y + 1.0).relu().exp(), 90),
        (lambda x, y: (-x).sum(1) * y.amax(), 90),
    ],
    ids=["product", "chain", "folds"],
)
def test_result_that_was_computed_before_makes_no_graph(
    operation: Callable[..., tg.Tensor], most: int
) -> None:
    def run() -> np.ndarray:
        return operation(tg.Tensor(_A), tg.Tensor(_B)).numpy()

    first = run()
    for _ in range(2):
        np.testing.assert_array_equal(run(), first)
    names = entered(run)
    assert len(names) <= most, names
    assert not {"topological", "_canonical", "reduce", "graph_input"} & set(names)


def _known(operation: Callable[..., object], *arrays: np.ndarray) -> None:
    for _ in range(3):
        operation(*map(tg.Tensor, arrays)).numpy()  # type: ignore[attr-defined]


def test_result_keeps_its_value_when_an_operand_is_written_to() -> None:
    _known(lambda x, y: x @ y, _A, _B)
    x, y = tg.Tensor(_A), tg.Tensor(_B)
    before = x @ y
    x += 1.0
    y[0] = 7.0
    after = x @ y
    np.testing.assert_allclose(before.numpy(), _A @ _B, rtol=1e-6)
    changed = _B.copy()
    changed[0] = 7
    np.testing.assert_allclose(after.numpy(), (_A + 1) @ changed, rtol=1e-6)


def test_result_that_is_written_to_has_the_new_elements() -> None:
    _known(lambda x, y: x @ y, _A, _B)
    z = tg.Tensor(_A) @ tg.Tensor(_B)
    view = z[0]
    view += 100.0
    z *= 2.0
    expected = _A @ _B
    expected[0] += 100
    np.testing.assert_allclose(z.numpy(), 2 * expected, rtol=1e-6)


def test_gradients_flow_from_what_is_made_after_one_is_asked_for() -> None:
    _known(lambda x, y: (x * y).sum(), _A, _A)
    x, y = tg.Tensor(_A), tg.Tensor(_A)
    (x * y).sum().numpy()
    x.requires_grad_(True)
    (x * y).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), _A)


def test_one_array_twice_is_not_two_arrays() -> None:
    x, y = tg.Tensor(_A), tg.Tensor(2 * _A)
    for _ in range(3):
        np.testing.assert_array_equal((x - x).numpy(), 0 * _A)
        np.testing.assert_array_equal((x - y).numpy(), -_A)
        np.testing.assert_array_equal((y - x).numpy(), _A)
        np.testing.assert_array_equal(((x - y) * x).numpy(), -_A * _A)
        np.testing.assert_array_equal(((x - y) * y).numpy(), -2 * _A * _A)


def test_numbers_that_are_equal_are_not_the_same_operand() -> None:
    x, i = tg.Tensor(np.ones(4, np.float32)), tg.Tensor(np.ones(4, np.int32))
    for _ in range(3):
        assert not np.signbit((x * 0.0).numpy()).any()
        assert np.signbit((x * -0.0).numpy()).all()
        assert ((i + 1).dtype.name, (i + 1.0).dtype.name, (i + True).dtype.name) == (
            "i32", "f32", "i32",
        )  # fmt: skip
        assert np.isnan((x * float("nan")).numpy()).all()


def test_operands_that_do_not_fit_are_refused_each_time() -> None:
    _known(lambda x, y: x @ y, _A, _B)
    for _ in range(3):
        with pytest.raises(tg.errors.ShapeError, match="inner extents"):
            tg.Tensor(_A) @ tg.Tensor(_A)


def test_results_are_arrays_of_their_own_and_travel() -> None:
    _known(lambda x, y: x @ y, _A, _B)
    z = tg.Tensor(_A) @ tg.Tensor(_B)
    first = z.numpy()
    first[...] = 0
    for other in (z, copy.copy(z), copy.deepcopy(z), pickle.loads(pickle.dumps(z))):
        np.testing.assert_allclose(other.numpy(), _A @ _B, rtol=1e-6)


def test_threads_that_ask_for_one_node_get_one() -> None:
    _known(lambda x, y: x @ y, _A, _B)
    for _ in range(20):
        z, found = tg.Tensor(_A) @ tg.Tensor(_B), []
        start = threading.Barrier(4)

        def ask(z: tg.Tensor = z, found: list = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append((z.node, z.bindings))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len({id(node) for node, _ in found}) == len({id(b) for _, b in found}) == 1


def test_results_outlive_plans_that_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizing, "_CACHED_PLANS", 1)
    monkeypatch.setattr(realizing, "_calls", {})
    monkeypatch.setattr(handle, "_RESULTS", {})
    for _ in range(3):
        x, y = tg.Tensor(_A), tg.Tensor(_B)
        np.testing.assert_allclose((x @ y).numpy(), _A @ _B, rtol=1e-6)
        np.testing.assert_array_equal((x * 3.0).numpy(), 3 * _A)
    kept = set(realizing._calls.values())
    assert len(realizing._plans) == 1
    assert kept <= set(realizing._plans)
    assert sum(len(known.runs) for known in handle._RESULTS.values()) == len(realizing._calls)


_QUICK: dict[str, Callable[[tg.Tensor, tg.Tensor], tg.Tensor]] = {
    "product": lambda x, y: x @ y,
    "product of integers": lambda x, y: (x * 9).to(tg.i32) @ (y * 9).to(tg.i32),
    "product of bf16": lambda x, y: x.to(tg.bf16) @ y.to(tg.bf16),
    "product, gelu": lambda x, y: tg.nn.functional.gelu(x @ y),
    "softmax": lambda x, _: x.softmax(-1),
    "row sums": lambda x, _: x.sum(1),
    "column sums": lambda x, _: x.sum(0),
    "variance": lambda x, _: x.var(1),
    "norm": lambda x, _: tg.nn.functional.layer_norm(x, (67,)),
    "running sum": lambda x, _: x.cumsum(1),
    "sine of a quotient": lambda x, _: (x.T / 3.0).sin(),
    "power of rows": lambda x, y: x.abs() ** y.T[:1] + x.tanh().exp().log1p(),
    "f16": lambda x, _: (x.to(tg.f16) * 3).sum(0),
    "f64": lambda x, _: (x.to(tg.f64) / 7).mean(1),
    "taken": lambda x, _: x[tg.Tensor(np.arange(40) % 7)] // 0.5,
    "sorted": lambda x, _: x.sort(dim=-1)[0],
}


@pytest.mark.parametrize("name", _QUICK)
def test_quick_code_of_a_first_run_gives_what_full_code_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, and each run after the second uses full code as soon as it is there."""
    monkeypatch.setattr(realizing, "_calls", {})
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(handle, "_RESULTS", {})
    rng = np.random.default_rng(7)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((41, 67), (67, 19)))

    def run() -> bytes:
        return _QUICK[name](tg.Tensor(x), tg.Tensor(y)).numpy().tobytes()

    first, quick = run(), dict(realizing._plans)
    assert quick
    assert set(quick) <= realizing._first
    assert run() == first
    realizing.LATER.wait()
    assert all(realizing._plans[nodes] is not runner for nodes, runner in quick.items())
    assert not set(quick) & realizing._first
    for _ in range(3):
        assert run() == first


def test_much_work_has_full_code_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(realizing, "_LITTLE_WORK", 10)
    (tg.Tensor(_A) @ tg.Tensor(_B)).numpy()
    assert not set(realizing._plans) & realizing._first


def test_what_is_done_later_is_done_in_order_whatever_fails() -> None:
    later, done = realizing.Later(), list[int]()
    later.do(lambda: done.append(1))
    later.do(lambda: done.append(1 // 0))
    later.do(lambda: done.append(2))
    later.wait()
    later.do(lambda: done.append(3))
    later.wait()
    assert done == [1, 2, 3]


def test_arrays_that_kernels_can_not_read_as_they_lie_are_copied() -> None:
    bytes_ = np.zeros(_A.nbytes + 1, np.uint8)
    unaligned = bytes_[1:].view(np.float32).reshape(_A.shape)
    unaligned[...] = _A
    for array in (unaligned, np.zeros((0, 4), np.float32)):
        x = tg.Tensor._sharing(array)
        for _ in range(3):
            np.testing.assert_array_equal((x * 2.0).numpy(), array * 2)
