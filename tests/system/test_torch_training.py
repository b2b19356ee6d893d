"""``torch.compile(module, backend="tunegrad")`` in a training loop: as PyTorch trains."""

from __future__ import annotations

import copy
import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import tunegrad as tg
import tunegrad.torch
from tunegrad.devices.host.team import Team, openmp_in_use, use_openmp

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, F = torch.nn, torch.nn.functional
backends = pytest.importorskip("tunegrad.torch")

QUIET = {"store": False, "threads": 1}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that the backend loads."""
    seen: list[Any] = []
    original = backends.load

    def counted(model: Any, **settings: Any) -> Any:
        seen.append(model)
        return original(model, **settings)

    monkeypatch.setattr(backends, "load", counted)
    return seen


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="tunegrad", options={**QUIET, **options})


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def slowly(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, 0.01, momentum=0.9)


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, 1e-3)


def images(i: int, rows: int = 4, channels: int = 1, side: int = 8, classes: int = 5) -> Any:
    torch.manual_seed(i)
    return torch.randn(rows, channels, side, side), torch.randint(classes, (rows,))


def classified(f: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(f(x), y)


def trained(
    module: Any, data: Callable[[int], Any], loss: Any, optimizer: Any = sgd, steps: int = 4
) -> list[Any]:
    """Train copies in PyTorch and here; losses, weights and statistics are the same.

    The gradients of some weights are nothing but rounding, as of a key's bias in attention, and
    Adam scales these up: they are left out, by their size in PyTorch.
    """
    theirs, mine = module, copy.deepcopy(module)
    largest = {n: torch.zeros_like(p) for n, p in theirs.named_parameters()}
    ends = []
    for m, f in ((theirs, theirs), (mine, compiled(mine))):
        made = optimizer(m.parameters())
        losses = []
        for i in range(steps):
            batch = data(i)
            made.zero_grad()
            torch.manual_seed(i)
            found = loss(f, *batch)
            found.backward()
            made.step()
            losses.append(found.item())
            for n, p in m.named_parameters() if m is theirs else ():
                largest[n] = torch.maximum(largest[n], p.grad.abs())
        ends.append(losses)
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-3, atol=1e-5)
    for name, want in theirs.state_dict().items():
        got = mine.state_dict()[name]
        if name in largest:
            got = torch.where(largest[name] > 1e-6, got, want)
        size = float(want.abs().max())
        if name.endswith("running_mean"):  # it is near zero by the deviation
            size = float(theirs.state_dict()[name.replace("mean", "var")].max()) ** 0.5
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * size)
    return ends


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 5))


def lenet() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.2), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(6, 5),
    )  # fmt: skip


def test_an_mlp_trains_as_in_pytorch(loads: list[Any]) -> None:
    trained(mlp(), images, classified)
    assert len(loads) == 2  # forward and backward


def test_a_convolution_network_with_batch_statistics_and_dropout_trains_as_in_pytorch(
    loads: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Masks of dropout are PyTorch's own, so that the losses are the same."""
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        trained(lenet(), images, classified, adam)
    assert len(loads) == 2
    assert not caplog.records


def pair(make: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """A module, a copy of it, and the copy compiled."""
    torch.manual_seed(0)
    theirs = make()
    mine = copy.deepcopy(theirs)
    return theirs, mine, compiled(mine)


def same_gradients(theirs: Any, mine: Any) -> None:
    for (name, want), got in zip(theirs.named_parameters(), mine.parameters(), strict=True):
        assert (want.grad is None) == (got.grad is None), name
        if want.grad is not None:
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5)


def small() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 3))


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2),
        nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def test_inputs_and_some_parameters_get_gradients_and_frozen_ones_get_none() -> None:
    theirs, mine, f = pair(small)
    for m in (theirs, mine):
        m[0].weight.requires_grad_(False)
    x = torch.randn(5, 4, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    theirs(x).square().sum().backward()
    f(y).square().sum().backward()
    same_gradients(theirs, mine)
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-5)


