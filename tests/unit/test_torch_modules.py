"""Modules built with PyTorch's arguments and loaded from its ``state_dict`` give its results."""

import numpy as np
import pytest
from torch_cases import both, difference, flat, flat_torch, integers, numbers, plain

import tunegrad as tg
from tunegrad.frontend import Tensor
from tunegrad.inference import realize

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `bench`)")

IMAGE = [numbers(2, 4, 8, 8)]
SEQUENCE = [numbers(5, 3, 8)]

MODULES = {
    "Linear": (lambda nn: nn.Linear(8, 5), SEQUENCE),
    "Bilinear": (lambda nn: nn.Bilinear(8, 8, 3), [numbers(5, 8), numbers(5, 8, seed=1)]),
    "Embedding": (lambda nn: nn.Embedding(10, 6), [integers(3, 4, low=0, high=10)]),
    "Conv1d": (lambda nn: nn.Conv1d(3, 4, 3, padding=1), [numbers(5, 3, 8)]),
    "Conv2d": (lambda nn: nn.Conv2d(4, 6, 3, 2, 1, groups=2), IMAGE),
    "Conv2d reflect": (lambda nn: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), IMAGE),
    "Conv3d": (lambda nn: nn.Conv3d(2, 4, 3), [numbers(1, 2, 4, 5, 6)]),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(3, 4, 3, 2), [numbers(5, 3, 8)]),
    "ConvTranspose2d": (lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE),
    "ConvTranspose3d": (lambda nn: nn.ConvTranspose3d(2, 3, 2), [numbers(1, 2, 3, 3, 3)]),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(8), [numbers(5, 8)]),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(4), IMAGE),
    "BatchNorm2d plain": (lambda nn: nn.BatchNorm2d(4, affine=False), IMAGE),
    "BatchNorm3d": (lambda nn: nn.BatchNorm3d(2), [numbers(1, 2, 4, 5, 6)]),
    "LayerNorm": (lambda nn: nn.LayerNorm((3, 8)), SEQUENCE),
    "LayerNorm plain": (lambda nn: nn.LayerNorm(8, elementwise_affine=False), SEQUENCE),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), IMAGE),
    "InstanceNorm2d": (lambda nn: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(3), SEQUENCE),
    "RMSNorm": (lambda nn: nn.RMSNorm(8), SEQUENCE),
    "LocalResponseNorm": (lambda nn: nn.LocalResponseNorm(2), IMAGE),
    "PReLU": (lambda nn: nn.PReLU(4), IMAGE),
    "activations": (
        lambda nn: nn.Sequential(
            nn.ReLU(inplace=True),
            nn.LeakyReLU(0.1),
            nn.GELU(),
            nn.SiLU(),
            nn.ELU(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.Hardswish(),
            nn.Mish(),
            nn.Softplus(),
            nn.Softmax(dim=1),
        ),
        IMAGE,
    ),
    "more activations": (
        lambda nn: nn.Sequential(
            nn.ReLU6(),
            nn.SELU(),
            nn.CELU(),
            nn.LogSigmoid(),
            nn.Softsign(),
            nn.Softshrink(0.1),
            nn.Hardshrink(0.1),
            nn.Hardtanh(-3, 3),
            nn.Hardsigmoid(),
            nn.Tanhshrink(),
            nn.Threshold(0.01, 0.5),
            nn.Softmin(dim=1),
            nn.LogSoftmax(dim=1),
            nn.GLU(1),
        ),
        IMAGE,
    ),
    "pools": (
        lambda nn: nn.Sequential(
            nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            nn.AvgPool2d(2, 1),
            nn.AdaptiveAvgPool2d((2, 3)),
            nn.Flatten(),
            nn.Unflatten(1, (4, 6)),
            nn.AdaptiveMaxPool1d(2),
        ),
        IMAGE,
    ),
    "pools of rows": (
        lambda nn: nn.Sequential(
            nn.MaxPool1d(2), nn.AvgPool1d(2), nn.LPPool1d(2, 2), nn.AdaptiveAvgPool1d(1)
        ),
        SEQUENCE,
    ),
    "pads": (
        lambda nn: nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.ReplicationPad2d((1, 0, 2, 1)),
            nn.ZeroPad2d(1),
            nn.ConstantPad2d(1, 2.5),
            nn.CircularPad2d(1),
        ),
        IMAGE,
    ),
    "pixels": (
        lambda nn: nn.Sequential(
            nn.PixelShuffle(2),
            nn.PixelUnshuffle(2),
            nn.ChannelShuffle(2),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Identity(),
            nn.Dropout(0.3),
            nn.Dropout2d(),
        ),
        IMAGE,
    ),
    "columns": (
        lambda nn: nn.Sequential(nn.Unfold(2, stride=2), nn.Fold((8, 8), 2, stride=2)),
        IMAGE,
    ),
    "distance": (
        lambda nn: nn.CosineSimilarity(dim=2),
        [numbers(5, 3, 8), numbers(5, 3, 8, seed=1)],
    ),
    "losses": (
        lambda nn: nn.SmoothL1Loss(reduction="sum", beta=0.5),
        [numbers(5, 8), numbers(5, 8, seed=1)],
    ),
    "CrossEntropyLoss": (
        lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1),
        [numbers(5, 8), integers(5, low=0, high=8)],
    ),
    "RNN": (lambda nn: nn.RNN(8, 6, 2, nonlinearity="relu"), SEQUENCE),
    "LSTM": (lambda nn: nn.LSTM(8, 6, 2, bidirectional=True), SEQUENCE),
    "LSTM batch first": (lambda nn: nn.LSTM(8, 6, batch_first=True, bias=False), SEQUENCE),
    "GRU": (lambda nn: nn.GRU(8, 6, bidirectional=True), SEQUENCE),
    "LSTM alone": (lambda nn: nn.LSTM(8, 6), [numbers(4, 8)]),
    "LSTMCell": (lambda nn: nn.LSTMCell(8, 6), [numbers(3, 8)]),
    "GRUCell": (lambda nn: nn.GRUCell(8, 6), [numbers(3, 8), numbers(3, 6)]),
    "RNNCell": (lambda nn: nn.RNNCell(8, 6), [numbers(3, 8)]),
    "attention": (lambda nn: nn.MultiheadAttention(8, 2), SEQUENCE * 3),
    "cross attention": (
        lambda nn: nn.MultiheadAttention(8, 2, batch_first=True),
        [numbers(3, 5, 8), numbers(3, 7, 8), numbers(3, 7, 8, seed=2)],
    ),
    "encoder layer": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True),
        SEQUENCE,
    ),
    "decoder layer": (
        lambda nn: nn.TransformerDecoderLayer(8, 2, 16),
        [numbers(5, 3, 8), numbers(7, 3, 8)],
    ),
    "transformer": (
        lambda nn: nn.Transformer(8, 2, 1, 1, 16),
        [numbers(5, 3, 8), numbers(7, 3, 8)],
    ),
    "EmbeddingBag": (lambda nn: nn.EmbeddingBag(10, 6), [integers(3, 4, low=0, high=10)]),
    "encoder": (
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, norm_first=True), 2, nn.LayerNorm(8)
        ),
        SEQUENCE,
    ),
}


