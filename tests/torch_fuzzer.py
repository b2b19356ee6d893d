"""Modules that people write, drawn: layers, joins, views, writes in place, buffers, odd dtypes.

    python -m tests.torch_fuzzer 300        so many modules of the run's seed, counts at the end
    python -m tests.torch_fuzzer 300 7      of seed 7
    python -m tests.torch_fuzzer 300 7 train    all of them through that door

A program is a list of steps on the values before them. Each is drawn while the program runs in
PyTorch, so that its shapes fit. A failing one is cut down: to one output, then to the fewest steps,
others of which become inputs with the values they had.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tunegrad as tg
from tests import fuzzing
from tests.api_fuzzer import ENDS

__all__ = [
    "OPERATIONS", "ROUNDINGS", "Case", "Program", "Rounded", "case_of", "differs", "doors", "draw",
    "pairs_of", "shrunk", "wrong",
]  # fmt: skip

_MOST = 4096
"""Elements of a value."""


@dataclass(frozen=True)
class Step:
    """One operation: places of the values that it takes, and its drawn arguments."""

    name: str
    inputs: tuple[int, ...]
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        given = ", ".join([*(f"v{i}" for i in self.inputs), *map(repr, self.args)])
        return f"{self.name}({given})"


@dataclass(frozen=True)
class Program:
    """``count`` inputs, then a value for each step; ``outputs`` are places of values."""

    count: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __str__(self) -> str:
        lines = [f"v{self.count + i} = {s}" for i, s in enumerate(self.steps)]
        return "\n".join([*lines, f"return {', '.join(f'v{i}' for i in self.outputs)}"])


@dataclass(frozen=True)
class Case:
    """A program and tensors to call it with; results of ``extreme`` ones are equal."""

    program: Program
    inputs: tuple[Tensor, ...]
    extreme: bool = False

    @property
    def writes(self) -> bool:
        """Return True where it writes to inputs or buffers."""
        return any(s.name in _WRITING for s in self.program.steps)

    def __str__(self) -> str:
        told = [
            f"v{i}: {t.dtype} {tuple(t.shape)} strides {t.stride()}"
            for i, t in enumerate(self.inputs)
        ]
        return "\n".join([*told, str(self.program)])


class Drawn(nn.Module):
    """A program as a module: the layers of its steps are its own.

    With ``copies``, steps read values that lie in a row, and no views.
    """

    def __init__(self, program: Program, copies: bool = False) -> None:
        super().__init__()
        self.program, self.copies = program, copies
        for i, step in enumerate(program.steps):
            make = _LAYERS.get(step.name)
            if make is not None:
                with torch.random.fork_rng():
                    torch.manual_seed(len(str(step)))
                    self.add_module(f"step{i}", _settled(make(*step.args)))
            if step.name == "buffer":
                self.register_buffer(f"held{i}", torch.full(step.args[0], 0.5))

    def forward(self, *inputs: Tensor) -> Any:
        values: list[Any] = list(inputs)
        for i, step in enumerate(self.program.steps):
            given = [values[k] for k in step.inputs]
            if self.copies and step.name not in _WRITING:
                given = [x.clone(memory_format=torch.contiguous_format) for x in given]
            if step.name in _LAYERS:
                layer = getattr(self, f"step{i}")
                found = layer(*given)
                values.append(found[0] if isinstance(found, tuple) else found)
            elif step.name == "buffer":
                held = getattr(self, f"held{i}")
                held.mul_(0.5).add_(given[0])
                values.append(held + given[0])
            else:
                values.append(OPERATIONS[step.name].run(*given, *step.args))
        return tuple(values[i] for i in self.program.outputs)


def _settled(layer: nn.Module) -> nn.Module:
    """In eval mode, with statistics other than 0 and 1, and weights other than 1 and 0."""
    layer.eval()
    for m in layer.modules():
        for name, t in (*m.named_buffers(recurse=False), *m.named_parameters(recurse=False)):
            if name == "running_var":
                t.data.uniform_(0.5, 2)
            elif t.dtype.is_floating_point and t.ndim < 2:
                t.data.uniform_(-0.5, 0.5).add_(0.6 if name == "weight" else 0)
    return layer


# ---- operations


@dataclass(frozen=True)
class Operation:
    """``draw`` gives arguments for these values, or None where it does not fit."""

    run: Callable[..., Any]
    draw: Callable[..., tuple[Any, ...] | None]
    arity: int = 1


OPERATIONS: dict[str, Operation] = {}
_LAYERS: dict[str, Callable[..., nn.Module]] = {}
_WRITING = frozenset(["write_input", "buffer"])
Rng = random.Random


def _add(name: str, run: Any, draw: Any = None, arity: int = 1) -> None:
    OPERATIONS[name] = Operation(run, draw or (lambda r, *xs: ()), arity)


def _layer(name: str, make: Any, draw: Any, arity: int = 1) -> None:
    OPERATIONS[name] = Operation(make, draw, arity)
    _LAYERS[name] = make


def _float(x: Tensor) -> bool:
    return x.dtype is torch.float32


def _floats(draw: Any = None, rank: int = 0) -> Any:
    """Only for f32 values of this rank at least."""

    def fits(r: Rng, *xs: Tensor) -> Any:
        if not all(_float(x) and x.ndim >= rank for x in xs):
            return None
        return () if draw is None else draw(r, *xs)

    return fits


def _dim(r: Rng, x: Tensor) -> int:
    return r.randrange(-x.ndim, x.ndim) if x.ndim else 0


def _with_dim(draw: Any = None, floats: bool = False, filled: bool = False) -> Any:
    def fits(r: Rng, x: Tensor) -> Any:
        if not x.ndim or (floats and not _float(x)):
            return None
        d = _dim(r, x)
        if filled and not x.shape[d]:
            return None
        return (d, *(() if draw is None else draw(r, x, d)))

    return fits


for _name, _f in {
    "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "abs": torch.abs, "neg": torch.neg, "leaky_relu": F.leaky_relu, "elu": F.elu,
    "hardswish": F.hardswish, "softplus": F.softplus, "erf": torch.erf, "sin": torch.sin,
    "square": torch.square, "relu6": F.relu6, "mish": F.mish, "hardtanh": F.hardtanh,
    "exp": lambda x: x.clamp(-5, 5).exp(), "sqrt": lambda x: x.abs().sqrt(),
    "log": lambda x: (x.abs() + 0.5).log(), "reciprocal": lambda x: 1 / (x.abs() + 0.5),
}.items():  # fmt: skip
    _add(_name, _f, _floats())

for _name, _f in {
    "add": torch.add, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "maximum": torch.maximum, "minimum": torch.minimum,
    "div": lambda a, b: a / (b.abs() + 0.5), "residual": lambda a, b: a + 0.5 * b,
    "where": lambda a, b: torch.where(a > b, a, b * 2), "gate": lambda a, b: a * b.sigmoid(),
}.items():  # fmt: skip
    _add(
        _name, _f,
        lambda r, a, b: () if _float(a) and b.dtype in (torch.float32, torch.int64) and _joins(a, b) else None,
        2,
    )  # fmt: skip


def _joins(a: Tensor, b: Tensor) -> bool:
    return _join(a.shape, b.shape)


def _join(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return math.prod(torch.broadcast_shapes(a, b)) <= _MOST
    except RuntimeError:
        return False


_add("add_number", lambda x, n: x + n, _floats(lambda r, x: (r.choice([1, -2, 0.5]),)))
_add("compare", lambda x, n: (x > n).float(), _floats(lambda r, x: (r.choice([0, 0.5]),)))
_add(
    "masked_fill",
    lambda x, n: x.masked_fill(x > 0.3, n),
    _floats(lambda r, x: (r.choice([0, -1.5]),)),
)
_add("clamp", lambda x, a, b: x.clamp(a, b), _floats(lambda r, x: (r.choice([None, -0.5]), 0.7)))

for _name in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "prod", "norm"):

    def _reduced(x: Tensor, d: int, keep: bool, name: str = _name) -> Tensor:
        found: Tensor = getattr(torch, name)(x, dim=d, keepdim=keep)
        return found

    _add(_name, _reduced, _with_dim(lambda r, x, d: (r.random() < 0.5,), True, True))
for _name in ("softmax", "log_softmax", "cumsum", "logcumsumexp"):
    _add(_name, getattr(torch, _name), _with_dim(None, True, True))
_add(
    "sort",
    lambda x, d, down: x.sort(d, down).values,
    _with_dim(lambda r, x, d: (r.random() < 0.5,), True, True),
)
_add(
    "topk",
    lambda x, d, k: x.topk(k, d).values,
    _with_dim(lambda r, x, d: (r.randint(1, x.shape[d]),), True, True),
)
_add("argmax", lambda x, d: x.argmax(d), _with_dim(None, True, True))
_add("any", lambda x, d: (x > 0).any(d).float(), _with_dim(None, True))


def _factors(r: Rng, x: Tensor) -> Any:
    if not x.numel():
        return None
    rest, found = x.numel(), []
    while rest > 1 and len(found) < 4:
        divisors = [d for d in range(1, rest + 1) if rest % d == 0]
        found.append(r.choice(divisors))
        rest //= found[-1]
    shape = [*found, rest] if rest > 1 or not found else found
    r.shuffle(shape)
    return (tuple(shape),)


def _order(r: Rng, x: Tensor) -> Any:
    order = [*range(x.ndim)]
    r.shuffle(order)
    return (tuple(order),)


def _sliced(x: Tensor, d: int, first: int, last: int, step: int) -> Tensor:
    index: list[Any] = [slice(None)] * x.ndim
    index[d] = slice(first, last, step)
    return x[tuple(index)]


def _slice_of(r: Rng, x: Tensor, d: int) -> Any:
    n = x.shape[d]
    return r.randint(-n, n), r.randint(0, n + 1), r.choice([1, 1, 2, 3])


_add("reshape", lambda x, s: x.reshape(s), _factors)
_add("permute", lambda x, o: x.permute(o), _order)
_add("transpose", lambda x: x.transpose(-1, -2), lambda r, x: () if x.ndim > 1 else None)
_add("flip", lambda x, d: x.flip(d), _with_dim())
_add("roll", lambda x, d, n: x.roll(n, d), _with_dim(lambda r, x, d: (r.randint(-3, 3),)))
_add("slice", _sliced, _with_dim(_slice_of))
_add(
    "select",
    lambda x, d, i: x.select(d, i),
    _with_dim(lambda r, x, d: (r.randrange(-x.shape[d], x.shape[d]),), filled=True),
)
_add(
    "unsqueeze",
    lambda x, d: x.unsqueeze(d),
    lambda r, x: (r.randint(-x.ndim - 1, x.ndim),) if x.ndim < 5 else None,
)
_add("squeeze", lambda x: x.squeeze())
_add(
    "expand",
    lambda x, n: x.unsqueeze(0).expand(n, *x.shape),
    lambda r, x: (r.randint(1, 3),) if x.ndim < 5 else None,
)
_add(
    "repeat",
    lambda x, d, n: x.repeat_interleave(n, d),
    _with_dim(lambda r, x, d: (r.randint(1, 3),)),
)
_add(
    "tile",
    lambda x, n: x.repeat(n, *(1,) * (x.ndim - 1)),
    lambda r, x: (r.randint(1, 2),) if x.ndim else None,
)
_add("contiguous", torch.Tensor.contiguous)
_add(
    "channels_last",
    lambda x: x.contiguous(memory_format=torch.channels_last),
    lambda r, x: () if x.ndim == 4 else None,
)
_add("chunk", lambda x, d, n: x.chunk(n, d)[-1], _with_dim(lambda r, x, d: (r.randint(1, 3),)))
_add(
    "windows",
    lambda x, d, n, s: x.unfold(d, n, s),
    _with_dim(lambda r, x, d: (r.randint(1, x.shape[d]), r.randint(1, 2)), filled=True),
)
_add(
    "diagonal",
    lambda x, k: x.diagonal(k, -2, -1),
    lambda r, x: (r.randint(-1, 1),) if x.ndim > 1 else None,
)
_add("tril", lambda x, k: x.tril(k), lambda r, x: (r.randint(-1, 1),) if x.ndim > 1 else None)
_add("triu", lambda x, k: x.triu(k), lambda r, x: (r.randint(-1, 1),) if x.ndim > 1 else None)
_add(
    "pixel_shuffle",
    lambda x: F.pixel_shuffle(x, 2),
    lambda r, x: () if x.ndim == 4 and x.shape[1] % 4 == 0 and x.numel() else None,
)
_add(
    "pad",
    lambda x, p, v: F.pad(x, p, value=v),
    lambda r, x: (
        (
            tuple(r.randint(-1, 2) for _ in range(2 * r.randint(1, x.ndim))),
            r.choice([0.0, 0.0, 1.5]),
        )
        if x.ndim
        else None
    ),
)
_add(
    "pad_edges",
    F.pad,
    _floats(
        lambda r, x: (
            (
                tuple(r.randint(0, 2) for _ in range(4)),
                r.choice(["reflect", "replicate", "circular"]),
            )
            if x.ndim == 4 and x.numel() and min(x.shape[2:]) > 2
            else None
        )
    ),
)


def _cat_dim(r: Rng, a: Tensor, b: Tensor) -> Any:
    if a.dtype != b.dtype or a.ndim != b.ndim or not a.ndim:
        return None
    odd = [d for d in range(a.ndim) if a.shape[d] != b.shape[d]]
    if len(odd) > 1:
        return None
    return (odd[0] if odd else _dim(r, a),)


_add("cat", lambda a, b, d: torch.cat([a, b], d), _cat_dim, 2)
_add("cat_ones", lambda x, d: torch.cat([x, torch.ones_like(x)], d), _with_dim())
_add("cat_zeros", lambda x, d: torch.cat([torch.zeros_like(x), x, x + 1], d), _with_dim(None, True))
_add(
    "stack",
    lambda a, b, d: torch.stack([a, b], d),
    lambda r, a, b: (
        (r.randint(0, a.ndim),)
        if a.shape == b.shape and a.dtype == b.dtype and a.ndim < 5
        else None
    ),
    2,
)


def _positions(r: Rng, x: Tensor, d: int) -> Any:
    return (tuple(r.randrange(x.shape[d]) for _ in range(r.randint(1, 5))),)


_add(
    "index_select",
    lambda x, d, p: x.index_select(d, torch.tensor(p)),
    _with_dim(_positions, filled=True),
)
_add("gather", lambda x, d: x.gather(d, x.argsort(d)), _with_dim(None, True, True))
_add(
    "scatter_add",
    lambda x, d, p: x.index_add(d, torch.tensor(p), x.narrow(d, 0, 1).repeat_interleave(len(p), d)),
    _with_dim(_positions, True, True),
)
_add("by_mask", lambda x: x[..., :1] * (x > 0), _floats(None, 1))
_add(
    "matmul",
    lambda a, b: a @ b,
    lambda r, a, b: (
        ()
        if _float(a)
        and _float(b)
        and a.ndim > 1 < b.ndim
        and a.shape[-1] == b.shape[-2]
        and _join(a.shape[:-2], b.shape[:-2])
        else None
    ),
    2,
)
_add("self_matmul", lambda x: x @ x.transpose(-1, -2), _floats(None, 2))
_add(
    "attention",
    lambda x, c: F.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=c),
    _floats(lambda r, x: (r.random() < 0.5,) if x.ndim > 2 and x.numel() else None),
)
_add(
    "masked_attention",
    lambda x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=(x[..., :1] > -0.5).transpose(-1, -2)
    ),
    _floats(lambda r, x: () if x.ndim > 2 and x.numel() else None),
)


def _pool(r: Rng, x: Tensor) -> Any:
    if x.ndim != 4 or min(x.shape[2:]) < 2 or not x.numel():
        return None
    return r.randint(1, 2), r.randint(1, 2), r.randint(0, 1), r.random() < 0.5


_add("max_pool2d", lambda x, k, s, p, c: F.max_pool2d(x, k + p, s, p, ceil_mode=c), _floats(_pool))
_add(
    "avg_pool2d",
    lambda x, k, s, p, c: F.avg_pool2d(x, k + p, s, p, count_include_pad=c),
    _floats(_pool),
)
_image = _floats(
    lambda r, x: (r.randint(1, 4), r.randint(1, 4)) if x.ndim == 4 and x.numel() else None
)
_add("adaptive_avg_pool2d", lambda x, h, w: F.adaptive_avg_pool2d(x, (h, w)), _image)
_add("global_pool", lambda x, h, w: F.adaptive_avg_pool2d(x, 1), _image)
_add("adaptive_max_pool2d", lambda x, h, w: F.adaptive_max_pool2d(x, (h, w)), _image)
_add("resize_nearest", lambda x, h, w: F.interpolate(x, (h * 2, w + 1)), _image)
_add(
    "resize_bilinear",
    lambda x, h, w: F.interpolate(x, (h * 2, w + 1), mode="bilinear", align_corners=h > w),
    _image,
)
_add(
    "resize_smooth",
    # PyTorch takes an image one wide for one of channels last between its two passes
    lambda x, h, w: F.interpolate(x, (h + 1, w + 1), mode="bilinear", antialias=True),
    _image,
)
_add(
    "grid_sample",
    lambda x, h, w: F.grid_sample(
        x,
        torch.linspace(-1.2, 1.1, 2 * h * w * x.shape[0]).reshape(x.shape[0], h, w, 2),
        align_corners=False,
    ),
    _image,
)
_add("normalize", lambda x: F.normalize(x, dim=-1), _floats(None, 1))
_add(
    "glu",
    lambda x: F.glu(x, -1),
    _floats(lambda r, x: () if x.ndim and x.shape[-1] and x.shape[-1] % 2 == 0 else None),
)

_layer(
    "linear",
    nn.Linear,
    _floats(
        lambda r, x: (x.shape[-1], r.randint(1, 9), r.random() < 0.7) if x.shape[-1] else None, 1
    ),
)
_layer(
    "layer_norm", nn.LayerNorm, _floats(lambda r, x: (x.shape[-1],) if x.shape[-1] > 1 else None, 1)
)
_layer(
    "rms_norm", nn.RMSNorm, _floats(lambda r, x: (x.shape[-1], 1e-5) if x.shape[-1] else None, 1)
)
_layer(
    "prelu", nn.PReLU, _floats(lambda r, x: (x.shape[1],) if x.ndim > 1 and x.shape[1] else None)
)


def _group_norm(r: Rng, x: Tensor) -> Any:
    if x.ndim < 3 or not x.numel() or math.prod(x.shape[2:]) < 2:
        return None
    return r.choice([g for g in (1, 2, 3, 4) if x.shape[1] % g == 0]), x.shape[1]


_layer("group_norm", nn.GroupNorm, _floats(_group_norm))
_layer(
    "batch_norm2d",
    nn.BatchNorm2d,
    _floats(lambda r, x: (x.shape[1],) if x.ndim == 4 and x.shape[1] else None),
)
_layer(
    "instance_norm2d",
    nn.InstanceNorm2d,
    _floats(
        lambda r, x: (
            (x.shape[1],) if x.ndim == 4 and x.numel() and math.prod(x.shape[2:]) > 1 else None
        )
    ),
)


def _conv2d(r: Rng, x: Tensor) -> Any:
    if x.ndim != 4 or not x.numel():
        return None
    c, kernel, pad, dilation = x.shape[1], r.randint(1, 3), r.randint(0, 2), r.randint(1, 2)
    if min(x.shape[2:]) + 2 * pad < dilation * (kernel - 1) + 1:
        return None
    groups = r.choice([1, 1, c])
    mode = r.choice(["zeros", "zeros", "zeros", "reflect", "circular"])
    if mode != "zeros" and pad >= min(x.shape[2:]):
        return None
    return (
        c,
        groups * r.randint(1, 4),
        kernel,
        r.randint(1, 2),
        pad,
        dilation,
        groups,
        r.random() < 0.7,
        mode,
    )


_layer("conv2d", nn.Conv2d, _floats(_conv2d))
_layer(
    "conv1d",
    nn.Conv1d,
    _floats(
        lambda r, x: (
            (x.shape[1], r.randint(1, 6), 3, r.randint(1, 2), 1)
            if x.ndim == 3 and x.numel()
            else None
        )
    ),
)
_layer(
    "conv_transpose2d",
    nn.ConvTranspose2d,
    _floats(
        lambda r, x: (
            (x.shape[1], r.randint(1, 3), r.randint(2, 3), r.randint(1, 2))
            if x.ndim == 4 and x.numel()
            else None
        )
    ),
)
_layer(
    "encoder_layer",
    lambda d, n, f: nn.TransformerEncoderLayer(d, n, 8, norm_first=f, batch_first=True),
    _floats(
        lambda r, x: (
            (x.shape[2], r.choice([n for n in (1, 2, 4) if x.shape[2] % n == 0]), r.random() < 0.5)
            if x.ndim == 3 and x.numel()
            else None
        )
    ),
)
_layer(
    "embedding",
    lambda n: nn.Embedding(_MOST, n),
    lambda r, x: (
        (r.randint(1, 5),)
        if x.dtype is torch.int64
        and x.ndim < 3
        and (not x.numel() or 0 <= x.min() <= x.max() < _MOST)
        else None
    ),
)

_add("to_double", lambda x: (x.double() * 1.5).float(), _floats())
_add("to_half", lambda x: (x.clamp(-99, 99).half() * 2 + 1).float(), _floats())
_add("to_bfloat16", lambda x: (x.bfloat16() * 2).float(), _floats())
_add("to_int", lambda x: (x.clamp(-9, 9) * 4).int().float(), _floats())
_add("to_byte", lambda x: (x.sigmoid() * 200).byte().float(), _floats())
_add(
    "int_math", lambda x: (x * 3 + 1) % 5 // 2, lambda r, x: () if x.dtype is torch.int64 else None
)
_add("to_long", lambda x: (x.clamp(-9, 9) * 4).long(), _floats())

_ON_INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "hardtanh": F.hardtanh, "relu6": F.relu6, "tanh": torch.tanh,
    "erf": torch.erf, "abs": torch.abs, "neg": torch.neg, "sign": torch.sign,
    "square": torch.square, "floor": torch.floor, "pow": lambda x: x.clamp(-3, 3) ** 3,
    "clamp": lambda x: x.clamp(-1, 2), "clamp_half": lambda x: x.clamp(max=1.5),
    "threshold": lambda x: F.threshold(x, 0.5, 2.5), "half": lambda x: x * 0.5,
    "div": lambda x: x / 4, "trunc": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2), "add": lambda x: x.add(x, alpha=3),
    "sum": lambda x: x.sum(-1), "amax": lambda x: x.amax(-1), "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1).values, "flip": lambda x: x.flip(-1), "any": lambda x: x.any(-1),
    "avg_pool": lambda x: F.avg_pool1d(x.reshape(1, 1, -1), 3, 2, 1),
    "max_pool": lambda x: F.max_pool2d(x.reshape(1, 1, 1, -1), (1, 2), 1, (0, 1)),
    "matmul": lambda x: x.reshape(1, -1) @ x.reshape(-1, 1),
    "addmm": lambda x: torch.addmm(x.reshape(1, -1), x.reshape(-1, 1)[:1], x.reshape(1, -1), beta=2),
}  # fmt: skip
_add(
    "on_integers",
    lambda x, name: _ON_INTEGERS[name](x),
    lambda r, x: (
        (r.choice(list(_ON_INTEGERS)),)
        if x.dtype is torch.int64 and x.ndim and x.numel() > 1 and x.shape[-1]
        else None
    ),
)
_add("float", lambda x: x.float(), lambda r, x: () if x.dtype is not torch.float32 else None)


def _set_first(x: Tensor, v: float) -> Tensor:
    y = x.clone()
    y[..., 0] = v
    return y


def _add_to_part(x: Tensor) -> Tensor:
    y = x.clone()
    y[..., 1:] += y[..., :-1] * 2
    return y


def _write_view(x: Tensor) -> Tensor:
    y = x * 1.0
    y.transpose(0, -1)[0].mul_(3)
    return y


def _write_input(x: Tensor) -> Tensor:
    x.mul_(0.5).add_(1)
    return x * 2


_inner = _floats(lambda r, x: () if x.ndim and x.shape[-1] > 1 else None)
_add(
    "set_first",
    _set_first,
    _floats(lambda r, x: (r.choice([0.0, 2.5]),) if x.ndim and x.shape[-1] else None),
)
_add("add_to_part", _add_to_part, _inner)
_add("write_view", _write_view, _floats(lambda r, x: () if x.ndim and x.shape[-1] else None))
_add("relu_", lambda x: (x * 1.0).relu_(), _floats())
_add("set_mask", lambda x: x.clone().masked_fill_(x < 0, 0.25), _floats())
_add("write_input", _write_input, _floats())
_add("buffer", None, _floats(lambda r, x: (tuple(x.shape),)))


# ---- drawing


_SHAPES = [
    (2, 4, 6, 5), (1, 3, 8, 8), (1, 4, 1, 6), (2, 8, 3, 3), (2, 4, 4, 4), (2, 5, 8), (1, 6, 4),
    (3, 8), (7,), (),
]  # fmt: skip


EXTREME = [
    "relu", "abs", "neg", "square", "relu6", "hardtanh", "add", "sub", "mul", "maximum",
    "minimum", "add_number", "compare", "masked_fill", "clamp", "amax", "amin", "sort",
    "topk", "argmax", "any", "reshape", "permute", "transpose", "flip", "roll", "slice",
    "select", "unsqueeze", "squeeze", "expand", "repeat", "tile", "contiguous",
    "channels_last", "chunk", "windows", "diagonal", "tril", "triu", "pixel_shuffle", "pad",
    "pad_edges", "cat", "cat_ones", "cat_zeros", "stack", "index_select", "gather", "by_mask",
    "max_pool2d", "adaptive_max_pool2d", "to_double", "to_half", "to_bfloat16", "float",
    "set_first", "write_view", "relu_", "set_mask",
]  # fmt: skip
"""Operations that are exact of NaN, infinities and the ends of types. Left out is what C leaves
undefined, floats as integers beyond these.
"""
EXTREMES = 0.25
"""Share of modules that are extreme."""


def _input(r: Rng, seed: int, extreme: bool = False) -> Tensor:
    shape = list(r.choice(_SHAPES))
    if shape and r.random() < 0.06:
        shape[r.randrange(len(shape))] = 0
    drawn = torch.Generator().manual_seed(seed)
    if extreme:
        ends = torch.tensor(ENDS["float"], dtype=torch.float32)
        return ends[torch.randint(0, len(ends), shape, generator=drawn)]
    if r.random() < 0.12:
        return torch.randint(0, 9, shape, generator=drawn)
    kind = r.random()
    if kind < 0.2 and len(shape) > 1:  # a transposed one
        return torch.randn(*shape[::-1], generator=drawn).permute(*range(len(shape))[::-1])
    if kind < 0.3 and shape:  # every second element of a larger one
        return torch.randn(*shape[:-1], 2 * shape[-1], generator=drawn)[..., ::2]
    x = torch.randn(shape, generator=drawn)
    if kind < 0.5 and len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)
    return x


def draw(rng: Rng, most: int = 9, extremes: float = 0.0) -> Case:
    """A program of up to ``most`` steps that runs in PyTorch, with finite values throughout. A share
    of ``extremes`` has exact operations alone, of the ends of types.
    """
    extreme = extremes > 0 and rng.random() < extremes
    count = rng.randint(1, 2)
    inputs = tuple(_input(rng, rng.randrange(1 << 30), extreme) for _ in range(count))
    values: list[Tensor] = [t.clone() for t in inputs]
    steps: list[Step] = []
    wanted, names = rng.randint(1, most), EXTREME if extreme else list(OPERATIONS)
    writes = rng.random() < 0.05 and not extreme
    for _ in range(40 * most):
        if len(steps) == wanted:
            break
        name = "write_input" if writes and not steps else rng.choice(names)
        operation = OPERATIONS[name]
        if name == "write_input" and len(values) > count:  # before anything has read it
            continue
        recent = [len(values) - 1] * 3 + [*range(len(values))]
        for _ in range(4):
            places = tuple(rng.choice(recent) for _ in range(operation.arity))
            args = operation.draw(rng, *(values[i] for i in places))
            if args is not None:
                break
        else:
            continue
        if name == "write_input" and places[0] >= count:
            continue
        step = Step(name, places, args)
        found = _ran(step, [values[i] for i in places], extreme)
        if found is not None:
            steps.append(step)
            values.append(found)
    read = {i for s in steps for i in s.inputs}
    ends = [count + i for i in range(len(steps)) if count + i not in read] or [0]
    if rng.random() < 0.3 and len(steps) > 2:
        ends.append(rng.randrange(count, count + len(steps)))
    return Case(Program(count, tuple(steps), tuple(dict.fromkeys(ends))), inputs, extreme)


def _ran(step: Step, given: Sequence[Tensor], extreme: bool = False) -> Tensor | None:
    """The value of a step; None where it does not fit after all."""
    alone = Program(len(given), (replace(step, inputs=tuple(range(len(given)))),), (len(given),))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            (found,) = Drawn(alone)(*given)
        except (RuntimeError, ValueError, IndexError, AssertionError):
            return None
    fits = isinstance(found, Tensor) and found.numel() <= _MOST
    tame = fits and (
        extreme or (bool(found.float().isfinite().all()) and float(found.float().abs().sum()) < 1e7)
    )
    return found if tame else None


# ---- comparing


def _copied(case: Case) -> list[Tensor]:
    """The inputs in memory of their own, with the strides that they have."""
    return [
        torch.empty_like(t, memory_format=torch.preserve_format).copy_(t)
        if t.is_contiguous()
        else copy.deepcopy(t)
        for t in case.inputs
    ]


def _gaps(a: Tensor, b: Tensor) -> Tensor:
    """How far elements are apart: 0 between NaNs and equal infinities, infinity beside other ones."""
    same = (a == b) | (a.isnan() & b.isnan())
    return (a.double() - b.double()).abs().nan_to_num(torch.inf, torch.inf).masked_fill(same, 0)


def _far(got: Tensor, want: Tensor, slack: Tensor | float = 0.0, exact: bool = False) -> str:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)} for {want.dtype} {tuple(want.shape)}"
    size, allowed = want.double().abs(), torch.as_tensor(slack, dtype=torch.float64)
    finite = size.isfinite()
    if want.dtype.is_floating_point and bool(finite.any()) and not exact:
        rms = size[finite].square().mean().sqrt()
        allowed = allowed + 2e-3 * (size + rms) + 1e-5
    off = _gaps(got, want)
    bad = (off > 0) & ~((off <= allowed) & (finite | torch.isinf(torch.as_tensor(slack))))
    if not bool(bad.any()):
        return ""
    return f"{int(bad.sum())} of {bad.numel()} elements, by {float(off[bad].max())}"


def wrong(said: str) -> bool:
    """Return True where ``differs`` says that it is tunegrad that is wrong."""
    return said != "" and not said.startswith("judged")


def differs(case: Case, door: str) -> str:
    """How a program's results through a door differ from PyTorch's, in words; '' where they do not.

    Doors are ``compile``, twice on other values, ``frozen``, that with ``freezing``, ``train``, which
    compares gradients as well, and ``from_torch``. An error is a difference.
    "judged: ..." is a difference that PyTorch has with itself: where results of its operations are
    rounded otherwise, where these read copies and not views, where it runs its own decompositions
    or computes in float64, or where it trains by its own backend; or an error that it raises for
    that backend, too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            doors = {
                "compile": _compile, "frozen": partial(_compile, freezing=True), "train": _train,
                "from_torch": _from_torch,
            }  # fmt: skip
            return doors[door](case)
        except Exception as error:  # noqa: BLE001 - any error is a finding
            said = f"{type(error).__name__}: {error}"
            return f"judged: {said}" if _is_refused(case, door) else said


