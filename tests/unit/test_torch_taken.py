"""Networks that PyTorch writes with operators of its own: taken whole, and right, on both ways in."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import DTypeError, IndexOutOfRange, ModelError, ShapeError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, F = torch.nn, torch.nn.functional
pytest.importorskip("tunegrad.torch")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Of(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def randn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_infinity(*shape: int) -> Any:
    x = randn(*shape)
    x[5, 0] = math.inf
    return x


def image(*shape: int) -> Any:
    return randn(*shape).to(memory_format=torch.channels_last)


def encoder(**more: Any) -> Any:
    torch.manual_seed(1)
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **more).eval()


def bag(**more: Any) -> Any:
    torch.manual_seed(1)
    return nn.EmbeddingBag(10, 4, **more)


def pooled() -> Any:
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]
    return nn.Sequential(*layers).eval().to(memory_format=torch.channels_last)


ENCODER, BAG = encoder(), bag(mode="sum")
IDS = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
OFFSETS = torch.tensor([0, 3, 3, 6])
GRID = randn(2, 5, 7, 2, seed=3) * 1.3
HIDDEN = torch.zeros(2, 5, dtype=torch.bool)
HIDDEN[1, 3:] = True


def _grid(**more: Any) -> Any:
    return Of(lambda x, g: F.grid_sample(x, g, **more))


def _mixed(x: Any, r: Any) -> Any:
    pairs = torch.view_as_complex(x)
    both = torch.cat([pairs, r]), torch.stack([r, pairs]).reshape(-1)
    return torch.view_as_real(torch.cat(both))


def _rope(x: Any) -> Any:
    angles = torch.outer(torch.arange(5.0), torch.arange(8.0) / 8)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(2, 5, 8, 2))
    return torch.view_as_real(pairs * turns.unsqueeze(0)).flatten(2)


class Turned(nn.Module):
    """Rotary positions, as Meta's Llama has them: a complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(5.0), torch.arange(8.0) / 8)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.float().reshape(2, 5, 8, 2))
        return torch.view_as_real((pairs * self.turns[None]).transpose(0, 1)).flatten(2), (
            pairs.conj() / 2 - 1
        ).abs()


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "channels_last global pool": (pooled(), (image(2, 3, 12, 12),)),
    "channels_last mean": (Of(lambda x: x.mean((2, 3), keepdim=True) * x), (image(2, 3, 4, 5),)),
    "encoder layer": (encoder(), (randn(2, 5, 16),)),
    "encoder layer, norm first, gelu": (encoder(norm_first=True, activation="gelu"), (randn(2, 5, 16),)),
    "encoder layer, causal": (Of(ENCODER), (randn(2, 5, 16), nn.Transformer.generate_square_subsequent_mask(5))),
    "encoder layer, padding": (Of(lambda x, m: ENCODER(x, src_key_padding_mask=m)), (randn(2, 5, 16), HIDDEN)),
    "attention layer": (nn.MultiheadAttention(16, 4, batch_first=True).eval(), (randn(2, 5, 16),) * 3),
    "adaptive_max_pool1d": (Of(lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True)), (randn(2, 3, 7),)),
    "adaptive_max_pool2d": (Of(lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True)), (randn(2, 3, 7, 5),)),
    "adaptive_max_pool3d": (Of(lambda x: F.adaptive_max_pool3d(x, 2)), (randn(1, 2, 4, 5, 3),)),
    **{
        f"grid_sample {mode} {padding} {corners}": (_grid(mode=mode, padding_mode=padding, align_corners=corners), (randn(2, 3, 4, 6), GRID))
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    "grid_sample 3d": (_grid(align_corners=False), (randn(2, 3, 4, 5, 6), randn(2, 3, 4, 2, 3, seed=2))),
    "affine_grid": (Of(lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False)), (randn(2, 2, 3),)),
    **{
        f"interpolate {mode} antialias {more}": (Of(lambda x, mode=mode, more=more: F.interpolate(x, mode=mode, antialias=True, **more)), (randn(2, 3, 9, 12),))
        for mode in ("bilinear", "bicubic")
        for more in ({"size": (5, 4)}, {"size": (13, 20)}, {"scale_factor": 0.4}, {"size": 5, "align_corners": True})
    },
    "searchsorted": (Of(torch.searchsorted), (randn(3, 6).sort(-1).values, randn(3, 4, seed=1))),
    "searchsorted right": (Of(lambda r, v: torch.searchsorted(r, v, side="right", out_int32=True)), (torch.arange(5.0), torch.tensor([0.5, 2, 9, -1]))),
    "bucketize": (Of(lambda v, r: torch.bucketize(v, r, right=True)), (torch.tensor([0.5, 2, 9, -1]), torch.arange(5.0))),
    "cdist": (Of(torch.cdist), (randn(2, 5, 3), randn(2, 4, 3, seed=1))),
    "cdist of p 1": (Of(lambda a, b: torch.cdist(a, b, p=1.0)), (randn(5, 3), randn(4, 3, seed=1))),
    "EmbeddingBag": (bag(mode="sum"), (IDS, OFFSETS)),
    "EmbeddingBag mean": (bag(mode="mean", padding_idx=4), (IDS, OFFSETS)),
    "EmbeddingBag max": (bag(mode="max"), (IDS, OFFSETS)),
    "EmbeddingBag of rows": (bag(mode="mean"), (IDS.reshape(2, 4),)),
    "EmbeddingBag weighted": (Of(lambda i, o, w: BAG(i, o, per_sample_weights=w)), (IDS, OFFSETS, randn(8))),
    "EmbeddingBag beside infinity": (
        Of(lambda i, o, w: F.embedding_bag(i, w, o, mode="sum")), (IDS, OFFSETS, with_infinity(10, 4))
    ),
    "EmbeddingBag last offset": (bag(mode="sum", include_last_offset=True), (IDS, torch.tensor([0, 3, 3, 8]))),
    "Bilinear": (nn.Bilinear(4, 3, 5), (randn(2, 4), randn(2, 3))),
    "isin": (Of(lambda a, b: torch.isin(a, b, invert=True)), (IDS, OFFSETS)),
    "median": (Of(lambda x: (x.median(), x.median(1), x.kthvalue(2, 1))), (randn(3, 5),)),
    "masked_scatter": (Of(lambda x, m, s: x.masked_scatter(m, s)), (randn(2, 5, 3), HIDDEN.unsqueeze(-1), randn(8, 3))),
    "addbmm": (Of(lambda x, a: torch.addbmm(x, a, a.mT, beta=0.5, alpha=2)), (randn(3, 3), randn(4, 3, 2))),
    "corners": (Of(lambda x: (x[torch.tril_indices(3, 4, 1).unbind()], torch.triu_indices(3, 4, -1))), (randn(3, 4),)),
    "means of what is written": (
        Of(lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False)), (randn(3, 4), IDS.reshape(2, 4) % 3, randn(2, 4))
    ),
    "RReLU": (nn.RReLU().eval(), (randn(3, 4),)),
    "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (randn(2, 4),)),
    "rotary positions as complex numbers": (Of(_rope), (randn(2, 5, 16),)),
    "rotary positions from a complex buffer": (Turned(), (randn(2, 5, 16),)),
    "complex and real numbers in one": (Of(_mixed), (randn(3, 2), randn(3))),
    "complex numbers as real ones": (
        Of(lambda x: torch.view_as_complex(x).real.contiguous().view(3, 1) + torch.view_as_complex(x).abs()), (randn(3, 2),)
    ),
    "a scalar of complex numbers": (Of(lambda x: torch.view_as_real(torch.view_as_complex(x) * 1j + 2)), (randn(3, 2),)),
}  # fmt: skip


