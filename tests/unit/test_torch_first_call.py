"""The first call beside PyTorch: what differs is an error with the smallest program that shows it, or PyTorch's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import ConfigError, IndexOutOfRange, MismatchError
from tunegrad.frontend.torch.aten import TABLE

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
backends = pytest.importorskip("tunegrad.torch")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(
        module, backend="tunegrad", options={"store": False, "threads": 1, **options}
    )


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Hardtanh(), nn.Linear(8, 3)
    ).eval()


@pytest.fixture
def wrong_hardtanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a tenth to what the operator gives, so that every input shows it."""
    monkeypatch.setitem(
        TABLE, "hardtanh.default", lambda x, low=-1, high=1: x.clamp(low, high) + 0.1
    )


@pytest.mark.usefixtures("wrong_hardtanh")
def test_a_wrong_operator_is_an_error_that_names_it_alone() -> None:
    x = 3 * torch.randn(5, 4)
    with torch.no_grad(), pytest.raises(MismatchError) as caught:
        compiled(network())(x)
    text = str(caught.value)
    assert "hardtanh" in text
    assert "addmm" not in text
    assert "tanh.default" not in text.replace("hardtanh.default", "")


@pytest.mark.usefixtures("wrong_hardtanh")
def test_the_reproducer_is_a_program_that_shows_the_difference() -> None:
    with torch.no_grad(), pytest.raises(MismatchError) as caught:
        compiled(network())(3 * torch.randn(5, 4))
    program = str(caught.value).partition("the smallest part of it that differs:")[2]
    with pytest.raises(AssertionError, match="not close"):
        exec(program, {})  # noqa: S102 - it is what the error printed


def test_a_fault_between_operators_is_found_as_a_part_of_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    linear = TABLE["addmm.default"]

    def tanh(x: Any) -> Any:
        made = tg.Tensor.tanh(x)
        seen.append(made.node)
        return made

    def addmm(
        bias: Any, a: Any, b: Any, **more: Any
    ) -> Any:  # as a fault of fusion: alone it is right
        found = linear(bias, a, b, **more)
        return found * 1.01 if any(a.node is n for n in seen) else found

    monkeypatch.setitem(TABLE, "tanh.default", tanh)
    monkeypatch.setitem(TABLE, "addmm.default", addmm)
    with torch.no_grad(), pytest.raises(MismatchError) as caught:
        compiled(network())(3 * torch.randn(5, 4))
    program = str(caught.value).partition("the smallest part of it that differs:")[2]
    assert program.count("torch.ops.aten.tanh") == 1
    assert program.count("torch.ops.aten.addmm") == 1
    assert "hardtanh" not in program


@pytest.mark.usefixtures("wrong_hardtanh")
def test_pytorchs_results_with_one_warning_where_the_user_wants_these(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = network()
    f = compiled(module, check="warn")
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        for _ in range(3):
            x = 3 * torch.randn(5, 4)
            torch.testing.assert_close(f(x), module(x))
    assert len([r for r in caplog.records if "ours differs" in r.getMessage()]) == 1


@pytest.mark.usefixtures("wrong_hardtanh")
def test_nothing_is_compared_where_the_user_says_so() -> None:
    module, x = network(), 3 * torch.randn(5, 4)
    with torch.no_grad():
        assert not torch.allclose(compiled(module, check=False)(x), module(x))
        (array,) = [tg.load(tg.from_torch(module, x, check=False), store=False)(x.numpy())]
    assert not np.allclose(array, module(x).detach().numpy())


@pytest.mark.usefixtures("wrong_hardtanh")
def test_a_model_of_from_torch_is_compared_when_it_is_first_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module, x = network(), 3 * torch.randn(5, 4)
    with pytest.raises(MismatchError, match="hardtanh"):
        tg.load(tg.from_torch(module, x), store=False)(x.numpy())
    lenient = tg.load(tg.from_torch(module, x, check="warn"), store=False)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_allclose(lenient(x.numpy()), module(x).numpy(), atol=1e-5)
    assert len([r for r in caplog.records if "ours differ" in r.getMessage()]) == 1


@pytest.mark.usefixtures("wrong_hardtanh")
def test_a_model_that_differed_is_not_served_after_parameters_are_written_to() -> None:
    module, x = network(), 3 * torch.randn(5, 4)
    lenient = tg.load(tg.from_torch(module, x, check="warn"), store=False)
    with torch.no_grad():
        for _ in range(2):
            np.testing.assert_allclose(lenient(x.numpy()), module(x).numpy(), atol=1e-5)
            module[0].bias.add_(1)


class RowsOf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.arange(8.0).reshape(4, 2))

    def forward(self, ids: Any) -> Any:
        return nn.functional.hardtanh(self.table[ids])