def _compile(case: Case, freezing: bool = False) -> str:
    torch._dynamo.reset()
    mine = Drawn(case.program)
    options = {"store": False, "threads": 1, "freezing": freezing}
    f = torch.compile(mine, backend="tunegrad", options=options)
    for turn in range(2):
        ours = _inputs(case, turn)
        with torch.inference_mode():
            got = f(*ours)
        want = _eager(case, turn)
        if said := _held(case, turn, [*got, *ours, *mine.buffers()], want):
            return said
        for place, (a, b) in enumerate(zip(got, want, strict=False)):
            if _strides(a) != _strides(b) and _is_dense(b):
                if _strides(a) == _strides(_traced(case)[place]):
                    continue
                return (
                    f"output {place}: strides {a.stride()} for {b.stride()}, shape {tuple(b.shape)}"
                )
    return ""


def _train(case: Case) -> str:
    torch._dynamo.reset()
    mine = Drawn(case.program)
    f = torch.compile(mine, backend="tunegrad", options={"store": False, "threads": 1})
    for turn in range(2):
        got = _with_gradients(mine, f, case, turn)
        if said := _held(case, turn, got, _trained(case, turn), _trained):
            return said
    return ""


def _trained(
    case: Case, turn: int, copies: bool = False, mode: TorchDispatchMode | None = None
) -> list[Tensor]:
    """PyTorch's outputs and gradients."""
    module = Drawn(case.program, copies)
    with mode or contextlib.nullcontext():
        return _with_gradients(module, module, case, turn)


