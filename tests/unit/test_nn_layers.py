"""Layers name their parameters as torch does, load them as constants, and fold batch norm into the
convolution.
"""

import copy

import numpy as np
import pytest
from tensor_values import nodes, numbers, reduces, same, value

from tunegrad.errors import ShapeError, WeightsError
from tunegrad.frontend import Tensor, nn
from tunegrad.ir.graph import GraphOp


class Net(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(2, 3, 3, padding=1, bias=False)
        self.blocks = [(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)), nn.LayerNorm((4, 5))]
        self.fc = nn.Linear(5, 7)
        self.depth = 3


def test_parameters_have_torch_names_in_order():
    assert {n: p.shape for n, p in Net().specs().items()} == {
        "conv.weight": (3, 2, 3, 3),
        "blocks.0.0.weight": (3, 3, 1, 1),
        "blocks.0.0.bias": (3,),
        "blocks.0.1.weight": (3,),
        "blocks.0.1.bias": (3,),
        "blocks.0.1.running_mean": (3,),
        "blocks.0.1.running_var": (3,),
        "blocks.1.weight": (4, 5),
        "blocks.1.bias": (4, 5),
        "fc.weight": (7, 5),
        "fc.bias": (7,),
    }


def test_spec_in_a_module_carries_its_name():
    assert [p.name for p in Net().specs().values()] == list(Net().specs())


def test_loaded_weights_are_named_constants():
    fc = nn.Linear(3, 2)
    fc.load({"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
    y = fc(Tensor.input("x", (4, 3)))
    assert {n.arg.name for n in nodes(y, GraphOp.CONST)} == {"weight", "bias"}
    assert [n.arg for n in nodes(y, GraphOp.INPUT)] == ["x"]


def test_call_before_load_is_refused():
    with pytest.raises(
        WeightsError, match=r"a parameter of shape \(2, 3\) has no value yet; call load\(\)"
    ):
        nn.Linear(3, 2)(Tensor.input("x", (4, 3)))


def test_failed_load_changes_nothing():
    fc = nn.Linear(3, 2)
    fc.load(seed=1)
    before = value(fc(Tensor([[1.0, 2.0, 3.0]])))
    with pytest.raises(WeightsError, match="1 missing"):
        fc.load({"weight": np.zeros((2, 3), np.float32)})
    same(fc(Tensor([[1.0, 2.0, 3.0]])), before)


def test_load_draws_by_seed():
    a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    a.load(seed=3)
    b.load(seed=3)
    assert a.weight.tensor.node is b.weight.tensor.node


def test_a_parameter_has_the_methods_and_operators_of_its_tensor():
    scale = nn.Parameter(3)
    scale.fill(Tensor(np.array([1.0, 2.0, 4.0], np.float32)))
    x = Tensor(np.ones((2, 3), np.float32))
    same(x * scale, value(x) * np.float32([1, 2, 4]))
    same(2 / scale + x @ scale.reshape(3, 1), np.float32([[9.0, 8.0, 7.5]] * 2))
    same((-scale).exp() ** 2, np.exp(np.float32([-2.0, -4.0, -8.0])))
    same(scale[1:], np.float32([2, 4]))
    same(value(x) * scale, value(x) * np.float32([1, 2, 4]))
    same(value(x) @ scale.reshape(3, 1), np.float32([[7.0], [7.0]]))
    same(np.exp(scale), np.exp(np.float32([1, 2, 4])))
    same(copy.deepcopy(scale).tensor, np.float32([1, 2, 4]))
    assert scale.shape == (3,)


def layers(bias):
    conv, norm = nn.Conv2d(4, 6, 3, 2, 1, groups=2, bias=bias), nn.BatchNorm2d(6)
    conv.load(seed=1)
    norm.load(seed=2)
    return conv, norm


@pytest.mark.parametrize("bias", [False, True])
def test_conv_norm_equals_the_two_layers(bias):
    conv, norm = layers(bias)
    x = Tensor(numbers(2, 4, 7, 7))
    same(nn.conv_norm(x, conv, norm), value(norm(conv(x))), 1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_conv_norm_touches_the_output_with_one_addition(bias):
    conv, norm = layers(bias)
    x = Tensor.input("x", (1, 4, 7, 7))
    y = nn.conv_norm(x, conv, norm)
    at_run_time = [n for n in nodes(y, GraphOp.MAP) if nodes(Tensor.of(n), GraphOp.INPUT)]
    assert [str(n.arg) for n in at_run_time] == ["mul", "add"]
    assert reduces(y) == 1


def test_layers_equal_their_tensor_operations():
    x = numbers(2, 4, 5)
    norm, fc = nn.LayerNorm((4, 5)), nn.Linear(5, 3)
    norm.load(seed=4)
    fc.load(seed=5)
    p = {n: value(q.tensor) for n, q in norm.named()}
    same(norm(Tensor(x)), value(Tensor(x).layer_norm(p["weight"], p["bias"], axes=(1, 2))))
    q = {n: value(r.tensor) for n, r in fc.named()}
    same(fc(Tensor(x)), x @ q["weight"].T + q["bias"], 1e-5)


def test_drawn_statistics_are_positive_and_near_one():
    norm = nn.BatchNorm2d(1000)
    norm.load()
    var = value(norm.running_var.tensor)
    assert 0.75 < var.min() < var.max() < 1.25


def test_groups_that_do_not_divide_are_refused():
    with pytest.raises(ShapeError, match="Conv2d: groups=3 does not divide channels 4 and 6"):
        nn.Conv2d(4, 6, 3, groups=3)


def test_padding_takes_one_tensor():
    layer, x = nn.ZeroPad2d(1), Tensor(np.ones((1, 1, 2, 3), np.float32))
    assert layer(x=x).shape == (1, 1, 4, 5)
    with pytest.raises(TypeError, match="positional argument"):
        layer(x, x)


def test_recurrence_of_more_steps_than_are_unrolled_is_refused():
    layer = nn.GRU(3, 2, num_layers=2)
    layer.load()
    with pytest.raises(ShapeError, match=r"gru: 2049 steps in 2 layers.* unrolled, 4096 at most"):
        layer(Tensor(np.zeros((2049, 1, 3), np.float32)))