@pytest.fixture(scope="module")
def results():
    """Every module's outputs, computed at once, by name: ours next to PyTorch's, or the error."""
    torch.manual_seed(0)
    rows, tensors = [], []
    for name, (make, arrays) in MODULES.items():
        theirs = make(torch.nn).eval()
        pairs = [both(a, None, torch) for a in arrays]
        with torch.no_grad():
            wanted = flat_torch(theirs(*(p[1] for p in pairs)), torch)
        try:
            ours = make(tg.nn)
            ours.load_state_dict(theirs.state_dict())
            found = flat(ours(*(p[0] for p in pairs)))
        except Exception as error:  # noqa: BLE001 - the test of this name reports it
            rows.append((name, error, None, None))
            continue
        rows.extend((name, None, m, w) for m, w in zip(found, wanted, strict=True))
        tensors.extend(found)
    arrays = iter(realize(tensors))
    table = {}
    for name, error, mine, wanted in rows:
        text = repr(error) if error else difference(mine, next(arrays), plain(wanted, torch), 1e-4)
        table.setdefault(name, []).append(text)
    return table


@pytest.mark.parametrize("name", MODULES)
def test_module_equals_torch(name, results):
    assert not any(results[name]), results[name]


def test_state_dict_goes_back():
    ours = tg.nn.Linear(3, 2)
    ours.load_state_dict(torch.nn.Linear(3, 2).state_dict())
    again = torch.nn.Linear(3, 2)
    again.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in ours.state_dict().items()})
    x = numbers(4, 3)
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), again(torch.from_numpy(x)).detach(), 1e-5)