def _with_gradients(module: nn.Module, f: Any, case: Case, turn: int) -> list[Tensor]:
    """Outputs, and the gradients of inputs and parameters where waves flow to the outputs."""
    inputs = [t.requires_grad_(t.dtype.is_floating_point) for t in _inputs(case, turn)]
    outputs = f(*inputs)
    ends = [x for x in outputs if x.requires_grad]
    wrt = [t for t in (*inputs, *module.parameters()) if t.requires_grad]
    if not ends or not wrt:
        return [x.detach() for x in outputs]
    waves = [torch.arange(x.numel()).to(x.dtype).cos().reshape(x.shape) for x in ends]
    found = torch.autograd.grad(ends, wrt, waves, allow_unused=True)
    zeros = (torch.zeros_like(t) if g is None else g for t, g in zip(wrt, found, strict=True))
    return [*(x.detach() for x in outputs), *zeros]


def _inputs(case: Case, turn: int) -> list[Tensor]:
    """The inputs of a call: other values in the second one."""
    found = _copied(case)
    for t in found:
        if turn and t.dtype.is_floating_point:
            t.mul_(0.75)
    return found


def _eager(
    case: Case,
    turn: int,
    copies: bool = False,
    mode: TorchDispatchMode | None = None,
    wide: bool = False,
) -> list[Tensor]:
    """PyTorch's outputs, inputs and buffers after so many calls and one; ``wide``: in float64, where
    it norms a channel that is one number everywhere to 0, and not to 1.5e-5.
    """
    module = Drawn(case.program, copies)
    if wide:
        module.double()
    for t in range(turn + 1):
        inputs = _inputs(case, t)
        if wide:
            inputs = [x.double() if x.dtype.is_floating_point else x for x in inputs]
        with torch.no_grad(), mode or contextlib.nullcontext():
            if isinstance(mode, Rounded):
                inputs = [mode.rounded(x) for x in inputs]
            found = module(*inputs)
    return [*found, *inputs, *module.buffers()]


