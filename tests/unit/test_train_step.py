"""``tg.TrainStep``: its losses beside PyTorch's, its state, and how it resumes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import nn
from tunegrad.errors import ConfigError, IndexOutOfRange, ModelError, ShapeError, WeightsError
from tunegrad.nn import optim
from tunegrad.runtime.mapped import map_arrays, write_arrays

F = nn.functional


@pytest.fixture
def torch():
    """PyTorch on one thread: threads that wait for each other take seconds on a busy machine."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


def net():
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 4)
    )


def plain():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


def batches(count, size=8, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = rng.standard_normal((size, 6)).astype(np.float32)
        yield x, x[:, :4].argmax(1)


def made(model=net, optimizer=None, **options):
    optimizer = optimizer or optim.Adam(optim.CosineLR(0.01, 20))
    return tg.TrainStep(
        model(), F.cross_entropy, optimizer, seed=3, store=False, threads=1, **options
    )


def equal(a, b):
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)


HUNDREDS = {
    "AdamW": ({"weight_decay": 0.05}, optim.WarmupLR(optim.CosineLR(0.02, 90), 10, 0.1),
              {"clip_norm": 0.5}),
    "SGD": ({"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}, optim.StepLR(0.05, 30), {}),
    "RMSprop": ({"momentum": 0.5, "centered": True}, optim.OneCycleLR(0.01, 101),
                {"clip_value": 0.02}),
    "Adam": ({"betas": (0.8, 0.99)}, lambda at: 0.02,
             {"loss_scale": optim.LossScale(16.0, interval=7)}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HUNDREDS)
def test_a_hundred_steps_of_a_perceptron_have_pytorchs_losses(torch, kind):
    options, rate, more = HUNDREDS[kind]
    step = made(plain, getattr(optim, kind)(rate, **options), **more)
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    theirs.load_state_dict({n: torch.tensor(w) for n, w in step.weights().items()})
    other = getattr(torch.optim, kind)(theirs.parameters(), lr=1.0, **options)
    scaling = more.get("loss_scale")
    scaler = torch.amp.GradScaler("cpu", 16.0, growth_interval=7, enabled=scaling is not None)
    for at, (x, y) in enumerate(batches(100)):
        if scaling and at % 11 == 5:
            x[0, 0] = np.inf
        other.param_groups[0]["lr"] = rate(at)
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        other.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(other)
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), more.get("clip_norm", np.inf))
        torch.nn.utils.clip_grad_value_(theirs.parameters(), more.get("clip_value", np.inf))
        scaler.step(other)
        scaler.update()
        assert step(x, y) == pytest.approx(loss.item(), rel=1e-3, nan_ok=True), at
        assert not scaling or step.state_dict()["scale"] == scaler.get_scale()
    for name, weight in theirs.state_dict().items():
        np.testing.assert_allclose(step.weights()[name], weight.numpy(), rtol=1e-3, atol=1e-4)


def test_statistics_and_dropout_change_from_step_to_step():
    step = made()
    before, ((x, y),) = step.state_dict(), batches(1)
    first = step(x, y)
    after = step.state_dict()
    assert isinstance(first, np.float32)
    for name in ("model.1.running_mean", "draws", "step", "model.4.bias", "optimizer.mean.0.bias"):
        assert not np.array_equal(before[name], after[name]), name
    frozen = made(optimizer=optim.SGD(0.0))
    assert frozen(x, y) == first
    assert frozen(x, y) != first  # by what is dropped alone


def test_a_resumed_step_is_equal_to_the_bit(tmp_path):
    path, every = tmp_path / "state.safetensors", list(batches(6))
    whole = made(accumulate=2)
    wanted = [whole(x, y) for x, y in every]
    for at in (1, 4):
        first, second = made(accumulate=2), made(accumulate=2)
        found = [first(x, y) for x, y in every[:at]]
        first.save(path)
        second.load(path)
        found += [second(x, y) for x, y in every[at:]]
        assert found == wanted
        equal(second.state_dict(), whole.state_dict())


CHILD = """
import os, pathlib, signal, sys
sys.path[:0] = [{here!r}]
from test_train_step import batches, made

path, where, at = pathlib.Path({path!r}), sys.argv[1], int(sys.argv[2])
step = made()
if path.exists():
    step.load(path)
if where == "in save":
    kept = pathlib.Path.replace

    def replace(self, target):
        if step.updates == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return kept(self, target)

    pathlib.Path.replace = replace
for x, y in list(batches(8))[step.updates :]:
    loss = step(x, y)
    if where == "before save" and step.updates == at:
        os.kill(os.getpid(), signal.SIGKILL)
    with open({losses!r}, "a") as file:
        file.write(f"{{step.updates}} {{float(loss).hex()}}\\n")
    step.save(path)
"""


def killed_and_resumed(tmp_path, kills):
    """Losses by update of a run that was killed at each of these places, and resumed."""
    losses = tmp_path / "losses"
    here = str(Path(__file__).parent)
    text = CHILD.format(here=here, path=str(tmp_path / "s.safetensors"), losses=str(losses))
    for where, at in [*kills, ("nowhere", 0)]:
        done = subprocess.run(
            [sys.executable, "-c", text, where, str(at)], check=False, capture_output=True
        )
        ended = 0 if where == "nowhere" else -signal.SIGKILL
        assert done.returncode == ended, done.stderr.decode()
    rows = (line.split() for line in losses.read_text().splitlines())
    return {int(at): float.fromhex(loss) for at, loss in rows}


def uninterrupted():
    step = made()
    return {at: float(step(x, y)) for at, (x, y) in enumerate(batches(8), 1)}


def test_a_killed_process_goes_on_as_if_it_had_not_been(tmp_path):
    assert killed_and_resumed(tmp_path, [("in save", 5)]) == uninterrupted()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_at_drawn_steps_goes_on(tmp_path, seed):
    rng = np.random.default_rng(seed)
    at = sorted(rng.choice(np.arange(1, 9), 5, replace=False).tolist())
    kills = [(("before save", "in save")[rng.integers(2)], int(n)) for n in at]
    assert killed_and_resumed(tmp_path, kills) == uninterrupted()


def test_another_batch_size_is_another_program_of_one_state():
    step = made(plain)
    ((x, y),) = batches(1)
    first, second = step.program(x, y), step.program(x[:3], y[:3])
    assert first is not second
    assert step.program(x, y) is first
    step(x, y)
    step(x[:3], y[:3])
    assert step.state_dict()["step"] == 2


def test_several_batches_of_one_update_are_one_large_batch():
    ((x, y),) = batches(1, 12)
    parts, whole = made(plain, accumulate=3), made(plain)
    before = parts.weights()
    losses = []
    for i in range(0, 12, 4):
        equal(parts.weights(), before)
        losses.append(parts(x[i : i + 4], y[i : i + 4]))
    assert np.mean(losses) == pytest.approx(whole(x, y), rel=1e-6)
    for name, weight in whole.weights().items():
        np.testing.assert_allclose(parts.weights()[name], weight, rtol=1e-4, atol=1e-5)
    assert (parts.updates, whole.updates) == (1, 1)


def test_a_loss_scale_changes_no_step_that_is_finite():
    ((x, y),) = batches(1)
    scaled, bare = made(plain, loss_scale=1024.0), made(plain)
    assert scaled(x, y) == bare(x, y)
    for name, weight in bare.weights().items():
        np.testing.assert_allclose(scaled.weights()[name], weight, rtol=1e-5, atol=1e-6)


def test_a_step_that_is_not_finite_is_skipped_and_the_scale_falls():
    ((x, y),) = batches(1)
    step = made(plain, loss_scale=optim.LossScale(2.0**10))
    step(x, y)
    before = step.state_dict()
    broken = x.copy()
    broken[2, 3] = np.nan
    assert np.isnan(step(broken, y))
    after = step.state_dict()
    for name, value in before.items():
        if name.startswith(("model.", "optimizer.")) or name == "step":
            np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert (before["scale"], after["scale"]) == (1024.0, 512.0)
    assert np.isfinite(step(x, y))


def test_the_trained_model_runs_in_inference():
    step = made(optimizer=optim.Adam(0.02))
    for x, y in batches(60, 32):
        step(x, y)
    ready = tg.load(step.model(), store=False)
    ((x, y),) = batches(1, 32, seed=9)
    assert (ready(x).argmax(1) == y).mean() > 0.8
    np.testing.assert_array_equal(ready(x), ready(x))


def test_a_model_that_gives_its_loss_needs_no_other():
    class Whole(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(6, 4)

        def forward(self, x, y):
            return F.cross_entropy(self.fc(x), y)

    step = tg.TrainStep(Whole(), None, optim.SGD(0.1), inputs=2, store=False)
    losses = [step(x, y) for x, y in batches(30)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_a_model_of_pytorch_trains_with_its_own_weights(torch):
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    every = list(batches(5))
    step = tg.TrainStep(
        tg.from_torch(theirs.eval(), every[0][0]), F.cross_entropy, optim.SGD(0.1, momentum=0.9),
        store=False,
    )  # fmt: skip
    other = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    for x, y in every:
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        other.zero_grad()
        loss.backward()
        other.step()
        assert step(x, y) == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("damage", "said"),
    [(lambda b: b[:-3], "it is damaged"), (lambda b: b"", "it is cut off"),
     (lambda b: b[:-40] + b"x" + b[-39:], "it is damaged")],
)  # fmt: skip
def test_a_damaged_state_is_refused_and_changes_nothing(tmp_path, damage, said):
    step, path = made(plain), tmp_path / "s.safetensors"
    step.save(path)
    path.write_bytes(damage(path.read_bytes()))
    before = step.state_dict()
    with pytest.raises(WeightsError, match=f"state file .*: {said}"):
        step.load(path)
    equal(step.state_dict(), before)


def test_a_state_whose_more_is_no_json_is_refused_and_changes_nothing(tmp_path):
    step, path = made(plain), tmp_path / "s.safetensors"
    step.save(path)
    arrays, about, _ = map_arrays(path)
    write_arrays(path, arrays, {**about, "more": "[1"})
    step(*next(batches(1)))
    before = step.state_dict()
    with pytest.raises(WeightsError, match=r"state file .*: its more is no JSON"):
        step.load(path)
    equal(step.state_dict(), before)


def test_a_state_of_another_model_is_refused(tmp_path):
    path = tmp_path / "s.safetensors"
    made().save(path)
    with pytest.raises(WeightsError, match=r"in training: model.2.weight is missing"):
        made(plain).load(path)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ModelError, match="has no parameters of floats"):
        tg.TrainStep(nn.ReLU(), F.mse_loss, optim.SGD(0.1))


def test_a_loss_of_many_numbers_is_refused():
    ((x, y),) = batches(1)
    step = tg.TrainStep(plain(), lambda out, _: out, optim.SGD(0.1), store=False)
    with pytest.raises(ModelError, match=r"Sequential in training: the loss is .*one float"):
        step(x, y)


def test_a_batch_that_does_not_fit_is_refused():
    step = made(plain)
    with pytest.raises(ShapeError, match=r"^layer 0 \(Linear\): linear: "):
        step(np.zeros((8, 5), np.float32), np.zeros(8, np.int64))
    assert step.updates == 0


def test_an_error_names_the_innermost_layer():
    inner = nn.Sequential(nn.Linear(6, 4), nn.Conv2d(4, 4, 3))
    step = made(lambda: nn.Sequential(nn.Tanh(), inner))
    with pytest.raises(ShapeError, match=r"^layer 1\.1 \(Conv2d\): "):
        step(*next(batches(1)))


def test_modules_are_left_in_their_mode():
    model = net()
    step = tg.TrainStep(model, F.cross_entropy, optim.SGD(0.1), store=False)
    step(*next(batches(1)))
    assert not any(m.training for m in model.modules())


def test_a_label_out_of_range_leaves_the_state_as_it_was():
    ((x, y),) = batches(1)
    step, other = made(plain), made(plain)
    with pytest.raises(IndexOutOfRange):
        step(x, np.full(8, 4))
    assert step(x, y) == other(x, y)
    for name, value in step.state_dict().items():
        np.testing.assert_array_equal(value, other.state_dict()[name])


def test_a_step_keeps_its_state_in_place():
    ((x, y),) = batches(1)
    step = made()
    step(x, y)
    places = {name: a.ctypes.data for name, a in step._state.items()}
    step(x, y)
    assert {name: a.ctypes.data for name, a in step._state.items()} == places
    assert all(at % 64 == 0 for at in places.values())


class Tied(nn.Module):
    """Two names of one weight, and a layer that nothing reads."""

    def __init__(self):
        self.first, self.last = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.last.weight = self.first.weight
        self.unread = nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.first(x).tanh())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_weight_of_two_names_is_one_and_what_is_not_read_stays(torch, accumulate):
    step = made(Tied, optim.AdamW(0.05, weight_decay=0.5), accumulate=accumulate, clip_norm=0.1)
    before = step.weights()
    theirs = torch.nn.Parameter(torch.tensor(before["first.weight"]))
    other = torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.5)
    for x, y in batches(2 * accumulate):
        step(x, y)
        out = torch.tanh(torch.tensor(x) @ theirs.T) @ theirs.T
        (torch.nn.functional.cross_entropy(out, torch.tensor(y)) / accumulate).backward()
        if step.state_dict()["calls"] % accumulate == 0:
            torch.nn.utils.clip_grad_norm_([theirs], 0.1)
            other.step()
            other.zero_grad()
    after = step.weights()
    np.testing.assert_allclose(after["first.weight"], theirs.detach().numpy(), atol=1e-5)
    np.testing.assert_array_equal(after["last.weight"], after["first.weight"])
    np.testing.assert_array_equal(after["unread.weight"], before["unread.weight"])
    x = next(batches(1))[0]
    wanted = np.tanh(x @ after["first.weight"].T) @ after["first.weight"].T
    np.testing.assert_allclose(tg.load(step.model(), store=False)(x), wanted, atol=1e-4)