def flat(value: Any) -> list[Any]:
    return [t for v in value for t in flat(v)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize("name", CASES)
def test_torch_compile_takes_it_whole(name: str, caplog: pytest.LogCaptureFixture) -> None:
    module, args = CASES[name]
    f = torch.compile(module, backend="tunegrad", options={"store": False, "threads": 1})
    with torch.inference_mode(), caplog.at_level(logging.WARNING, logger="tunegrad"):
        got, want = f(*args), module(*args)
    for a, b in zip(flat(got), flat(want), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-5)
    assert not [r.getMessage() for r in caplog.records]


DRAWN = [n for n in CASES if not n.startswith(("grid_sample ", "interpolate "))]
"""Of two operators with many settings, what each setting computes is asserted above; here one of
each, as both ways read one table of operators.
"""
EXPORTED = [*DRAWN, "grid_sample bicubic reflection True", "grid_sample nearest zeros False"]
EXPORTED += [n for n in CASES if n.startswith("interpolate ") and "scale_factor" in n]


@pytest.mark.parametrize("name", EXPORTED)
def test_from_torch_takes_it(name: str) -> None:
    module, args = CASES[name]
    loaded = tg.load(tg.from_torch(module.eval(), *args), store=False, threads=1)
    distinct = [a.numpy() for a in args]
    with torch.no_grad():
        want = flat(module(*args))
    for a, b in zip(flat(loaded(*distinct)), want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), atol=2e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*(discards the imaginary part|ComplexHalf)")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.view_as_complex(x).to(torch.float32),
        torch.angle,
        lambda x: torch.view_as_complex(x.half()),
    ],
    ids=["cast to real", "angle of real", "half"],
)
def test_complex_numbers_that_become_others_are_pytorchs(function: Any) -> None:
    x = randn(3, 2)
    f = torch.compile(function, backend="tunegrad", options={"store": False})
    with torch.inference_mode():
        torch.testing.assert_close(f(x), function(x))