def test_one_compiled_module_trains_and_is_evaluated_in_between(loads: list[Any]) -> None:
    theirs, mine, f = pair(small)
    x = torch.randn(5, 4)
    for _ in range(3):
        for m, g in ((theirs, theirs), (mine, f)):
            optimizer = torch.optim.SGD(m.parameters(), 0.1)
            optimizer.zero_grad()
            g(x).square().sum().backward()
            optimizer.step()
        with torch.no_grad():
            torch.testing.assert_close(f(x), theirs(x), rtol=1e-4, atol=1e-5)
    same_gradients(theirs, mine)
    assert len(loads) == 4  # two that train; constants, then parameters that were written to


def test_calls_before_backward_graphs_that_are_kept_and_gradients_that_add_up() -> None:
    theirs, mine, f = pair(small)
    x, y = torch.randn(2, 5, 4)
    for g in (theirs, f):
        g(y).sum().backward()  # a program that may not write to what is kept for a later one
        loss = (g(x) * 2 + g(y).square()).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        g(x).sum().backward()
    same_gradients(theirs, mine)


def test_batch_normalisation_of_16_bit_networks_trains() -> None:
    """Statistics for the backward pass have the dtype of the weights."""
    theirs, mine, f = pair(lambda: nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()).bfloat16())
    x = torch.randn(5, 4, dtype=torch.bfloat16)
    for g in (theirs, f):
        g(x).float().square().sum().backward()
    for want, got in zip(theirs.parameters(), mine.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=0.05, atol=0.05)


def test_another_batch_is_another_program_and_gradients_are_right(loads: list[Any]) -> None:
    theirs, mine, f = pair(small)
    for rows in (2, 5, 3, 5):
        x = torch.randn(rows, 4)
        for g in (theirs, f):
            g(x).square().sum().backward()
        same_gradients(theirs, mine)
    assert len(loads) == 6  # the last batch finds the programs of the second


def test_a_parameter_that_is_not_read_gets_no_gradient() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.unread = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.read(x)

    theirs, mine, f = pair(Odd)
    for g in (theirs, f):
        g(torch.ones(2, 4)).sum().backward()
    same_gradients(theirs, mine)
    assert mine.unread.weight.grad is None


def test_a_step_with_its_optimiser_inside_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    ends = []
    for ours in (False, True):
        torch.manual_seed(0)
        module = small()
        optimizer = adam(module.parameters())

        def step(x: Any, m: Any = module, o: Any = optimizer) -> Any:
            loss = m(x).square().mean()
            loss.backward()
            o.step()
            o.zero_grad()
            return loss.detach()

        f = compiled(step) if ours else step
        with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
            losses = [f(torch.linspace(-1, i, 20).reshape(5, 4)).item() for i in range(3)]
        ends.append((losses, [p.detach() for p in module.parameters()]))
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-4, atol=1e-5)
    assert not [r for r in caplog.records if r.name == "tunegrad.torch"]


def test_an_optimiser_s_program_writes_where_parameters_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From its second call on; writes are counted, and views see them."""
    calls: list[tuple[Any, Any]] = []
    run = tunegrad.torch._Program.run

    def noted(self: Any, model: Any, args: Any) -> Any:
        found = run(self, model, args)
        calls.append((args, found))
        return found

    monkeypatch.setattr(tunegrad.torch._Program, "run", noted)
    ends = []
    for ours in (False, True):
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(n)) for n in (5, 7)]
        tail = parameters[1].detach()[3:]
        optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9)
        step = compiled(optimizer.step) if ours else optimizer.step
        for i in range(4):
            for p in parameters:
                p.grad = torch.full_like(p, 1.0 + i)
            step()
        assert torch.equal(tail, parameters[1].detach()[3:])
        ends.append(([p.detach() for p in parameters], [p._version for p in parameters]))
    torch.testing.assert_close(ends[1][0], ends[0][0])
    assert ends[1][1] == ends[0][1]
    args, found = calls[-1]
    assert len(found) >= 4
    assert all(any(x is a for a in args) for x in found)


@pytest.mark.slow
def test_gradients_in_channels_last_are_right_and_nothing_is_left_to_pytorch(
    loads: list[Any],
) -> None:
    form = {"memory_format": torch.channels_last}
    theirs, mine, f = pair(lambda: convolutions().to(**form))
    x = torch.randn(2, 3, 8, 8).contiguous(**form)
    for g in (theirs, f):
        g(x).square().sum().backward()
    same_gradients(theirs, mine)
    assert len(loads) == 2


@pytest.mark.slow
def test_autocast_to_bf16_trains(loads: list[Any]) -> None:
    theirs, mine, f = pair(convolutions)
    x = torch.randn(2, 3, 8, 8)
    for g in (theirs, f):
        with torch.autocast("cpu", torch.bfloat16):
            loss = g(x).float().square().sum()
        loss.backward()
    for want, got in zip(theirs.parameters(), mine.parameters(), strict=True):
        size = float(want.grad.abs().max())
        torch.testing.assert_close(got.grad, want.grad, rtol=0.05, atol=0.05 * size)
    assert len(loads) == 2


@pytest.fixture
def wrong_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, of which only the backward graph of a linear layer has any, are a tenth too large.

    Forward it is ``addmm``.
    """
    from tunegrad.frontend.torch.aten import TABLE

    monkeypatch.setitem(TABLE, "mm.default", lambda a, b: a @ b * 1.1)