@tg.custom_vjp(lambda *_: None)
def without(x):
    return x * 1.0


class Detached(nn.Module):
    """A layer, and parameters that no gradient reaches, or one of zeros."""

    def __init__(self):
        self.layer, self.detached, self.ruled, self.level, self.scaled = (
            nn.Linear(6, 6), *(nn.Parameter(6) for _ in range(4)),
        )  # fmt: skip

    def forward(self, x):
        level = tg.where(self.level.tensor > 0, self.level.tensor, 2.0).floor()
        shift = self.detached.tensor.detach() + without(self.ruled.tensor)
        return self.layer(x) + shift + level + self.scaled.tensor * 0


def test_a_parameter_that_no_gradient_reaches_stays_and_one_of_zeros_decays_as_in_pytorch():
    step = made(Detached, optim.AdamW(0.05, weight_decay=0.5))
    step.load_state_dict({n: v + (n[:6] == "model.") for n, v in step.state_dict().items()})
    before = step.weights()
    for x, y in batches(2):
        step(x, y)
    after = step.weights()
    for name in ("detached", "ruled"):
        np.testing.assert_array_equal(after[name], before[name])
    for name in ("level", "scaled"):
        np.testing.assert_allclose(after[name], before[name] * 0.975**2, rtol=1e-6)
    assert not np.array_equal(after["layer.bias"], before["layer.bias"])