# ---- other answers of PyTorch


_EXACT = frozenset(
    ["_unsafe_index", "abs", "amax", "amin", "arange", "as_strided_copy", "cat", "clamp", "clamp_max",
     "clamp_min", "clone", "constant_pad_nd", "copy", "cummax", "cummin", "embedding", "empty",
     "eye", "flip", "full", "full_like", "gather", "index", "index_select", "masked_fill",
     "masked_select", "max", "max_pool2d_with_indices", "max_pool3d_with_indices", "maximum",
     "median", "min", "minimum", "neg", "new_full", "new_zeros", "ones", "ones_like", "relu",
     "repeat", "roll", "scalar_tensor", "scatter", "select_scatter", "sign", "slice_scatter", "sort",
     "stack", "take", "topk", "tril", "triu", "where", "zeros", "zeros_like"]
)  # fmt: skip
"""Operations of PyTorch that round nothing; a gradient asks which element is the greatest."""


class Rounded(TorchDispatchMode):
    """Each result is off by up to eight units in the last place, as if rounded otherwise."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.drawn = torch.Generator().manual_seed(seed)

    def rounded(self, x: Tensor) -> Tensor:
        unit = {torch.float32: 2.0**-20, torch.float64: 2.0**-49}.get(x.dtype)
        if unit is None:
            return x
        return x.mul_(1 + unit * (2 * torch.rand(x.shape, generator=self.drawn, dtype=x.dtype) - 1))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        exact = func._schema.name.removeprefix("aten::") in _EXACT
        if not exact and not any(r.alias_info for r in func._schema.returns):  # or a view, a write
            for leaf in tree_leaves(found):
                if isinstance(leaf, Tensor) and leaf.numel():
                    self.rounded(leaf)
        return found


class _Decomposed(TorchDispatchMode):
    """Operations in terms of PyTorch's core ones, where it has such a form."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch._decomp.core_aten_decompositions()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in self.table:
            with self:
                found = self.table[func](*args, **given)
            if found is not NotImplemented:
                return found
        return func(*args, **given)


