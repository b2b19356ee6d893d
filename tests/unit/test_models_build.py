"""The four networks: shapes, torchvision's names, well scaled values, and the kernels'
reductions.
"""

import pickle

import numpy as np
import pytest
from tensor_values import nodes, numbers, reduces, values

from tunegrad.errors import ModelError, WeightsError
from tunegrad.frontend import Tensor
from tunegrad.ir.graph import GraphOp
from tunegrad.models import encoder_layer, mlp, resnet18, resnet50

SMALL = {
    "resnet18": (lambda: resnet18(image=32), (1, 1000)),
    "resnet50": (lambda: resnet50(image=32), (1, 1000)),
    "encoder": (lambda: encoder_layer(sequence=16, hidden=48, heads=4, ffn=96), (1, 16, 48)),
    "mlp": (mlp, (1, 10)),
}


@pytest.mark.parametrize("name", SMALL)
def test_drawn_network_has_outputs_of_order_one(name):
    make, shape = SMALL[name]
    model = make()
    (out,) = model.build(model.weights(seed=0))
    assert out.shape == shape
    (y,) = values([out], {i.name: numbers(*i.shape) for i in model.inputs})
    assert np.isfinite(y).all()
    assert 0.05 < y.std() < 5
    assert np.abs(y).max() < 20


@pytest.mark.parametrize(
    ("make", "entries", "elements"),
    [(resnet18, 102, 11_689_512), (resnet50, 267, 25_557_032)],
    ids=["18", "50"],
)
def test_resnet_has_torchvisions_parameters(make, entries, elements):
    model = make()
    assert len(model.parameters) == entries
    trained = [p for p in model.parameters if "running" not in p.name]
    assert sum(int(np.prod(p.shape)) for p in trained) == elements


def test_resnet18_names_are_torchvisions():
    names = {p.name: p.shape for p in resnet18().parameters}
    assert names["conv1.weight"] == (64, 3, 7, 7)
    assert names["bn1.running_var"] == (64,)
    assert names["layer1.0.conv1.weight"] == (64, 64, 3, 3)
    assert names["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert names["layer2.0.downsample.1.running_mean"] == (128,)
    assert names["layer4.1.bn2.bias"] == (512,)
    assert names["fc.weight"] == (1000, 512)
    assert "layer1.0.downsample.0.weight" not in names


def test_resnet50_has_the_stride_in_the_middle_of_a_bottleneck():
    names = {p.name: p.shape for p in resnet50().parameters}
    assert names["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert names["layer4.2.conv2.weight"] == (512, 512, 3, 3)
    block = resnet50().make().layer2[0]
    assert (block.conv1.stride, block.conv2.stride, block.conv3.stride) == (1, 2, 1)


@pytest.mark.parametrize(
    ("make", "count"),
    # convolutions, one pool, one mean, one linear; 8 matrix products, 2 for softmax, 2 for each
    # norm; 3 layers
    [(resnet18, 20 + 3), (resnet50, 53 + 3), (encoder_layer, 8 + 2 + 4), (mlp, 3)],
    ids=["resnet18", "resnet50", "encoder", "mlp"],
)
def test_network_has_one_reduction_for_each_product_and_statistic(make, count):
    model = make()
    (out,) = model.build(model.weights())
    assert reduces(out) == count


def test_network_depends_on_its_inputs_only():
    model = encoder_layer()
    (out,) = model.build(model.weights())
    assert [n.arg for n in nodes(out, GraphOp.INPUT)] == ["x"]
    assert not out.bindings


def test_equal_weights_build_the_same_graph():
    model = mlp()
    weights = model.weights(seed=3)
    assert model.build(weights)[0].node is model.build(weights)[0].node


def test_batch_and_classes_change_the_shapes():
    model = resnet18(batch=3, image=64, classes=7)
    (out,) = model.build(model.weights())
    assert model.inputs[0].shape == (3, 3, 64, 64)
    assert out.shape == (3, 7)


def test_model_survives_pickling():
    model = pickle.loads(pickle.dumps(mlp(sizes=[4, 3])))
    assert model.build(model.weights())[0].shape == (1, 3)


def test_build_refuses_foreign_weights():
    with pytest.raises(WeightsError, match=r"weights of mlp: 1 unexpected \(fc.weight\)"):
        mlp().build({**mlp().weights(), "fc.weight": np.zeros(1)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: resnet18(batch=0), r"resnet18: batch=0 must be an integer of at least 1"),
        (lambda: resnet50(image="big"), r"resnet50: image='big' must be an integer of at least 1"),
        (
            lambda: resnet18(classes=True),
            r"resnet18: classes=True must be an integer of at least 1",
        ),
        (lambda: encoder_layer(heads=7), r"encoder: heads=7 does not divide hidden=768"),
        (lambda: mlp(sizes=[3]), r"mlp: sizes=\[3\] must list at least two integers"),
        (lambda: mlp(sizes=[3, -1]), r"mlp: sizes\[1\]=-1 must be an integer of at least 1"),
    ],
)
def test_bad_size_is_refused(call, message):
    with pytest.raises(ModelError, match=message):
        call()


def against_torch(name, model, x):
    pytest.importorskip(
        "torch",
        reason="torch is not installed ([bench] extra): no outside reference for whole models",
    )
    import torch

    from benchmarks import torch_models

    net = torch_models.Encoder(48, 4, 96) if name == "encoder" else torch_models.build(name)
    weights = model.weights(seed=1)
    net.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()}, strict=False)
    (got,) = values(model.build(weights), {model.inputs[0].name: x})
    with torch.no_grad():
        expected = net.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("name", SMALL)
def test_network_equals_torch(name):
    model = SMALL[name][0]()
    against_torch(name, model, numbers(*model.inputs[0].shape))


def test_input_of_a_model_is_open():
    (out,) = mlp(sizes=(2, 2)).build(mlp(sizes=(2, 2)).weights())
    with pytest.raises(ModelError, match=r"input 'x' of .* has no value"):
        out.numpy()
    assert isinstance(out, Tensor)
