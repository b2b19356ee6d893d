"""Results of operations that were done before on arrays of the same form: no graph is made of them,
and they mean the same.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import pickle
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest

import tunegrad as tg
from tests.graph_builders import entered
from tunegrad.compiling import Compiler
from tunegrad.devices import Device
from tunegrad.devices.host.team import Team
from tunegrad.errors import IndexOutOfRange
from tunegrad.frontend import Tensor, handle
from tunegrad.frontend.nodes import tracing
from tunegrad.frontend.nodes.indexing import only_where
from tunegrad.inference import realizing
from tunegrad.ir import graph
from tunegrad.ir.expr import Op
from tunegrad.ir.kernel import Kernel

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
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(handle, "_RESULTS", {})
    for _ in range(3):
        x, y = tg.Tensor(_A), tg.Tensor(_B)
        np.testing.assert_allclose((x @ y).numpy(), _A @ _B, rtol=1e-6)
        np.testing.assert_array_equal((x * 3.0).numpy(), 3 * _A)
    kept = set(realizing._calls.values())
    assert len(realizing._plans) == 1
    assert kept <= set(realizing._plans)
    assert sum(len(known.runs) for known in handle._RESULTS.values()) == len(realizing._calls)


_X, _W = (np.random.default_rng(n).standard_normal(s) for n, s in enumerate(((6, 8), (5, 8))))
_MAP = np.random.default_rng(2).standard_normal((1, 2, 6, 6)).astype(np.float32)
_ROW = np.arange(6) % 5
_F = tg.nn.functional
_REPEATED: dict[str, Callable[[tg.Tensor, tg.Tensor], tg.Tensor]] = {
    "function": lambda x, w: tg.matmul(x, tg.Tensor(_W.T)) + w.sum(),
    "transposed": lambda x, w: x @ w.T,
    "row": lambda x, w: _F.linear(x[2:4], w) * x[0, 1],
    "mean": lambda x, w: x.mean(1).clamp(0, 1) + w.mean(),
    "norm": lambda x, w: _F.layer_norm(x, (8,), w.sum(0), tg.Tensor(_W[0])),
    "variances": lambda x, _: x.var(1, keepdim=True).to(tg.f32) + x.std(0),
    "softmax": lambda x, _: _F.softmax(x, dim=-1) + _F.log_softmax(x, -1),
    "joined": lambda x, w: tg.cat([x, w]) + tg.stack([x[:1], w[:1]]).sum(0),
    "chosen": lambda x, _: tg.where(x > 0.5, x, x * 2) + x.argmax(1, keepdim=True),
    "convolution": lambda x, _: _F.conv2d(
        tg.Tensor(_MAP), x[:4, :2].reshape(2, 2, 2, 1), padding=1
    ),
    "attention": lambda x, w: _F.scaled_dot_product_attention(x[None], w[None], w[None]),
    "letters": lambda x, w: tg.einsum("ij,kj->ik", x, w),
    "loss": lambda x, _: _F.cross_entropy(x, tg.Tensor(_ROW)),
    "table": lambda x, _: _F.embedding(tg.Tensor(_ROW), x),
    "running": lambda x, _: x.cumsum(1) + x.norm(),
}


@pytest.mark.parametrize("name", _REPEATED)
def test_function_that_was_called_twice_makes_no_graph_of_a_form(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "_REPEATED", {})

    def run(shift: float = 0.0) -> np.ndarray:
        return _REPEATED[name](tg.Tensor(_X + shift), tg.Tensor(_W)).numpy()

    first, other = run(), run(0.5)
    for _ in range(3):
        np.testing.assert_array_equal(run(), first)
        np.testing.assert_array_equal(run(0.5), other)
    realizing.LATER.wait()
    run()
    assert not {"topological", "_canonical"} & set(entered(run))
    np.testing.assert_array_equal(run(0.5), other)


def test_results_of_known_forms_do_not_keep_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "_REPEATED", {})
    for _ in range(4):
        x = tg.Tensor(_X)
        y, lives = _F.softmax(x, -1), weakref.ref(x)
        del x
        gc.collect()
        assert lives() is None
        assert y.numpy().shape == _X.shape


def test_functions_that_draw_or_look_at_values_do_so_each_time() -> None:
    x = tg.Tensor(np.ones(64, np.float32))
    drawn = {_F.dropout(x, 0.5, training=True).numpy().tobytes() for _ in range(6)}
    drawn |= {tg.bernoulli(x * 0.5).numpy().tobytes() for _ in range(6)}
    assert len(drawn) == 12
    for same in (True, True, True, False, True):
        y = tg.Tensor(np.full(64, 1 if same else 2, np.float32))
        assert tg.equal(x, y) is tg.allclose(x, y) is same


def test_index_out_of_range_is_refused_each_time() -> None:
    for at in (1, 2, 0, 1, 99, 2, 99):
        row = tg.Tensor(np.array([at, 0]))
        if at == 99:
            with pytest.raises(tg.errors.IndexOutOfRange, match="99"):
                _F.embedding(row, tg.Tensor(_X)).numpy()
        else:
            np.testing.assert_array_equal(_F.embedding(row, tg.Tensor(_X)).numpy(), _X[[at, 0]])


def test_repeated_functions_see_writes_and_gradients_that_are_asked_for_later() -> None:
    w = tg.Tensor(_W.astype(np.float32))
    for step in range(6):
        x = tg.Tensor(_X.astype(np.float32))
        turned = x.T
        if step > 3:
            x += 1.0
        wanted = (_X + (step > 3)).astype(np.float32)
        np.testing.assert_allclose(_F.linear(turned.T, w).numpy(), wanted @ _W.T, rtol=1e-4)
        y = tg.einsum("ij->ji", x)
        y[0] = 7.0
        assert (x.numpy()[:, 0] == 7).all()
        assert x.cast("f32") is x
    x = tg.Tensor(_X.astype(np.float32)).requires_grad_(True)
    x.mean().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(_X.shape, 1 / 48), rtol=1e-6)


def test_plan_that_is_let_go_while_it_runs_lives_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(realizing, "_calls", {})
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(handle, "_RESULTS", {})
    for _ in range(3):
        (tg.Tensor(_A) @ tg.Tensor(_B)).numpy()
        realizing.LATER.wait()
    ((known, order),) = realizing._calls
    ((nodes, runner),) = realizing._plans.items()
    lives, runs = weakref.ref(runner), known.runs[order]
    del runner
    realizing._forget_calls(nodes)
    realizing._plans.clear()
    gc.collect()
    assert lives() is not None
    del runs
    gc.collect()
    assert lives() is None


_COPIES: dict[str, Callable[[tg.Tensor], tg.Tensor]] = {
    "reshape": lambda x: x.T.reshape(48),
    "ravel": lambda x: x.T.ravel(),
    "contiguous": lambda x: x.T.contiguous(),
    "part": lambda x: x[:, 1:3].reshape(12),
}


@pytest.mark.parametrize("name", _COPIES)
def test_copy_of_a_view_has_the_elements_of_before_a_write_that_was_computed(name: str) -> None:
    x = tg.Tensor(_X)
    copy, part = _COPIES[name](x), x.reshape(48)
    before = _COPIES[name](tg.Tensor(_X)).numpy()
    x[0] = 50.0
    x.realize()
    np.testing.assert_array_equal((copy + 1).numpy(), before + 1)
    np.testing.assert_array_equal(tg.neg(copy).numpy(), -before)
    np.testing.assert_array_equal((part + 1).numpy()[:8], np.full(8, 51.0))
    np.testing.assert_array_equal(copy.numpy(), before)


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


@pytest.mark.parametrize(("name", "asked"), [("sum", 1), ("gelu", 0)])
def test_a_first_run_asks_for_default_schedules_of_sums_alone(
    name: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without sums the loops as they are give the same bits, so the second run asks for them."""
    monkeypatch.setattr(realizing, "_calls", {})
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(handle, "_RESULTS", {})
    found, default = list[str](), Compiler.default

    def counted(self: Compiler, kernel: Kernel, device: Device) -> str:
        found.extend([kernel.name] if "23x" in kernel.name else [])
        return default(self, kernel, device)

    monkeypatch.setattr(Compiler, "default", counted)
    x = np.ones((23, 37 + asked), np.float32)

    def run() -> None:
        (tg.Tensor(x).sum(1) if name == "sum" else tg.nn.functional.gelu(tg.Tensor(x))).numpy()

    run()
    assert len(found) == asked
    run()
    realizing.LATER.wait()
    assert found