ROUNDINGS = 32


def _held(
    case: Case, turn: int, got: Sequence[Tensor], want: Sequence[Tensor],
    answer: Callable[..., list[Tensor]] | None = None,
) -> str:  # fmt: skip
    """How results differ; "judged: ..." where they agree with PyTorch rounded otherwise, or with
    what it computes in another way. ``answer``: what gives PyTorch's results.
    """
    answer = answer or _eager

    def said(other: Sequence[Tensor], slack: Sequence[Tensor | float]) -> str:
        for place, (a, b, more) in enumerate(zip(got, other, slack, strict=False)):
            if far := _far(a, b, more, case.extreme):
                return f"call {turn + 1}, value {place}: {far}"
        return ""

    first = said(want, [0.0] * len(got))
    if not first:
        return ""
    moved = [torch.zeros(w.shape, dtype=torch.float64) for w in want]
    for seed in range(ROUNDINGS):
        other = answer(case, turn, mode=Rounded(seed))
        moved = [torch.maximum(m, _gaps(o, w)) for m, o, w in zip(moved, other, want, strict=True)]
        slack = [2 * m for m in moved]
        if not said(want, slack):
            return f"judged: rounded otherwise: {first}"
    others = {"copies": lambda: answer(case, turn, copies=True),
              "decompositions": lambda: answer(case, turn, mode=_Decomposed())}  # fmt: skip
    if answer is _eager:
        others["float64"] = lambda: [
            x.to(w.dtype) for x, w in zip(answer(case, turn, wide=True), want, strict=True)
        ]
    if answer is _trained:
        others["its own backend"] = lambda: _by_own_backend(case, turn)
    for name, other_way in others.items():
        with contextlib.suppress(Exception):  # what a way can not compute is no answer
            if not said(other_way(), slack):
                return f"judged: {name}: {first}"
    return first


