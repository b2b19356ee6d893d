"""Optimisers, schedules, clipping and loss scaling, beside PyTorch's and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import ConfigError
from tunegrad.nn import optim

SHAPES = {"a": (3, 4), "b": (5,), "c": (), "d": (2, 1, 3, 3)}

CASES = {
    "sgd": (optim.SGD, "SGD", {}),
    "sgd momentum": (optim.SGD, "SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    "sgd dampened": (optim.SGD, "SGD", {"momentum": 0.9, "dampening": 0.3}),
    "sgd nesterov": (optim.SGD, "SGD", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
    "adam": (optim.Adam, "Adam", {}),
    "adam decayed": (optim.Adam, "Adam", {"betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.1}),
    "adamw": (optim.AdamW, "AdamW", {"weight_decay": 0.1}),
    "rmsprop": (optim.RMSprop, "RMSprop", {}),
    "rmsprop all": (
        optim.RMSprop,
        "RMSprop",
        {"alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1, "momentum": 0.7, "centered": True},
    ),
}


def drawn(seed, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def stepped(optimizer, parameters, gradients, rates):
    """The parameters after a step for each of ``gradients``, by one compiled program."""
    names, moments = list(parameters), optimizer.moments(parameters_of(parameters))
    kept = list(moments)

    def step(lr, count, *given):
        p, g, m = (
            dict(zip(names, given, strict=False)),
            dict(zip(names, given[len(names) :], strict=False)),
            dict(zip(kept, given[2 * len(names) :], strict=True)),
        )
        new, after = optimizer.update(p, g, m, lr, count)
        return [*(new[n] for n in names), *(after[n] for n in kept)]

    state = [*parameters.values(), *(np.array(m.numpy()) for m in moments.values())]
    compiled = None
    for at, (g, rate) in enumerate(zip(gradients, rates, strict=True)):
        every = [np.float32(rate), np.int64(at + 1), *state[: len(names)], *g.values()]
        every += state[len(names) :]
        compiled = compiled or tg.compile(step, *every)
        state = list(compiled(*every))
    return dict(zip(names, state, strict=False))


def parameters_of(arrays):
    return {n: tg.Tensor(a) for n, a in arrays.items()}


@pytest.mark.parametrize("case", CASES)
def test_optimisers_step_as_pytorchs_for_a_hundred_steps(case):
    torch = pytest.importorskip("torch")
    mine, theirs, options = CASES[case]
    first, gradients = drawn(0), [drawn(i) for i in range(1, 101)]
    rates = [0.05 / (1 + i) for i in range(100)]
    found = stepped(mine(**options), first, gradients, rates)
    leaves = {n: torch.nn.Parameter(torch.tensor(a)) for n, a in first.items()}
    other = getattr(torch.optim, theirs)(leaves.values(), lr=1.0, **options)
    for g, rate in zip(gradients, rates, strict=True):
        for group in other.param_groups:
            group["lr"] = rate
        for n, leaf in leaves.items():
            leaf.grad = torch.tensor(g[n])
        other.step()
    for n, leaf in leaves.items():
        np.testing.assert_allclose(found[n], leaf.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_momentum_of_a_constant_gradient_is_a_geometric_sum():
    ones = {"a": np.ones(3, np.float32)}
    found = stepped(optim.SGD(momentum=0.5), {"a": np.zeros(3, np.float32)}, [ones] * 6, [0.1] * 6)
    wanted = -0.1 * sum(2 - 0.5**i for i in range(6))
    np.testing.assert_allclose(found["a"], wanted, rtol=1e-6)


def test_adam_of_a_constant_gradient_moves_by_the_rate():
    steady = {"a": np.array([3.0, -0.5, 1e-3], np.float32)}
    found = stepped(optim.Adam(), {"a": np.zeros(3, np.float32)}, [steady] * 5, [0.01] * 5)
    np.testing.assert_allclose(found["a"], [-0.05, 0.05, -0.05], rtol=3e-5)


def test_adamw_without_a_gradient_decays_only():
    nothing = {"a": np.zeros(2, np.float32)}
    found = stepped(
        optim.AdamW(weight_decay=0.5), {"a": np.full(2, 4.0, np.float32)}, [nothing] * 3, [0.1] * 3
    )
    np.testing.assert_allclose(found["a"], 4 * 0.95**3, rtol=1e-6)


def test_lamb_moves_a_parameter_by_its_own_length():
    first = drawn(3, {"a": (4, 5), "b": (3,)})
    gradients = [drawn(s, {"a": (4, 5), "b": (3,)}) for s in range(4, 104)]
    found = stepped(optim.LAMB(weight_decay=0.02), first, gradients, [0.01] * 100)
    for name, p in first.items():
        p, m, v = p.astype(np.float64), 0.0, 0.0
        for t, g in enumerate((g[name].astype(np.float64) for g in gradients), 1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.02 * p
            p = p - 0.01 * np.linalg.norm(p) / np.linalg.norm(u) * u
        np.testing.assert_allclose(found[name], p, rtol=2e-5, atol=1e-6)


def test_lamb_of_a_parameter_of_zeros_is_adam():
    nothing, g = {"a": np.zeros(3, np.float32)}, [{"a": np.ones(3, np.float32)}]
    found = stepped(optim.LAMB(), nothing, g, [0.1])
    np.testing.assert_allclose(found["a"], -0.1, rtol=1e-5)


def test_a_group_has_its_own_options():
    groups = [(lambda name: name == "b", {"weight_decay": 0.0, "lr_scale": 10.0})]
    same = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    found = stepped(optim.SGD(weight_decay=0.5, groups=groups), same, [same], [0.01])
    np.testing.assert_allclose(found["a"], 1 - 0.01 * 1.5, rtol=1e-6)
    np.testing.assert_allclose(found["b"], 1 - 0.1, rtol=1e-6)


def test_a_group_of_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match="SGD: no option 'decay' of a group; valid: weight_decay"):
        optim.SGD(groups=[(bool, {"decay": 1.0})])


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(ConfigError, match="nesterov=True needs a momentum"):
        optim.SGD(nesterov=True)


def test_gradients_are_clipped_by_their_common_norm():
    given = {"a": np.array([3.0, 0.0], np.float32), "b": np.array([[4.0]], np.float32)}
    clipped, norm = optim.clip_grad_norm(parameters_of(given), 1.0)
    assert norm.item() == pytest.approx(5.0)
    np.testing.assert_allclose(clipped["a"].numpy(), [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"].numpy(), [[0.8]], rtol=1e-6)
    same, _ = optim.clip_grad_norm(parameters_of(given), 10.0)
    np.testing.assert_array_equal(same["a"].numpy(), given["a"])


def test_gradients_are_clipped_by_value():
    found = optim.clip_grad_value({"a": tg.Tensor(np.array([-3.0, 0.5, 2.0], np.float32))}, 1.0)
    np.testing.assert_array_equal(found["a"].numpy(), [-1.0, 0.5, 1.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_seen(bad):
    good = drawn(0)
    assert optim.finite(parameters_of(good)).item()
    good["d"][1, 0, 2, 2] = bad
    assert not optim.finite(parameters_of(good)).item()


def test_a_loss_scale_grows_after_good_steps_and_falls_after_a_bad_one():
    scale, law = (tg.Tensor(np.float32(8)), tg.Tensor(np.int64(0))), optim.LossScale(interval=2)
    seen = []
    for whole in (True, True, False, True):
        scale = law.after(*scale, tg.Tensor(np.bool_(whole)))
        seen.append((scale[0].item(), scale[1].item()))
    assert seen == [(8.0, 1), (16.0, 0), (8.0, 0), (8.0, 1)]


def test_schedules_have_their_ends():
    assert [optim.StepLR(1.0, 2, 0.5)(i) for i in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    cosine = optim.CosineLR(1.0, 10, 0.1)
    assert [cosine(0), cosine(5), cosine(10), cosine(50)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    warm = optim.WarmupLR(cosine, 4)
    assert [warm(0), warm(1), warm(4), warm(9)] == pytest.approx([0.0, 0.25, 1.0, 0.55])
    cycle = optim.OneCycleLR(1.0, 10)
    assert [cycle(0), cycle(2), cycle(9)] == pytest.approx([0.04, 1.0, 4e-6])


def test_schedules_are_pytorchs():
    torch = pytest.importorskip("torch")
    schedulers, one = torch.optim.lr_scheduler, torch.nn.Parameter(torch.zeros(()))

    def theirs(make):
        optimizer = torch.optim.SGD([one], lr=0.3)
        schedule = make(optimizer)
        for _ in range(12):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            schedule.step()

    for mine, make in [
        (optim.StepLR(0.3, 3, 0.7), lambda o: schedulers.StepLR(o, 3, 0.7)),
        (optim.CosineLR(0.3, 12, 0.01), lambda o: schedulers.CosineAnnealingLR(o, 12, 0.01)),
        (optim.WarmupLR(0.3, 5, 0.2), lambda o: schedulers.LinearLR(o, 0.2, 1.0, 5)),
        (
            optim.OneCycleLR(0.3, 13),
            lambda o: schedulers.OneCycleLR(o, 0.3, 13, cycle_momentum=False),
        ),
    ]:
        wanted = list(theirs(make))
        assert [mine(i) for i in range(12)] == pytest.approx(wanted, rel=1e-9), mine
        assert not any(math.isnan(w) for w in wanted)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: optim.SGD(-1.0), "SGD: lr=-1.0 must be a number of at least 0"),
        (lambda: optim.SGD(momentum="much"), "SGD: momentum='much' must be"),
        (lambda: optim.Adam(float("nan")), "Adam: lr=nan must be"),
        (lambda: optim.Adam(betas=(0.9, 1.0)), r"Adam: betas=\(0.9, 1.0\) must be two numbers"),
        (
            lambda: optim.AdamW(groups=[(str.isupper, {"weight_decay": -1})]),
            "AdamW: weight_decay=-1 must be",
        ),
        (lambda: optim.CosineLR(0.1, 0), "CosineLR: steps=0 must be an integer of at least 1"),
        (lambda: optim.StepLR(0.1, 0), "StepLR: step_size=0 must be"),
        (lambda: optim.OneCycleLR(0.1, 9, 2.0), "OneCycleLR: pct_start=2.0 must be from 0 to 1"),
    ],
)
def test_an_option_out_of_range_is_named(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("pct_start", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 10])
def test_one_cycle_ends_at_the_least_rate_for_every_share_of_the_rise(steps, pct_start):
    cycle = optim.OneCycleLR(0.1, steps, pct_start)
    rates = [cycle(i) for i in range(steps)]
    assert all(0 < rate <= 0.1 for rate in rates)
    assert rates[-1] == pytest.approx(0.1 / 25 / 1e4)
