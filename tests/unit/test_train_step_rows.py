"""Parameters that one rule updates lie in a row: few launches update them, and files keep names."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pickle import dumps, loads

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import nn
from tunegrad.ir.fusion import live_bytes
from tunegrad.nn import optim

GROUPS = [(lambda name: name.endswith("bias"), {"weight_decay": 0.0, "lr_scale": 2.0})]
OPTIONS: dict[str, dict[str, object]] = {
    "plain": {},
    "clipped": {"clip_norm": 0.5, "clip_value": 0.01},
    "summed": {"accumulate": 2},
    "scaled": {"loss_scale": 1024.0},
}


@dataclass(frozen=True, kw_only=True)
class ByName(optim.AdamW):
    """AdamW whose class does not say that it is elementwise."""

    def one(self, p, g, moments, lr, step):
        return super().one(p, g, moments, lr, step)


def deep(layers=30, wide=4):
    return nn.Sequential(*(nn.Linear(wide, wide) for _ in range(layers)))


def step_of(optimizer, layers=30, wide=4, model=None, **options):
    return tg.TrainStep(
        model or deep(layers, wide), nn.functional.mse_loss, optimizer, seed=1, store=False,
        threads=1, **options,
    )  # fmt: skip


def batch(seed=0, wide=4):
    return tuple(np.random.default_rng(seed).standard_normal((2, 8, wide)).astype(np.float32))


def updating(step):
    """Launches that write new values of parameters and of what is kept for them."""
    plan = step.program(*batch())._plan
    rows = {new for new, old in plan.over if plan.buffers[old].name.partition(".")[2]}
    assert sum(plan.buffers[i].layout.size for i in rows) >= 600
    return [x for x in plan.launches if not rows.isdisjoint(x.args)]


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (optim.AdamW(groups=GROUPS), "plain"),
        (optim.Adam(), "clipped"),
        (optim.SGD(0.1, momentum=0.9), "scaled"),
        pytest.param(optim.SGD(0.1, momentum=0.9), "clipped", marks=pytest.mark.slow),
        pytest.param(optim.RMSprop(), "plain", marks=pytest.mark.slow),
        pytest.param(optim.AdamW(), "scaled", marks=pytest.mark.slow),
    ],
)
def test_an_update_of_sixty_parameters_is_at_most_four_launches(optimizer, options):
    found = len(updating(step_of(optimizer, **OPTIONS[options])))
    assert found <= 4
    assert options != "plain" or found == 1 + len(optimizer.groups)


def test_gradients_are_written_where_the_update_reads_them():
    plan = step_of(optim.Adam()).program(*batch())._plan
    ((whole, parts),) = plan.parts.items()
    assert len(parts) == 60
    assert plan.buffers[whole].nbytes == 600 * 4
    assert not any(plan.buffers[i].role == "view" and len(x.kernel.params) == 2
                   for x in plan.launches for i in x.reads)  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_a_row_steps_as_its_parameters_do_by_themselves(options):
    both = [
        step_of(kind(1e-2, groups=GROUPS), 4, **OPTIONS[options]) for kind in (optim.AdamW, ByName)
    ]
    for seed in range(6):
        one, other = (step(*batch(seed)) for step in both)
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert both[0]._whole
    assert not both[1]._whole
    for name, value in both[0].state_dict().items():
        np.testing.assert_allclose(value, both[1].state_dict()[name], rtol=2e-4, atol=1e-6)


def test_a_state_of_one_layout_goes_on_in_another(tmp_path):
    named, row = step_of(ByName(1e-2), 4), step_of(optim.AdamW(1e-2), 4)
    for seed in range(2):
        named(*batch(seed))
    state = named.state_dict()
    row.load_state_dict(state)  # before it has made its rows, and behind that
    first = row(*batch(2))
    row.load_state_dict(state)
    assert row(*batch(2)) == first
    named(*batch(2))
    row.save(tmp_path / "row.safetensors")
    again = step_of(optim.AdamW(1e-2), 4)
    again.load(tmp_path / "row.safetensors")
    found = row(*batch(3))
    assert again(*batch(3)) == found
    assert [*again.state_dict()] == [*named.state_dict()] == [*state]
    np.testing.assert_allclose(named(*batch(3)), found, rtol=1e-5)


class Chosen(nn.Module):
    """A layer that reads one of its weights, by the size of the batch."""

    def __init__(self):
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return (self.one if x.shape[0] == 8 else self.other)(x)


def test_programs_that_train_other_parameters_share_a_state():
    step = step_of(optim.SGD(0.1, momentum=0.9), model=Chosen())
    x, y = batch()
    before = step.state_dict()
    step(x, y)
    between = step.state_dict()
    step(x[:5], y[:5])
    step(x, y)
    after = step.state_dict()
    other = [n for n in before if ".other." in n]
    for name in other:
        np.testing.assert_array_equal(before[name], between[name])
    for name, value in after.items():
        if value.shape:
            assert (value != between[name]).any(), name


@dataclass(frozen=True, kw_only=True)
class MomentumByName(optim.SGD):
    """SGD whose class does not say that it is elementwise."""

    def one(self, p, g, moments, lr, step):
        return super().one(p, g, moments, lr, step)


@pytest.mark.parametrize(
    "optimizer", [optim.SGD(0.1, momentum=0.9, weight_decay=0.01), optim.Adam(weight_decay=0.01)]
)
def test_a_decayed_row_is_updated_in_place(optimizer):
    """A moment reads the parameter, and the parameter the old moment: in one kernel, one of the
    new values would be copied to its place.
    """
    plan = step_of(optimizer).program(*batch())._plan
    assert not any(x.name.startswith("copy") for x in plan.launches)
    assert len([x for x in plan.launches if x.kernel.overwritten and x.kernel.points == 600]) == 2


@pytest.mark.parametrize("options", ["plain", "summed"])
def test_large_matrices_of_few_products_are_updated_where_their_gradients_are_computed(options):
    """Gradients of 2 x 128 x 128 numbers are never in memory; the new values are those of rules by
    name.
    """
    both = [
        step_of(kind(0.1, momentum=0.9), 2, 128, **OPTIONS[options])
        for kind in (optim.SGD, MomentumByName)
    ]
    for seed in range(4):
        one, other = (step(*batch(seed, 128)) for step in both)
        np.testing.assert_allclose(one, other, rtol=1e-5)
    for name, value in both[0].state_dict().items():
        np.testing.assert_allclose(value, both[1].state_dict()[name], rtol=1e-4, atol=1e-6)
    if options == "plain":
        plan = both[0].program(*batch(0, 128))._plan
        products = [x for x in plan.launches if "128x128x8" in x.name]
        assert [len(x.kernel.overwritten) for x in products] == [2, 2]
        assert live_bytes(plan) < 128 * 128 * 4
    assert both[0]._whole  # the biases


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (optim.AdamW(), "plain"),
        (optim.SGD(0.1, momentum=0.9), "clipped"),
        (optim.SGD(0.1, momentum=0.9), "scaled"),
        (optim.SGD(0.1, momentum=0.9, nesterov=True), "plain"),
    ],
)
def test_gradients_that_are_read_twice_are_updated_in_rows(optimizer, options):
    step = step_of(optimizer, 2, 128, **OPTIONS[options])
    step(*batch(0, 128))
    assert "model.0.weight+3" in step._whole


def test_an_optimizer_that_says_nothing_updates_by_name():
    assert not optim.LAMB().is_elementwise
    assert not ByName().is_elementwise
    assert optim.AdamW().is_elementwise
    assert not step_of(optim.LAMB(), 2).step_model(*batch()).inputs[3].parts


def test_a_rule_that_is_not_elementwise_is_called_for_whole_parameters_alone():
    """Parameters of 128 x 128, whose gradients an elementwise rule may never store."""

    class Whole(optim.Optimizer):
        def update(self, parameters, gradients, moments, lr, step):
            return {n: p - lr * gradients[n].sum() for n, p in parameters.items()}, {}

    class Signs(optim.Optimizer):
        def one(self, p, g, moments, lr, step):
            return p - lr * g.reshape(p.shape[0], -1).sign().reshape(p.shape), ()

    for kind in (Whole, Signs):
        step = step_of(kind(0.1), 2, 128)
        before = step.weights()
        step(*batch(wide=128))
        assert (step.weights()["0.weight"] != before["0.weight"]).all(), kind


def test_rules_of_groups_are_asked_with_the_moments_that_all_groups_keep():
    """The first matrix has no momentum, and a moment nevertheless."""

    class Unpacking(optim.SGD):
        elementwise = True

        def one(self, p, g, moments, lr, step):
            (moment,) = moments
            return super().one(p, g, (moment,), lr, step)

    groups = [(lambda name: name.startswith("0."), {"momentum": 0.0})]
    step = step_of(Unpacking(0.1, momentum=0.9, groups=groups), 2, 128)
    step(*batch(0, 128))
    assert not step.state_dict()["optimizer.momentum.0.weight"].any()
    assert step.state_dict()["optimizer.momentum.1.weight"].any()


@dataclass(frozen=True, kw_only=True)
class Layerwise(optim.SGD):
    """SGD whose options are by the names of layers."""

    def of(self, name):
        return replace(self, lr_scale=0.0 if name.startswith("0.") else 1.0)


@dataclass(frozen=True, kw_only=True)
class Centred(optim.SGD):
    """SGD by gradients without the mean of each weight's."""

    def update(self, parameters, gradients, moments, lr, step):
        centred = {n: g - g.mean() if g.ndim > 1 else g for n, g in gradients.items()}
        return super().update(parameters, centred, moments, lr, step)