def _by_own_backend(case: Case, turn: int) -> list[Tensor]:
    """Outputs and gradients by AOTAutograd and PyTorch's own kernels."""
    torch._dynamo.reset()
    module = Drawn(case.program)
    return _with_gradients(module, torch.compile(module, backend="aot_eager"), case, turn)


def _is_refused(case: Case, door: str) -> bool:
    """Return True where PyTorch's own backend, or its export, raises as well."""
    try:
        if door == "train":
            _by_own_backend(case, 0)
        elif door in ("compile", "frozen"):
            _traced(case)
        else:
            torch.export.export(Drawn(case.program).eval(), tuple(_copied(case)))
    except Exception:  # noqa: BLE001 - whatever PyTorch raises
        return True
    return False


def _traced(case: Case) -> tuple[Tensor, ...]:
    """Outputs of the graph that PyTorch hands to backends, run by PyTorch itself.

    A write in place is an operation with a result of its own there, and may have other strides.
    """
    torch._dynamo.reset()
    with torch.inference_mode():
        return tuple(torch.compile(Drawn(case.program), backend="aot_eager")(*_copied(case)))


def _strides(t: Tensor) -> list[int]:
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else []


def _is_dense(t: Tensor) -> bool:
    span = sum(s * (n - 1) for s, n in zip(t.stride(), t.shape, strict=True)) + 1
    return t.numel() == 0 or span == t.numel()