def test_a_loss_that_no_parameter_changes_is_refused():
    x, y = next(batches(1))
    step = tg.TrainStep(
        Detached(), lambda out, y: out.argmax(1).float().mean(), optim.SGD(0.1), store=False
    )
    with pytest.raises(ModelError, match="no gradient of the loss reaches a parameter"):
        step(x, y)


def test_frozen_parameters_stay_as_they_are():
    model = net()
    model[0].requires_grad_(False)
    step = made(lambda: model)
    before = step.weights()
    for x, y in batches(2):
        step(x, y)
    changed = {n for n, w in step.weights().items() if not np.array_equal(w, before[n])}
    assert {"4.weight", "4.bias", "1.weight", "1.running_mean"} <= changed
    assert not changed & {"0.weight", "0.bias"}
    assert not any(name.endswith(".0.weight") for name in step.state_dict() if "optim" in name)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"optimizer": optim.LAMB()}, "optimizer Adam, this one has LAMB"),
        ({"accumulate": 2}, "accumulate 3, this one has 2"),
    ],
)
def test_a_state_of_another_optimizer_or_accumulation_is_refused(tmp_path, other, said):
    path = tmp_path / "s.safetensors"
    made(plain, accumulate=3).save(path)
    with pytest.raises(WeightsError, match=f"s.safetensors: it is of a step with {said}"):
        made(plain, **{"accumulate": 3, **other}).load(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": optim.SGD}, "optimizer=<class .*SGD'> must be one of tg.nn.optim"),
        ({"optimizer": "sgd"}, "optimizer='sgd' must be one of tg.nn.optim"),
        ({"loss": "mse"}, "loss='mse' must be a function"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0 must be a number above 0"),
        ({"clip_value": 0}, "clip_value=0 must be a number above 0"),
        ({"loss_scale": float("nan")}, "loss_scale=nan must be a number above 0"),
        ({"accumulate": True}, "accumulate=True must be an integer of at least 1"),
    ],
)
def test_an_option_that_is_none_is_named(options, said):
    given = {"loss": F.cross_entropy, "optimizer": optim.SGD(0.1), **options}
    with pytest.raises(ConfigError, match=said):
        tg.TrainStep(plain(), **given, store=False)