@pytest.mark.usefixtures("wrong_hardtanh")
def test_a_call_that_raises_is_no_first_call() -> None:
    f = compiled(RowsOf())
    with torch.no_grad():
        with pytest.raises(IndexOutOfRange):
            f(torch.tensor([0, 4]))
        with pytest.raises(MismatchError, match="hardtanh"):
            f(torch.tensor([0, 3]))


def test_outputs_that_nobody_reads_do_not_hide_the_smallest_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bags = TABLE["_embedding_bag.default"]
    for name in ("_embedding_bag.default", "_embedding_bag_forward_only.default"):
        monkeypatch.setitem(TABLE, name, lambda *a: (bags(*a)[0].clamp(-9, 9), *bags(*a)[1:]))
    module = nn.EmbeddingBag(4, 3, mode="sum", _weight=torch.full((4, 3), 10.0))
    f = compiled(module)
    with torch.no_grad(), pytest.raises(MismatchError, match=r"def part[^$]*embedding_bag"):
        f(torch.tensor([0, 3]), torch.tensor([0]))  # drawn rows show nothing


def test_weights_other_than_the_modules_are_compared_with_these() -> None:
    module, x = network(), torch.randn(5, 4)
    weights = {n: (2 * p).detach().numpy() for n, p in module.named_parameters()}
    model = tg.from_torch(module, x)
    got = tg.load(model, weights=weights, store=False)(x.numpy())
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(2)
        np.testing.assert_allclose(got, module(x).numpy(), atol=1e-4)


def test_parameters_written_to_after_loading_raise_no_false_alarm() -> None:
    module, x = network(), torch.randn(5, 4)
    loaded = tg.load(tg.from_torch(module, x), store=False)
    with torch.no_grad():
        want = module(x).numpy()
        module[0].weight.mul_(3)
    np.testing.assert_allclose(loaded(x.numpy()), want, atol=1e-5)


def test_the_comparison_writes_nothing_and_draws_nothing() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.seen += x.sum(0)
            x[0] = 1.0
            return x * self.seen

    mine, theirs = Counter(), Counter()
    x = torch.randn(3, 4)
    y = x.clone()
    state = torch.get_rng_state()
    with torch.no_grad():
        torch.testing.assert_close(compiled(mine)(x), theirs(y))
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(x, y)
    torch.testing.assert_close(mine.seen, theirs.seen)


def test_each_program_of_a_graph_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count: list[int] = []
    original = backends.fault_of
    monkeypatch.setattr(backends, "fault_of", lambda *a: (count.append(1), original(*a))[1])
    f = torch.compile(network(), backend="tunegrad", options={"store": False}, dynamic=True)
    with torch.no_grad():
        for rows in (2, 3, 2, 3, 2):
            f(torch.randn(rows, 4))
    assert len(count) == 2


def test_rounding_that_the_network_amplifies_is_no_fault() -> None:
    def function(x: Any) -> Any:
        y = x.softmax(0)
        for _ in range(12):
            y = 3.9 * y * (1 - y)  # chaos: a rounding doubles with each step
        return y, y.argmax(), (y * 1e6).to(torch.int64) % 7

    torch.manual_seed(3)
    with torch.no_grad():
        compiled(function)(torch.randn(1000))