def test_much_work_has_full_code_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(realizing, "_LITTLE_WORK", 10)
    (tg.Tensor(_A) @ tg.Tensor(_B)).numpy()
    assert not set(realizing._plans) & realizing._first


def test_little_work_is_done_by_the_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a team, in quick code and in full code; much work has all threads."""
    monkeypatch.setattr(realizing, "_calls", {})
    monkeypatch.setattr(realizing, "_plans", OrderedDict())
    monkeypatch.setattr(handle, "_RESULTS", {})
    monkeypatch.setattr(realizing, "allowed_threads", lambda: 2)
    for _ in range(4):
        np.testing.assert_allclose((tg.Tensor(_A) @ tg.Tensor(_B)).numpy(), _A @ _B, rtol=1e-6)
        realizing.LATER.wait()
    monkeypatch.setattr(Team, "run_plan", lambda *_: pytest.fail("a team runs"))
    (tg.Tensor(_A) @ tg.Tensor(_B)).numpy()
    monkeypatch.setattr(realizing, "_FEW", 0)
    with pytest.raises(pytest.fail.Exception, match="a team runs"):
        (tg.Tensor(_B) @ tg.Tensor(_A[:2])).numpy()


@pytest.mark.parametrize("inner", [24, 97, 160, 162, 320])
def test_first_code_of_a_little_product_is_its_loops_where_sums_are_not_cut(
    inner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of a sum whose terms are added one after the other change no bit."""
    rolled, texts, rng = realizing._rolled, list[str](), np.random.default_rng(inner)
    monkeypatch.setattr(realizing, "_rolled", lambda *a: (texts.append(rolled(*a)), texts[-1])[1])
    x, y = (
        rng.standard_normal(s, np.float32) * rng.lognormal(size=s).astype(np.float32)
        for s in ((21, inner), (inner, 23))
    )
    first, *others = (
        ((tg.Tensor(x) @ tg.Tensor(y)).numpy(), realizing.LATER.wait())[0] for _ in range(3)
    )
    for other in others:
        np.testing.assert_array_equal(other, first)
    np.testing.assert_allclose(first, x.astype(np.float64) @ y, rtol=1e-3, atol=1e-3)
    assert inner > 160 or texts == [""]