def test_labels_may_be_bytes():
    ((x, y),) = batches(1)
    assert made(plain)(x, y.astype(np.uint8)) == made(plain)(x, y)


def test_an_undefined_state_is_not_saved(tmp_path):
    step = made(plain)
    step._defined = False  # as after an index that depends on new values
    for call in (lambda: step.save(tmp_path / "s"), step.weights, step.state_dict, step.model):
        with pytest.raises(ModelError, match="its state is undefined"):
            call()
    assert not [*tmp_path.iterdir()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a destructor
def test_an_interrupted_step_is_done_or_not_begun():
    ((x, y),) = batches(1)
    step, other = made(), made()
    states = [other.state_dict()]
    for _ in range(60):
        other(x, y)
        states.append(other.state_dict())
    step.program(x, y)
    armed = []

    def interrupt(*_):
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for after in range(12):
            with contextlib.suppress(KeyboardInterrupt):
                armed.append(1)
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + after * 1e-5)
                while armed and step.updates < 60:
                    step(x, y)
                armed.clear()
            equal(step.state_dict(), states[step.updates])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["dtype", "bogus"])
def test_an_option_that_a_step_has_not_is_refused(name):
    """Parameters of other dtypes are the model's own business: a dtype of ``load`` is no option."""
    with pytest.raises(TypeError, match=f"setting {name!r} is unknown"):
        made(**{name: "f16"})
