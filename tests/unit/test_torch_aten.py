"""ATen's operators by our tensors, next to PyTorch's: through ``from_torch`` and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import ModelError
from tunegrad.ir.interpret.evaluate import evaluate

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional


class Called(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Any) -> Any:
        return self.function(*xs)


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(sum(shape) + len(shape))
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 5, shape).to(dtype)


X, Y, IMAGE = drawn(3, 4), drawn(3, 4) + 2, drawn(2, 4, 9, 8)
W, LINE, CUBE = drawn(6, 2, 3, 3), drawn(2, 3, 10), drawn(1, 2, 5, 6, 4)
NUMBERS, B = drawn(3, 4, dtype=torch.int64), drawn(3, 4, dtype=torch.bool)
ROWS = torch.tensor([2, 0, 2, -1])
HEADS = drawn(1, 4, 5, 8)
LSTM = torch.nn.LSTM(4, 5, num_layers=2, bidirectional=True).eval()
GRU = torch.nn.GRU(4, 5, batch_first=True).eval()

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "alpha": (lambda x, y: torch.add(x, y, alpha=2) - torch.sub(x, y, alpha=3), (X, Y)),
    "rsub": (lambda x: torch.rsub(x, 2) + 3 - x, (X,)),
    "rsub_alpha": (lambda x: torch.rsub(x, 2, alpha=3), (X,)),
    "number_modulo": (lambda x: 2 % x, (X,)),
    "diag_embed_dims": (
        lambda x: (torch.diag_embed(x, -1, 0, 2), torch.diag_embed(x, 1, -1, -2)),
        (X,),
    ),
    "rounded division": (
        lambda x, y: (
            torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x // 2,
        ),
        (X, Y),
    ),
    "integer division": (lambda i: (i / 2, i // 2, i % 3, i * 2.5), (NUMBERS,)),
    "remainders": (lambda x, y: (x % y, torch.fmod(x, y), x % 0.5), (X, Y)),
    "powers": (lambda x, y: (x**2, y**x, 2**x), (X, Y)),
    "bits": (lambda i: (i & 3, i | 4, i ^ 1, ~i, i << 2, i >> 1), (NUMBERS,)),
    "truth": (lambda b, x: (b & (x > 0), b | (x <= 1), ~b, b ^ True, b.any(), b.all(1)), (B, X)),
    "activations": (
        lambda x: (
            F.relu6(x), F.elu(x, 0.5), F.selu(x), F.gelu(x), F.gelu(x, approximate="tanh"),
            F.silu(x), F.mish(x), F.hardswish(x), F.hardsigmoid(x), F.softplus(x, 2, 1),
            F.logsigmoid(x), F.leaky_relu(x, 0.2), F.hardtanh(x), F.glu(x), F.celu(x, 2.0),
            F.threshold(x, 0.1, 5.0), F.softshrink(x), F.hardshrink(x),
        ),
        (X,),
    ),
    "prelu": (F.prelu, (IMAGE, drawn(4))),
    "functions": (
        lambda x, y: (
            x.exp(), y.abs().log(), y.abs().sqrt(), x.sin(), x.cos(), x.tanh(), x.erf(), x.floor(),
            x.ceil(), x.trunc(), x.round(), x.sign(), y.rsqrt(), y.reciprocal(), x.abs().log1p(),
            x.expm1(), x.atan(), torch.atan2(x, y),
        ),
        (X, Y.abs() + 1),
    ),
    "choices": (
        lambda b, x, y: (
            torch.where(b, x, y), torch.where(b, x, 0.0), x.masked_fill(b, 7.0), x.clamp(-1, 1),
            x.clamp(min=y), torch.lerp(x, y, 0.3), torch.addcmul(x, x, y, value=2),
        ),
        (B, X, Y),
    ),
    "extremes": (
        lambda x: (*x.max(1), *x.min(0, keepdim=True), x.amax(), x.argmax(1), x.argmin(), x.max()),
        (X,),
    ),
    "sums": (
        lambda x, i: (
            x.sum(), x.sum((0, 1)), x.mean(1, keepdim=True), i.sum(), i.prod(1), x.mean(), i.sum(0),
            x.var(1), x.std(0, correction=0), torch.logsumexp(x, 1), x.norm(dim=1), x.cumsum(1),
            i.float().mean(), torch.var_mean(x, 1)[0],
        ),
        (X, NUMBERS),
    ),
    "softmax": (
        lambda x: (x.softmax(1), x.log_softmax(0), x.softmax(-1, dtype=torch.float64)), (X,)
    ),
    "sorts": (lambda x: (*x.sort(1), *x.topk(2), x.argsort(0), *x.sort(0, descending=True)), (X,)),
    "views": (
        lambda x: (
            x.t(), x.view(2, 6), x.reshape(-1), x.unsqueeze(1), x.flatten(), x.expand(2, 3, 4),
            x.unsqueeze(0).squeeze(0), x.permute(1, 0).contiguous(), x.repeat(2, 1), x.roll(1, 0),
            x.flip(1), x.tril(), x.triu(1), x.diagonal(), x.repeat_interleave(2, 1),
            x.unfold(1, 2, 1), x.transpose(0, 1), x.roll(1),
        ),
        (X,),
    ),
    "slices": (
        lambda x: (x[1], x[:, 1:3], x[::2], x[..., -1], x[-2:], x[:, None], x[0:100, 2:2]), (X,)
    ),
    "joins": (
        lambda x, y: (
            torch.cat([x, y], 1), torch.stack([x, y]), *x.split(2, 1), *x.chunk(3), *x.unbind(1),
            *torch.split(y, [1, 3], 1),
        ),
        (X, Y),
    ),
    "pads": (
        lambda x: (
            F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=3.0), F.pad(x, (1, 1), mode="reflect"),
            F.pad(x, (2, 1), mode="replicate"), F.pad(x, (-1, 1)), F.pad(x, (1, 1), mode="circular"),
        ),
        (X[None],),
    ),
    "positions": (
        lambda x, r: (
            x[r], x[:, r], x.index_select(1, r % 3), x.gather(1, (r % 3)[None].expand(3, 4)),
            F.embedding(r % 3, x), x[r[:2], r[2:]], x.index_select(0, r % 3),
        ),
        (X, ROWS),
    ),
    "writing": (
        lambda x, r, y: (
            x.index_put((r % 3,), y[:1].expand(4, 4), accumulate=True),
            x.index_copy(0, (r % 3)[:1], y[:1]), x.scatter(1, (r % 3)[None].expand(3, 4), 9.0),
            x.scatter_add(1, (r % 3)[None].expand(3, 4), y), x.index_put((r[:1],), y[0]),
            x.index_put((r[:2] % 3, r[2:3] % 3), y[0, :1]), x.slice_scatter(y[:1], 0, 1, 2),
            x.select_scatter(y[0], 0, -1), x.index_put((x > 0,), torch.tensor(2.0)),
        ),
        (X, ROWS, Y),
    ),
    "in place": (lambda x, y: (x.clone().add_(y).mul_(2), _written(x, y)), (X, Y)),
    "made": (
        lambda x: (
            torch.arange(4), torch.arange(1.0, 3.0, 0.5), torch.zeros(2), torch.ones_like(x),
            torch.full((2,), 3), x.new_zeros(2, 2), torch.eye(3), torch.tensor([1.0, 2.0]) + x[0, 0],
            torch.full_like(x, 2), torch.linspace(0, 1, 5),
        ),
        (X,),
    ),
    "casts": (
        lambda x, i, b: (
            x.to(torch.int32), x.half(), x.bfloat16(), x.double() + 1, i.float(), b.float(),
            i.to(torch.uint8), x.bool(), b + i, b * x, i + x.half(), x.type_as(i),
        ),
        (X * 3, NUMBERS, B),
    ),
    "promotion": (
        lambda x, i: (x + torch.tensor(2.0, dtype=torch.float64), i + torch.tensor(2.5), i / 2),
        (X, NUMBERS),
    ),
    "products": (
        lambda x, y: (
            x @ y.t(), torch.addmm(y[:, :3], x, y.t(), beta=2, alpha=3), torch.mv(x, y[0]),
            torch.bmm(x[None], y.t()[None]), torch.dot(x[0], y[0]), F.linear(x, y, y[:, 0]),
            torch.einsum("ij,kj->ik", x, y), x.outer(y) if x.ndim == 1 else torch.outer(x[0], y[0]),
            torch.baddbmm(y[None, :, :3], x[None], y.t()[None]),
        ),
        (X, Y),
    ),
    "convolutions": (
        lambda x, w, b, v: (
            F.conv2d(x, w, b, 2, 1, groups=2), F.conv2d(x, w, b, padding="same", groups=2),
            F.conv_transpose2d(x, v, None, 2, 1, 1), F.conv_transpose2d(x, v, stride=(2, 1)),
            F.conv2d(x[0], w, dilation=2, groups=2),
        ),
        (IMAGE, W, drawn(6), drawn(4, 3, 3, 3)),
    ),
    "lines": (lambda x, w: (F.conv1d(x, w, None, 2), F.conv1d(x, w, padding=1)),
              (LINE, drawn(4, 3, 3))),
    "cubes": (lambda x, w: (F.conv3d(x, w, padding=1), F.max_pool3d(x, 2)),
              (CUBE, drawn(3, 2, 3, 3, 3))),
    "pools": (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True), F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.adaptive_avg_pool2d(x, (3, 2)),
            F.adaptive_avg_pool2d(x, 1), *F.max_pool2d(x, 2, return_indices=True),
        ),
        (IMAGE,),
    ),
    "sizes": (
        lambda x: (
            F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 4)), F.pixel_shuffle(x, 2),
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, (7, 11), mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=1.7, mode="bicubic"),
        ),
        (IMAGE,),
    ),
    "norms": (
        lambda x, w: (
            F.layer_norm(x, (8,)), F.layer_norm(x, (9, 8)), F.group_norm(x, 2, w, w),
            F.rms_norm(x, (8,)), F.instance_norm(x), F.batch_norm(x, w, w.abs(), w, w),
            F.normalize(x, dim=1), F.local_response_norm(x, 2),
        ),
        (IMAGE, drawn(4)),
    ),
    "attention": (
        lambda q, m: (
            F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q, m),
            F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3),
            F.scaled_dot_product_attention(q, q[:, :2], q[:, :2], enable_gqa=True),
        ),
        (HEADS, drawn(5, 5, dtype=torch.bool) | torch.eye(5, dtype=torch.bool)),
    ),
    "halves": (
        lambda x: (x + 1, x @ x.t(), x.softmax(-1), x.mean(1), F.gelu(x)), (X.half(),)
    ),
    "bf16": (lambda x: (x + 1, x @ x.t(), x.sum(1), x.float()), (X.bfloat16(),)),
    "lstm": (LSTM, (drawn(3, 2, 4),)),
    "gru": (GRU, (drawn(2, 3, 4),)),
    "fourier": (
        lambda x, y: (
            torch.fft.fft(x).real, torch.fft.fft2(x, norm="ortho").abs(), torch.fft.rfft(y).imag,
            torch.fft.irfft(torch.fft.rfft(x), n=9), torch.fft.irfft(torch.fft.rfft(y), n=96),
            torch.fft.ihfft(x, dim=-2).imag + 1, torch.fft.ifft(torch.complex(y, y * y)).real,
            torch.stft(y, 16, 4, window=torch.hann_window(16), return_complex=True).abs(),
        ),
        (IMAGE, drawn(2, 96)),
    ),
    "fake quantization": (
        lambda x, s, z, one: (
            torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -20, 30),
            torch.fake_quantize_per_channel_affine(x, s, z, 1, -20, 30),
            torch.fake_quantize_per_tensor_affine(x, s[0], z[0], -20, 30),
            torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                x, s[:1], z[:1], 1 - one, -20, 30
            ),
        ),
        (X, drawn(4).abs() / 8 + 0.01, torch.tensor([0, 3, -2, 1]).int(), torch.ones(1).int()),
    ),
}  # fmt: skip


def _written(x: Any, y: Any) -> Any:
    z = x.clone()
    z[1] = y[0]
    z[:, 2:] += 1
    return z


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in flat(v)]
    return [value]


def same(got: Any, want: Any, name: str) -> None:
    """Equal to eager: in type and shape; floats nearly, others exactly."""
    if want.dtype is torch.bfloat16:
        bits = torch.from_numpy(np.ascontiguousarray(got).view(np.int16))
        got, want = bits.view(torch.bfloat16).float().numpy(), want.float()
        loose = 2e-2
    else:
        loose = 2e-3 if want.dtype is torch.float16 else 1e-5
    wanted = want.detach().numpy()
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=loose, atol=loose, err_msg=name)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def eight_at_once() -> list[list[str]]:
    """Cases, eight in a module: exporting one takes PyTorch longer than the operators in it."""
    names = [*CASES]
    return [names[i : i + 8] for i in range(0, len(names), 8)]


@pytest.mark.parametrize("names", eight_at_once(), ids=lambda names: names[0])
def test_operators_of_aten_give_what_pytorch_gives(names: list[str]) -> None:
    def each(*xs: Any) -> list[Any]:
        given = iter(xs)
        return [CASES[n][0](*(next(given) for _ in CASES[n][1])) for n in names]

    inputs, module = [x for n in names for x in CASES[n][1]], Called(each)
    with torch.no_grad():
        wanted = module(*inputs)
    loaded = tg.load(tg.from_torch(module, *inputs), store=False, threads=1)
    arrays = [
        x.view(torch.int16).numpy().view(np.uint16) if x.dtype is torch.bfloat16 else x.numpy()
        for x in inputs
    ]
    found = flat(loaded(*arrays))
    expected = [(n, want) for n, wants in zip(names, wanted, strict=True) for want in flat(wants)]
    assert len(found) == len(expected)
    for got, (name, want) in zip(found, expected, strict=True):
        same(got, want, name)


def test_operators_that_are_not_there_are_listed_together() -> None:
    module = Called(lambda x: (torch.linalg.svd(x), x.digamma()))
    with pytest.raises(ModelError, match=r"digamma") as caught:
        tg.from_torch(module, X)
    assert "svd" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_graph_is_what_the_interpreter_computes() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU())
    model = tg.from_torch(module, X)
    (found,) = evaluate(tuple(t.node for t in model.build(model.weights())), {"input": X.numpy()})
    np.testing.assert_allclose(found, module(X).detach().numpy(), atol=1e-5)


def test_fourier_transform_of_a_large_prime_has_an_error_of_rounding() -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 1009)).astype(np.float32))
    found = torch.compile(lambda x: torch.view_as_real(torch.fft.fft(x)), backend="tunegrad")(x)
    wanted = torch.view_as_real(torch.fft.fft(x.double()))
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 2e-7