def _from_torch(case: Case) -> str:
    module = Drawn(case.program).eval()
    loaded = tg.load(tg.from_torch(module, *_copied(case)), store=False, threads=1)
    found = loaded(*(t.numpy() for t in _copied(case)))
    got = [torch.from_numpy(a) for a in (found if isinstance(found, tuple) else (found,))]
    return _held(case, 0, got, _eager(case, 0))


# ---- cutting down


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest case that fails of those that leave out outputs and steps one by one."""
    again = True
    while again:
        again = False
        for smaller in _smaller(case):
            if fails(smaller):
                case, again = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    program = case.program
    if len(program.outputs) > 1:
        for out in program.outputs:
            yield _pruned(case, replace(program, outputs=(out,)))
    for out in range(program.count, program.count + len(program.steps)):
        if (out,) != program.outputs and out < max(program.outputs):
            yield _pruned(case, replace(program, outputs=(out,)))
    if len(program.steps) > 1:
        for i in range(len(program.steps)):
            yield from _without(case, i)


def _pruned(case: Case, program: Program) -> Case:
    """Without steps and inputs that no output needs."""
    needed = set(program.outputs)
    for i in reversed(range(len(program.steps))):
        if program.count + i in needed:
            needed |= set(program.steps[i].inputs)
    inputs = [i for i in range(program.count) if i in needed]
    steps = [i for i in range(len(program.steps)) if program.count + i in needed]
    place = {old: new for new, old in enumerate([*inputs, *(program.count + i for i in steps)])}
    kept = tuple(
        replace(program.steps[i], inputs=tuple(place[k] for k in program.steps[i].inputs))
        for i in steps
    )
    made = Program(len(inputs), kept, tuple(place[o] for o in program.outputs))
    return replace(case, program=made, inputs=tuple(case.inputs[i] for i in inputs))


def _without(case: Case, step: int) -> Iterator[Case]:
    """The case with the value of a step as one more input."""
    program = case.program
    at = program.count + step
    if (at,) == program.outputs:
        return
    with torch.no_grad():
        (value,) = Drawn(replace(program, outputs=(at,)))(*_copied(case))
    place = {i: i for i in range(program.count)} | {at: program.count}
    steps = []
    for i, s in enumerate(program.steps):
        if i != step:
            steps.append(replace(s, inputs=tuple(place[k] for k in s.inputs)))
            place[program.count + i] = program.count + len(steps)
    made = Program(program.count + 1, tuple(steps), tuple(place[o] for o in program.outputs))
    given = (*case.inputs, value.detach().clone())
    yield _pruned(replace(case, program=made, inputs=given), made)


# ---- what was drawn together


def pairs_of(program: Program) -> Counter[tuple[str, str]]:
    """How often an operation reads what another one made; an input is ``input``."""
    names = ["input"] * program.count + [s.name for s in program.steps]
    return Counter((names[i], s.name) for s in program.steps for i in s.inputs)


def case_of(rng: Rng) -> Case:
    """A case to be run, extreme or not: drawn again where no step fits."""
    while True:
        case = draw(rng, extremes=EXTREMES)
        if case.program.steps:
            return case


def doors(case: Case, place: int) -> tuple[str, ...]:
    """Doors that a case is run through: ``from_torch`` takes every sixth that writes to nothing,
    another sixth trains, and another is frozen.

    It makes the same graph, and exporting takes twice as long as all of ``torch.compile``. Which of
    equal elements ``topk`` picks, and gives its gradient to, is not said by PyTorch.
    """
    if case.writes or place % 6 not in (0, 3):
        return ("frozen",) if place % 6 == 2 else ("compile",)
    if place % 6 and (case.extreme or any(s.name == "topk" for s in case.program.steps)):
        return ("compile",)
    return ("train",) if place % 6 else ("compile", "from_torch")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


_KINDS = {
    "moves": """reshape permute transpose flip roll slice select unsqueeze squeeze expand repeat tile
        contiguous channels_last chunk windows diagonal tril triu pixel_shuffle pad pad_edges""",
    "joins": "cat cat_ones cat_zeros stack",
    "places": "index_select gather scatter_add by_mask embedding grid_sample",
    "reduces": """sum mean amax amin var std logsumexp prod norm softmax log_softmax cumsum
        logcumsumexp sort topk argmax any normalize""",
    "products": "matmul self_matmul attention masked_attention linear encoder_layer",
    "windows": """max_pool2d avg_pool2d adaptive_avg_pool2d global_pool adaptive_max_pool2d
        resize_nearest resize_bilinear resize_smooth conv2d conv1d conv_transpose2d""",
    "norms": "layer_norm rms_norm group_norm batch_norm2d instance_norm2d",
    "types": "to_double to_half to_bfloat16 to_int to_byte to_long int_math on_integers float",
    "writes": "set_first add_to_part write_view relu_ set_mask write_input buffer",
}
"""Operations by what they do; all others are ``numbers``: each element from those at its place."""


def _kind(name: str) -> str:
    if name == "input":
        return name
    return next((kind for kind, names in _KINDS.items() if name in names.split()), "numbers")


def _table(pairs: Counter[tuple[str, str]]) -> Iterator[str]:
    """How often an operation of each kind read what one of each kind made; then what was missed.

    Two operations in a row may never fit: a product has no use for integers.
    """
    kinds, between = ("input", "numbers", *_KINDS), Counter[tuple[str, str]]()
    for (a, b), times in pairs.items():
        between[_kind(a), _kind(b)] += times
    yield "reads     " + "".join(f"{k:>9}" for k in kinds[1:])
    for a in kinds:
        yield f"{a:10}" + "".join(f"{between[a, b]:9}" for b in kinds[1:])
    after, before = ({p[side] for p in pairs} for side in (0, 1))
    yield f"made for nobody: {' '.join(n for n in OPERATIONS if n not in after) or 'none'}"
    yield f"never drawn: {' '.join(n for n in OPERATIONS if n not in before) or 'none'}"
    yield f"{len(pairs)} of {(len(OPERATIONS) + 1) * len(OPERATIONS)} pairs of operations drawn"


def main(arguments: Sequence[str]) -> None:
    """Draw many modules, report every one that differs, and what was drawn together."""
    count = int(arguments[0]) if arguments else 60
    seed = int(arguments[1]) if len(arguments) > 1 else fuzzing.fix_seed()
    pairs: Counter[tuple[str, str]] = Counter()
    found: Counter[str] = Counter()
    for i in range(count):
        case = case_of(random.Random(f"{seed} torch {i}"))
        pairs += pairs_of(case.program)
        asked = tuple(arguments[2:]) if not case.writes else ()
        for door in asked or doors(case, i):
            if said := differs(case, door):
                bad = wrong(said)
                small = shrunk(case, lambda c, d=door, bad=bad: _is(differs(c, d), bad))
                steps = " ".join(s.name for s in small.program.steps)
                found[f"{'wrong' if bad else 'judged'}: {steps}"] += 1
                _say(f"--- case {i} through {door}: {said}\n{small}\n{differs(small, door)}")
    for line in _table(pairs):
        _say(line)
    _say(f"seed {seed}: {count} modules, {sum(pairs.values())} reads; {dict(found)}")


def _is(said: str, bad: bool) -> bool:
    return said != "" and wrong(said) == bad


if __name__ == "__main__":
    main(sys.argv[1:])