def test_a_model_of_from_torch_with_complex_outputs_says_what_to_return() -> None:
    both = Of(lambda x: (torch.view_as_complex(x) * 2, x + 1))
    with pytest.raises(ModelError, match="module Of: an output is complex; let it"):
        tg.from_torch(both, randn(3, 2))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x.softmax(3), IndexError), (lambda x: x.unsqueeze(5), IndexError),
        (lambda x: x.view(5), RuntimeError), (lambda x: x @ x, RuntimeError),
    ],
    ids=["softmax", "unsqueeze", "view", "matmul"],
)  # fmt: skip
def test_errors_of_from_torch_are_of_the_kind_of_eager(function: Any, kind: Any) -> None:
    with pytest.raises(kind):
        function(randn(2, 3))
    with pytest.raises(ModelError, match="module Of: ") as raised:
        tg.from_torch(Of(function), randn(2, 3))
    assert isinstance(raised.value, kind)


@pytest.mark.parametrize("x", [randn(2, 3), randn(3, 2).t(), randn(2, 3)[0, 0]])
def test_bf16_of_pytorch_is_bf16(x: Any) -> None:
    x = x.bfloat16()
    assert tg.Tensor(x).dtype.name == "bf16"
    np.testing.assert_array_equal(tg.Tensor(x, dtype="f32").numpy(), x.float().numpy())
    halved = tg.Tensor([0.5]) * x
    np.testing.assert_array_equal(halved.numpy(), (torch.tensor([0.5]) * x).float().numpy())
    model = tg.load(tg.from_torch(Of(lambda x: x + x), x), store=False)
    want = (x + x).contiguous().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(model(x), want)


def test_tensors_of_pytorch_that_can_not_be_lent_are_one_clear_line() -> None:
    for wrong, said in (
        (randn(3).requires_grad_(), "require"), (randn(3).bfloat16().requires_grad_(), "require"),
        (randn(3).to(torch.float8_e4m3fn), "dtype"), (torch.empty(3, device="meta"), "meta"),
    ):  # fmt: skip
        with pytest.raises(DTypeError, match=f"tensor: a Tensor is not an array here: .*{said}"):
            tg.Tensor(wrong)
    model = tg.load(tg.from_torch(Of(torch.exp), randn(3)), store=False)
    with pytest.raises(ShapeError, match=r"input .* is not an array"):
        model(randn(3).requires_grad_())


@pytest.mark.parametrize("place", [3, -1])
def test_a_class_that_is_not_there_is_an_error_of_from_torch(place: int) -> None:
    model = tg.load(tg.from_torch(Of(lambda i: F.one_hot(i, 3)), torch.tensor([0, 2])), store=False)
    np.testing.assert_array_equal(model([0, 2]), [[1, 0, 0], [0, 0, 1]])
    with pytest.raises(RuntimeError, match=f"one_hot: index {place} is out of range"):
        model([0, place])


@pytest.mark.parametrize("place", [3, -1])
def test_a_class_that_is_not_there_is_an_error_of_compile(place: int) -> None:
    """PyTorch takes one_hot apart before, and asserts the bounds beside."""
    options = {"store": False, "check": False}
    f = torch.compile(lambda i: F.one_hot(i, 3) * 2, backend="tunegrad", options=options)
    np.testing.assert_array_equal(f(torch.tensor([0, 2])), [[2, 0, 0], [0, 0, 2]])
    with pytest.raises(IndexError, match=f"one_hot: index {place} is out of range"):
        f(torch.tensor([0, place]))


def test_classes_by_values_are_refused_by_from_torch() -> None:
    with pytest.raises(ModelError, match="a shape or a branch depends on values"):
        tg.from_torch(Of(F.one_hot), torch.tensor([0, 2]))


def test_positions_of_bags_are_not_negative() -> None:
    f = torch.compile(bag(mode="sum"), backend="tunegrad", options={"store": False})
    with torch.inference_mode(), pytest.raises(IndexOutOfRange, match="index -1"):
        f(IDS - IDS.min() - 1, OFFSETS)


def test_a_float_that_changes_makes_no_new_program(caplog: pytest.LogCaptureFixture) -> None:
    x, made = randn(3, 4), []
    backends = pytest.importorskip("tunegrad.torch")
    f = torch.compile(lambda v, t: v * t + t**2, backend="tunegrad", options={"store": False})
    with (
        torch.inference_mode(),
        caplog.at_level(logging.WARNING, logger="tunegrad"),
        pytest.MonkeyPatch.context() as m,
    ):
        original = backends.load
        m.setattr(backends, "load", lambda *a, **k: (made.append(1), original(*a, **k))[1])
        for t in (0.1, 0.2, 0.3, 0.4, 0.5):
            torch.testing.assert_close(f(x, t), x * t + t**2)
    assert len(made) == 2  # one for 0.1 alone
    assert not caplog.records


def test_complex_inputs_and_outputs_of_torch_compile(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.complex(randn(3, 4), randn(3, 4, seed=1))
    for given in (x, x.t(), x.conj()):
        torch._dynamo.reset()
        f = torch.compile(
            lambda v: (v * (1 + 2j), v.abs()), backend="tunegrad", options={"store": False}
        )
        with torch.inference_mode(), caplog.at_level(logging.WARNING, logger="tunegrad"):
            for a, b in zip(f(given), (given * (1 + 2j), given.abs()), strict=True):
                torch.testing.assert_close(a, b)
    assert not caplog.records