@pytest.mark.parametrize("kind", [Layerwise, Centred])
def test_a_rule_by_names_or_shapes_of_parameters_is_kept(kind):
    step = step_of(kind(0.1), 2)
    before = step.weights()
    step(*batch())
    change = {n: step.weights()[n] - value for n, value in before.items()}
    assert change["1.weight"].any()
    if kind is Layerwise:
        assert not change["0.weight"].any()
        assert not change["0.bias"].any()
    else:
        assert abs(change["1.weight"].mean()) < 1e-6


def test_equal_gradients_are_copied_to_the_second_place():
    """Two biases of a sum have one gradient."""

    class Twice(nn.Module):
        def __init__(self):
            self.one, self.other, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.last((self.one(x) + self.other(x.tanh())).tanh())

    steps = [step_of(k(1e-2), model=Twice()) for k in (optim.AdamW, ByName)]
    plan = steps[0].program(*batch())._plan
    assert len(next(iter(plan.parts.values()))) == 6
    for seed in range(3):
        np.testing.assert_allclose(*(s(*batch(seed)) for s in steps), rtol=1e-5)


def test_activations_may_lie_where_gradients_are_not_yet():
    """Early in the backward pass few parts of the gradients are written."""
    step = step_of(optim.SGD(0.1), 8, 64)
    x = batch(wide=64)
    program = step.program(*x)
    gradients = 8 * (64 * 64 + 64) * 4
    most = live_bytes(program._plan)
    assert gradients < most < gradients + 12 * 8 * 64 * 4
    assert program._runner.arena_bytes <= 1.1 * most


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: loads(dumps(x))])
def test_a_copy_in_the_middle_of_training_goes_on_by_itself(copied):
    one = step_of(optim.Adam(), 2, accumulate=2)
    losses = [one(*batch(i)) for i in range(3)]
    other, before = copied(one), one.state_dict()
    assert [other(*batch(i)) for i in range(3)] != losses
    for name, value in one.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    for i in range(3):
        one(*batch(i))
    for name, value in one.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name], value)