@pytest.mark.usefixtures("wrong_backward")
def test_a_wrong_gradient_is_an_error_that_names_its_operator() -> None:
    module = nn.Linear(4, 3)
    loss = compiled(module)(torch.randn(5, 4)).square().sum()
    with pytest.raises(tg.errors.MismatchError, match=r"aten\.mm"):
        loss.backward()


@pytest.mark.usefixtures("wrong_backward")
def test_pytorchs_gradients_come_with_a_warning_where_the_user_wants_these(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        for _ in range(2):
            module.zero_grad()
            f = compiled(module, check="warn")
            f(x).square().sum().backward()
    got = module.weight.grad.clone()
    module.zero_grad()
    module(x).square().sum().backward()
    torch.testing.assert_close(got, module.weight.grad)
    assert len([r for r in caplog.records if "ours differs" in r.getMessage()]) == 1


def test_what_only_the_backward_graph_misses_is_left_to_pytorch_by_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, loads: list[Any]
) -> None:
    from tunegrad.frontend.torch.aten import TABLE

    monkeypatch.delitem(TABLE, "avg_pool2d_backward.default")
    theirs, mine, f = pair(lambda: nn.Sequential(nn.Conv2d(1, 2, 1), nn.AvgPool2d(2)))
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        for g in (theirs, f):
            g(torch.ones(1, 1, 4, 4)).square().sum().backward()
    same_gradients(theirs, mine)
    assert len(loads) == 1
    assert "avg_pool2d_backward" in caplog.text


class Block(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        same = stride == 1 and inner == outer
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )
        )

    def forward(self, x: Any) -> Any:
        return F.relu(self.branch(x) + self.skip(x))


def resnet18(width: int) -> Any:
    torch.manual_seed(0)
    layers: list[Any] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inner = width
    for depth in range(4):
        for i in range(2):
            layers.append(Block(inner, width * 2**depth, 2 if depth and not i else 1))
            inner = width * 2**depth
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 10))