def test_what_is_done_later_is_done_in_order_whatever_fails() -> None:
    later, done = realizing.Later(), list[int]()
    later.do(lambda: done.append(1))
    later.do(lambda: done.append(1 // 0))
    later.do(lambda: done.append(2))
    later.wait()
    later.do(lambda: done.append(3))
    later.wait()
    assert done == [1, 2, 3]


def test_jobs_that_are_left_together_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start waits until the thread runs; a first call leaves up to four jobs."""
    later, done, started = realizing.Later(), list[int](), list[threading.Thread]()
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda t: (started.append(t), start(t))[1])
    later.do()
    assert not started
    later.do(*(functools.partial(done.append, i) for i in range(4)))
    later.wait()
    assert (done, len(started)) == ([0, 1, 2, 3], 1)


@pytest.mark.parametrize("ends", [KeyboardInterrupt, RuntimeError])
def test_what_is_done_later_outlives_a_thread_that_does_not_start(
    ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    later, done = realizing.Later(), list[int]()

    def start(_: threading.Thread) -> None:
        raise ends

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(threading.Thread, "start", start)
        later.do(lambda: done.append(1))
    assert not done
    later.do(lambda: done.append(2))
    later.wait()
    assert done == [1, 2]


def test_arrays_that_kernels_can_not_read_as_they_lie_are_copied() -> None:
    bytes_ = np.zeros(_A.nbytes + 1, np.uint8)
    unaligned = bytes_[1:].view(np.float32).reshape(_A.shape)
    unaligned[...] = _A
    for array in (unaligned, np.zeros((0, 4), np.float32)):
        x = tg.Tensor._sharing(array)
        for _ in range(3):
            np.testing.assert_array_equal((x * 2.0).numpy(), array * 2)


def test_indices_in_a_branch_are_held_to_be_in_range_where_it_is_taken_alone() -> None:
    """Also from the third call of a form on, whose node would be made behind the branch."""
    given, condition = _A.copy(), tg.Tensor(np.array(False))

    def taken(index: int) -> tg.Tensor:
        return tg.Tensor(given).index_select(0, tg.Tensor(np.array([index, 0])))

    for _ in range(4):
        taken(1).numpy()
    with only_where(condition.node):
        found = [taken(9) for _ in range(4)]
    for x in found:
        (guard,) = (n for n in graph.topological((x.node,)) if n.op is graph.GraphOp.WITHIN)
        assert condition.node in graph.topological((guard,))
    with pytest.raises(IndexError, match="index 9 is out of range"):
        taken(9).numpy()


def test_index_of_before_a_branch_is_held_to_be_in_range_whatever_is_taken() -> None:
    given, condition = _A.copy(), tg.Tensor(np.array(False))

    def asked(index: int) -> tg.Tensor:
        return tg.Tensor(given).index_select(0, tg.Tensor(np.array([index, 0])))

    for _ in range(4):
        asked(1).numpy()
    before = asked(9)
    assert before.pending is not None
    with only_where(condition.node):
        inside = before + 1
    for x in (before, inside):
        with pytest.raises(IndexError, match="index 9 is out of range"):
            x.numpy()


def test_gradient_of_a_function_reads_what_was_asked_for_before() -> None:
    _known(lambda x, y: x.clamp(-1, 1) * y, _A, _A)
    before = tg.Tensor(_A).clamp(-1, 1)
    assert before.pending is not None
    found = tg.grad(lambda x: (x * before).sum())(tg.Tensor(_A))
    np.testing.assert_array_equal(found.numpy(), _A.clip(-1, 1))


def test_partial_functions_of_other_keywords_are_other_forms() -> None:
    def scaled(x: graph.Node, by: float) -> graph.Node:
        return graph.elementwise(Op.MUL, x, graph.full(by, x.shape, x.dtype))

    x = tg.Tensor(_A)
    for by in (2.0, 3.0, 2.0, 3.0, 3.0, 2.0):
        found = x._of("scaled", functools.partial(scaled, by=by), x)
        np.testing.assert_array_equal(found.numpy(), _A * by)


def test_several_results_of_a_known_form_make_no_graph_and_share_nothing() -> None:
    def run(x: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
        return x.sort(1, descending=True)

    x = tg.Tensor(_A)
    for _ in range(4):
        run(x)
    values, places = run(x)
    assert values.pending is not None
    assert places.pending is not None
    assert type(run(x)).__name__ == "Found"
    values += 1
    x[0] = 9.0
    np.testing.assert_array_equal(values.numpy(), np.sort(_A, 1)[:, ::-1] + 1)
    np.testing.assert_array_equal(places.numpy(), np.argsort(_A, 1)[:, ::-1])
    assert (x.sort(1)[0].numpy()[0] == 9).all()


@pytest.mark.parametrize(
    "key", [1, -1, (1, slice(1, 3)), slice(1, 3), (slice(None), 2), (slice(2, 0, -1),)], ids=str
)
def test_part_of_an_array_makes_no_plan_where_its_elements_follow_each_other(key: object) -> None:
    x = tg.Tensor(_A)
    for _ in range(4):
        part = x[key]
        np.testing.assert_array_equal(part.numpy(), _A[key])  # type: ignore[index]
    part.numpy()[...] = 7.0
    np.testing.assert_array_equal(part.numpy(), _A[key])  # type: ignore[index]
    x *= 2.0
    np.testing.assert_array_equal(part.numpy(), 2 * _A[key])  # type: ignore[index]
    rows = tg.Tensor(_A)
    assert not {"topological", "_canonical", "evaluate"} & set(entered(rows[1].numpy))


def test_views_of_one_element_are_arrays() -> None:
    x = tg.Tensor(np.array(3.0, np.float32))
    for view in (x[...], x.T, x.reshape(1)[0], tg.Tensor(_A)[1, 2], x.unsqueeze(0)[0]):
        found = view.numpy()
        assert isinstance(found, np.ndarray)
        assert found.shape == ()
        found[...] = 9.0
        assert view.numpy() != 9


def test_result_that_lies_in_another_order_does_so_each_time() -> None:
    """A reshape of it is a copy, also of the third."""
    x, y = tg.Tensor(np.ones((2, 3, 4), np.float32)), tg.Tensor(np.ones((3, 5), np.float32))
    for _ in range(4):
        result = tg.einsum("bij,ik->bkj", x, y)
        result.reshape(-1)[0] = 9.0
        np.testing.assert_array_equal(result.numpy(), np.full((2, 5, 4), 3.0, np.float32))


def test_a_part_that_was_read_before_is_not_worked_out_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an array; a write to it is seen, and another part is another one."""
    made, shrink = list[object](), graph.shrink

    def counted(node: graph.Node, limits: tuple[tuple[int, int], ...]) -> graph.Node:
        made.append(limits)
        return shrink(node, limits)

    monkeypatch.setattr(graph, "shrink", counted)
    x = tg.Tensor(_A)
    for _ in range(3):
        np.testing.assert_array_equal(x[1].numpy(), _A[1])
    assert len(made) == 1
    np.testing.assert_array_equal(x[2].numpy(), _A[2])
    x += 1
    np.testing.assert_array_equal(x[1].numpy(), _A[1] + 1)
    assert len(made) == 3


def test_a_gradient_of_a_view_is_freed_with_it() -> None:
    """What is kept of parts that were read holds no gradient."""
    x = tg.Tensor(_A)
    part = x.detach().requires_grad_()
    (part * part).sum().backward()
    gradient = weakref.ref(part.grad)
    assert gradient() is not None
    del part
    gc.collect()
    assert gradient() is None


def test_a_constant_of_a_traced_function_is_not_one_outside() -> None:
    x, y = tg.Tensor(_A), tg.Tensor(_A)
    traced = list[graph.Node]()

    def product(w: tg.Tensor) -> tg.Tensor:
        traced.append(x.detach().node)
        return (w * x.detach()).sum()

    np.testing.assert_array_equal(tg.grad(product)(y).numpy(), _A)
    assert traced[0].op is graph.GraphOp.IDENTITY
    assert x.detach().node is x.node


def test_rows_at_positions_of_a_tensor_become_a_known_form() -> None:
    """Other positions are read, and one that is out of range is an error, on each call."""
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    x = Tensor(values)
    for at in ([0, 3], [-1, 2], [1, 1], [2, -4], [3, 0]):
        found = x[Tensor(at)]
        np.testing.assert_array_equal(found.numpy(), values[at])
    assert found.pending is not None
    with pytest.raises(IndexOutOfRange):
        x[Tensor([0, 4])].numpy()
    np.testing.assert_array_equal(x[Tensor([0, -4])].numpy(), values[[0, 0]])