def test_many_elements_at_a_jump_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "exp.default", lambda x: x.exp() * (1 - 2**-24))

    class Truncated(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x.exp() * 4).int()

    x = torch.zeros(200)
    with torch.no_grad():
        assert compiled(Truncated())(x).eq(3).all()  # of 3.9999998; PyTorch truncates 4
        x[7] = 0.2  # 4.886, which is 4 whatever was rounded how
        assert compiled(Truncated())(x)[7] == 4
        monkeypatch.setitem(TABLE, "exp.default", lambda x: x.exp() + 0.1)
        torch._dynamo.reset()
        with pytest.raises(MismatchError):
            compiled(Truncated())(x)


@pytest.mark.parametrize("value", ["loud", True, None, 0])
def test_another_check_is_an_error(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"check .* valid: 'error', 'warn', False"):
        backends.backend(None, [], options={"check": value})
    with pytest.raises(ConfigError, match=r"check .* valid: 'error', 'warn', False"):
        tg.from_torch(network(), torch.randn(2, 4), check=value)


@pytest.mark.parametrize("name", ["topk", "sort"])
def test_equal_elements_may_come_in_any_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch has another order than ours for these; a larger element in the place is a fault."""
    x = torch.zeros(6, 50)
    x[:, ::7] = torch.arange(1.0, 9.0)

    def positions(x: Any) -> Any:
        return x.topk(11, -1)[1] if name == "topk" else x.sort(-1)[1]

    with torch.no_grad():
        got, want = compiled(positions)(x), positions(x)
    torch.testing.assert_close(x.gather(-1, got), x.gather(-1, want))
    key = f"{name}.default"
    original = TABLE[key]

    def other(*args: Any, **named: Any) -> Any:
        values, places = original(*args, **named)
        return values, places.flip(-1)

    monkeypatch.setitem(TABLE, key, other)
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(MismatchError):
        compiled(positions)(x)


def test_an_equality_that_one_rounding_decides_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient of a maximum asks which element it was, of numbers that are computed again."""

    def parted(x: Any, largest: Any) -> Any:
        return largest / (largest == x.sin()).sum(-2, True)

    x = torch.linspace(0.3, 1.2, 12).reshape(3, 4)
    monkeypatch.setitem(TABLE, "sin.default", lambda x: x.sin() * (1 + 2.0**-22))
    ours = compiled(torch.sin, check=False)(x)
    assert not bool((ours == x.sin()).any())
    torch.testing.assert_close(compiled(parted)(x, ours), ours / 3)
    monkeypatch.setitem(TABLE, "eq.Tensor", lambda a, b: a != b)
    torch._dynamo.reset()
    with pytest.raises(MismatchError):
        compiled(parted)(x, x)


def test_no_finite_number_is_taken_for_infinity(monkeypatch: pytest.MonkeyPatch) -> None:
    x, most = torch.linspace(0.3, 1.2, 12), torch.full((1,), torch.inf)
    monkeypatch.setitem(TABLE, "eq.Tensor", lambda a, b: (a + b) >= b)
    with pytest.raises(MismatchError):
        compiled(lambda a, b: a == b)(x, most)


def test_a_sum_that_may_be_infinite_is_no_other_finite_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some roundings take it beyond the largest number."""
    x = torch.full((6,), 88.72283)
    assert bool(x.exp().isfinite().all())
    assert bool((x * (1 + 2.0**-20)).exp().isinf().all())
    monkeypatch.setitem(TABLE, "exp.default", lambda x: x.exp() * 0.5)
    with pytest.raises(MismatchError):
        compiled(torch.exp)(x)


@pytest.mark.parametrize("taken", [True, False])
def test_a_region_without_autocast_runs_without(
    taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a call that passes AOTAutograd's wrappers by, and in one that runs in PyTorch."""
    if not taken:
        monkeypatch.delitem(TABLE, "mm.default")
    w = torch.full((4, 4), 1 + 2.0**-12)

    def exact(x: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return x @ w

    x, f = torch.arange(12.0).reshape(3, 4), compiled(exact)
    with torch.no_grad(), torch.autocast("cpu"):
        assert all(f(x).equal(exact(x)) for _ in range(2))