class Gpt(nn.Module):
    """One block between a tied embedding and its head."""

    def __init__(self, words: int = 17, wide: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, wide), nn.Embedding(12, wide)
        self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.wide = nn.Sequential(
            nn.Linear(wide, 4 * wide), nn.GELU("tanh"), nn.Dropout(0.1), nn.Linear(4 * wide, wide)
        )
        self.head = nn.Linear(wide, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        n, t, c = x.shape
        q, k, v = self.qkv(self.first(x)).view(n, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return self.head(x + self.wide(self.second(x)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def convolved(inner: int, outer: int) -> Any:
            return nn.Sequential(
                nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(2, outer), nn.SiLU()
            )

        self.down, self.lower, self.middle = convolved(1, 4), convolved(4, 8), convolved(8, 8)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), convolved(8, 4)
        self.out = nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        a = self.down(x)
        b = self.lower(F.max_pool2d(a, 2))
        m = F.interpolate(self.middle(F.max_pool2d(b, 2)), scale_factor=2, mode="bilinear")
        return self.out(self.last(torch.cat([a, self.up(m + b)], 1)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0][:, -1])


def texts(i: int) -> Any:
    torch.manual_seed(i)
    return (torch.randint(17, (2, 12)),)


def next_words(f: Any, ids: Any) -> Any:
    return F.cross_entropy(f(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def rows(i: int) -> Any:
    torch.manual_seed(i)
    return (torch.randn(2, 5, 8),)


def masks(i: int) -> Any:
    torch.manual_seed(i)
    return torch.randn(2, 1, 16, 16), torch.randint(2, (2, 16, 16))


NETWORKS: dict[str, Any] = {
    "lenet by Adam": (lenet, images, classified, adam),
    "resnet18": (lambda: resnet18(4), lambda i: images(i, 4, 3, 32, 10), classified, slowly),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", batch_first=True), rows,
        lambda f, x: (f(x) * x).mean(), adam,  # squares of a layer norm's rows have one mean
    ),
    "gpt": (Gpt, texts, next_words, adam),
    "u-net": (UNet, masks, classified, sgd),
    "lstm": (Recurrent, lambda i: (rows(i)[0][..., :4],), lambda f, x: f(x).square().mean(), sgd),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_ten_steps_of_a_network_are_pytorchs(
    name: str, loads: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    make, data, loss, optimizer = NETWORKS[name]
    torch.manual_seed(0)
    module = make()
    with (
        torch._dynamo.config.patch(allow_rnn=True),
        caplog.at_level(logging.WARNING, logger="tunegrad.torch"),
    ):
        trained(module, data, loss, optimizer, 10)
    assert len(loads) == 2
    assert not [r for r in caplog.records if r.name == "tunegrad.torch"]


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each plan that was given to PyTorch's threads: whether they have run it."""
    use_openmp(torch._C.__file__)
    openmp = openmp_in_use()
    if openmp is None or openmp.functions is None:
        pytest.skip("this PyTorch has no OpenMP")
    found, run = list[bool](), Team.run_plan

    def seen(team: Team, plan: Any) -> bool:
        ran = run(team, plan)
        if team._openmp is not None:
            found.append(ran)
        return ran

    monkeypatch.setattr(Team, "run_plan", seen)
    return found


def _wide() -> Any:
    """A call of a network whose kernels take two threads, and what it gives."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.Linear(512, 8))
    f, x = compiled(module, threads=2), torch.randn(256, 256)
    return lambda: f(x), f(x)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """``torch.set_num_threads`` of a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@torch.no_grad()
def test_plans_run_on_pytorchs_threads_whatever_their_number(
    regions: list[bool], threads: Callable[[int], None]
) -> None:
    threads(2)
    call, want = _wide()
    for count in (2, 1, 3, 2, 1):
        threads(count)
        torch.relu(torch.ones(1 << 20))
        regions.clear()
        assert torch.equal(call(), want)
        assert regions == [True]


@torch.no_grad()
def test_plan_in_a_parallel_region_of_another_runs_on_threads_of_ours(
    regions: list[bool], threads: Callable[[int], None]
) -> None:
    threads(2)
    call, want = _wide()
    found = []
    library = ctypes.CDLL(torch._C.__file__)

    def part(_: Any) -> None:
        if library.omp_get_thread_num() == 0:
            found.append(call())

    regions.clear()
    library.GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(part), None, 2, 0)
    assert regions == [False]
    assert torch.equal(found[0], want)


@torch.no_grad()
def test_plan_in_a_forked_child_runs_on_threads_of_ours(
    regions: list[bool], threads: Callable[[int], None]
) -> None:
    threads(2)
    call, want = _wide()
    regions.clear()
    child = os.fork()
    if child == 0:  # the threads of OpenMP stayed in the parent
        with suppress(BaseException):
            os._exit(not (torch.equal(call(), want) and not regions))
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(call(), want)
    assert regions == [True]


def test_callers_in_several_threads_have_pytorchs_threads_each(
    regions: list[bool], threads: Callable[[int], None]
) -> None:
    threads(2)
    with torch.no_grad():
        call, want = _wide()

    def calls() -> bool:
        with torch.no_grad():
            return all(torch.equal(call(), want) for _ in range(20))

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(calls) for _ in range(3)]
        assert all(r.result() for r in running)
    assert regions
    assert all(regions)


def test_backward_passes_run_on_pytorchs_threads(
    regions: list[bool], threads: Callable[[int], None]
) -> None:
    threads(2)
    call, want = _wide()
    want.sum().backward()
    regions.clear()
    call().sum().backward()
    assert regions == [True, True]
