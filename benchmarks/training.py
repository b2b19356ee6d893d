"""Steps of training next to PyTorch eager, channels-last and Inductor, in turns.

    python -m benchmarks.training                         all models
    python -m benchmarks.training resnet18 --no-inductor  one, without the compiler's minutes
    python -m benchmarks.training resnet18 --launches     ours by kernel, next to what it needs
    python -m benchmarks.training resnet18 --kernels      gradients of convolutions beside oneDNN's
    python -m benchmarks.training --loop                  PyTorch's own loop through torch.compile
    python -m benchmarks.training --loop --forms fused    with one form of the optimiser: minutes
    python -m benchmarks.training --cpu                   one thread, CPU time: for a busy machine
    python -m benchmarks.training --losses 100            losses, weights and memory beside eager's
    python -m benchmarks.training resnet18 --gradients 3  of a first step, beside f64: three batches
    python -m benchmarks.training resnet18 --losses 40 --series 8     beside f64, by step
    python -m benchmarks.training mlp --tune 5m --store s.db    tuned, too, into that store

A step is forward, loss, backward and SGD with momentum. A model is one function of ``F``, which is
PyTorch's ``torch.nn.functional`` or ours, so both compute the same from equal parameters, and their
losses are compared over some steps. Batch norm has the batch's own statistics on both sides.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

import tunegrad as tg
from benchmarks.contestants import CallContestant
from benchmarks.interleave import Pace, interleave
from tunegrad.config import Numerics

__all__ = ["MODELS", "Model", "main"]

Array = npt.NDArray[Any]

_RATE, _MOMENTUM = 0.01, 0.9
_PACE = Pace(min_rounds=5, max_rounds=9, min_s=0.0, max_s=20.0, turn_s=0.05, tolerance=0.05)


# ---- models


@dataclass(slots=True)
class Parameters:
    """Parameters by name: drawn when a model asks for one the first time, so that a model's code
    says each shape once. ``of`` makes a tensor of a drawn array.
    """

    of: Callable[[Array], Any]
    values: dict[str, Any] = field(default_factory=dict)

    def __call__(self, name: str, *shape: int, fill: float | None = None) -> Any:
        """The parameter of that name; ``fill`` is its value, else it is drawn for its fan-in."""
        if name not in self.values:
            rng = np.random.default_rng(len(self.values))
            fan = math.prod(shape[1:]) or 1
            drawn = rng.normal(0, fan**-0.5, shape) if fill is None else np.full(shape, fill)
            self.values[name] = self.of(drawn.astype(np.float32))
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Backend:
    """``F`` and what the two libraries spell otherwise: batch norm in training, joined tensors."""

    F: Any
    batch_norm: Callable[[Any, Any, Any], Any]
    cat: Callable[[list[Any], int], Any]


Loss = Callable[[Backend, Callable[..., Any], Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A loss of (backend, parameters, x, y), and what draws x and y."""

    loss: Loss
    batch: Callable[[np.random.Generator], tuple[Array, Array]]


def _torch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True)


def _our_norm(x: Any, weight: Any, bias: Any) -> Any:
    mean = x.mean((0, 2, 3))
    about = x - mean.reshape(1, -1, 1, 1)
    var = (about * about).mean((0, 2, 3))
    return x.batch_norm(weight, bias, mean, var)


TORCH = Backend(torch.nn.functional, _torch_norm, torch.cat)
OURS = Backend(tg.nn.functional, _our_norm, tg.cat)


def _linear(b: Backend, p: Any, name: str, x: Any, out: int) -> Any:
    return b.F.linear(x, p(f"{name}.weight", out, x.shape[-1]), p(f"{name}.bias", out, fill=0))


def _conv(b: Backend, p: Any, name: str, x: Any, out: int, size: int, stride: int = 1) -> Any:
    weight = p(f"{name}.weight", out, x.shape[1], size, size)
    return b.F.conv2d(x, weight, stride=stride, padding=size // 2)


def _conv_norm(b: Backend, p: Any, name: str, x: Any, out: int, size: int, stride: int = 1) -> Any:
    y = _conv(b, p, name, x, out, size, stride)
    weight, bias = p(f"{name}.norm.weight", out, fill=1), p(f"{name}.norm.bias", out, fill=0)
    return b.batch_norm(y, weight, bias)


def _mlp(b: Backend, p: Any, x: Any, y: Any, wide: int = 512) -> Any:
    for i, out in enumerate((wide, wide)):
        x = b.F.relu(_linear(b, p, f"l{i}", x, out))
    return b.F.cross_entropy(_linear(b, p, "head", x, 10), y)


def _small(b: Backend, p: Any, x: Any, y: Any) -> Any:
    return _mlp(b, p, x, y, 256)


def _resnet(b: Backend, p: Any, x: Any, y: Any, depths: Sequence[int], wide: int, stem: int) -> Any:
    """``wide`` 1: basic blocks; 4: bottlenecks. ``stem`` 7: of stride 2 and pooled, as for large
    images; 3: of stride 1, as for images of 32 pixels.
    """
    x = b.F.relu(_conv_norm(b, p, "conv1", x, 64, stem, 2 if stem == 7 else 1))
    if stem == 7:
        x = b.F.max_pool2d(x, 3, 2, 1)
    for i, depth in enumerate(depths):
        planes = 64 << i
        for j in range(depth):
            at, stride, out = f"layer{i + 1}.{j}", 2 if i and not j else 1, planes * wide
            if wide == 1:
                z = b.F.relu(_conv_norm(b, p, f"{at}.conv1", x, planes, 3, stride))
                z = _conv_norm(b, p, f"{at}.conv2", z, planes, 3)
            else:
                z = b.F.relu(_conv_norm(b, p, f"{at}.conv1", x, planes, 1))
                z = b.F.relu(_conv_norm(b, p, f"{at}.conv2", z, planes, 3, stride))
                z = _conv_norm(b, p, f"{at}.conv3", z, out, 1)
            if stride > 1 or x.shape[1] != out:
                x = _conv_norm(b, p, f"{at}.skip", x, out, 1, stride)
            x = b.F.relu(z + x)
    return b.F.cross_entropy(_linear(b, p, "head", x.mean((2, 3)), 1000), y)


def _resnet18(b: Backend, p: Any, x: Any, y: Any) -> Any:
    return _resnet(b, p, x, y, (2, 2, 2, 2), 1, 7)


def _cifar(b: Backend, p: Any, x: Any, y: Any) -> Any:
    return _resnet(b, p, x, y, (2, 2, 2, 2), 1, 3)


def _resnet50(b: Backend, p: Any, x: Any, y: Any) -> Any:
    return _resnet(b, p, x, y, (3, 4, 6, 3), 4, 7)


def _norm(b: Backend, p: Any, name: str, x: Any) -> Any:
    wide = x.shape[-1]
    weight, bias = p(f"{name}.weight", wide, fill=1), p(f"{name}.bias", wide, fill=0)
    return b.F.layer_norm(x, (wide,), weight, bias)


def _attention(b: Backend, p: Any, name: str, x: Any, heads: int, causal: bool) -> Any:
    n, s, wide = x.shape
    apart = (n, s, heads, wide // heads)
    q, k, v = (
        _linear(b, p, f"{name}.{part}", x, wide).reshape(*apart).permute(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )
    z = b.F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return _linear(b, p, f"{name}.out", z.permute(0, 2, 1, 3).reshape(n, s, wide), wide)


def _bert(b: Backend, p: Any, x: Any, y: Any) -> Any:
    for i in range(2):
        x = _norm(b, p, f"{i}.norm1", x + _attention(b, p, f"{i}", x, 4, causal=False))
        z = b.F.gelu(_linear(b, p, f"{i}.up", x, 1024))
        x = _norm(b, p, f"{i}.norm2", x + _linear(b, p, f"{i}.down", z, 256))
    return b.F.cross_entropy(_linear(b, p, "head", x.mean(1), 10), y)


def _gpt(b: Backend, p: Any, x: Any, y: Any, layers: int) -> Any:
    x = b.F.embedding(x, p("tokens", 256, 256)) + p("places", 128, 256)
    for i in range(layers):
        z = _norm(b, p, f"{i}.norm1", x)
        x = x + _attention(b, p, f"{i}", z, 4, causal=True)
        z = b.F.gelu(_linear(b, p, f"{i}.up", _norm(b, p, f"{i}.norm2", x), 1024))
        x = x + _linear(b, p, f"{i}.down", z, 256)
    logits = _linear(b, p, "head", _norm(b, p, "norm", x), 256)
    return b.F.cross_entropy(logits.reshape(-1, 256), y)


def _gpt2(b: Backend, p: Any, x: Any, y: Any) -> Any:
    return _gpt(b, p, x, y, 2)


def _gpt6(b: Backend, p: Any, x: Any, y: Any) -> Any:
    return _gpt(b, p, x, y, 6)


def _twice(b: Backend, p: Any, name: str, x: Any, out: int) -> Any:
    for i in range(2):
        x = b.F.relu(_conv_norm(b, p, f"{name}.{i}", x, out, 3))
    return x


def _unet(b: Backend, p: Any, x: Any, y: Any) -> Any:
    kept, sizes = [], (16, 32, 64)
    for i, out in enumerate(sizes):
        x = _twice(b, p, f"down{i}", x, out)
        kept.append(x)
        x = b.F.max_pool2d(x, 2)
    x = _twice(b, p, "bottom", x, 128)
    for i, out in reversed(list(enumerate(sizes))):
        x = b.F.conv_transpose2d(x, p(f"up{i}.weight", x.shape[1], out, 2, 2), stride=2)
        x = _twice(b, p, f"join{i}", b.cat([kept[i], x], 1), out)
    return b.F.cross_entropy(_conv(b, p, "head", x, 3, 1), y)


def _rows(count: int, *shape: int, kinds: int = 10) -> Callable[..., tuple[Array, Array]]:
    return lambda rng: (
        rng.standard_normal((count, *shape), np.float32), rng.integers(0, kinds, count),
    )  # fmt: skip


MODELS = {
    "mlp_small": Model(_small, _rows(64, 784)),
    "mlp": Model(_mlp, _rows(128, 784)),
    "resnet18": Model(_resnet18, _rows(32, 3, 32, 32, kinds=1000)),
    "resnet18_3x3": Model(_cifar, _rows(32, 3, 32, 32, kinds=1000)),
    "resnet18_224": Model(_resnet18, _rows(8, 3, 224, 224, kinds=1000)),
    "resnet50": Model(_resnet50, _rows(8, 3, 64, 64, kinds=1000)),
    "resnet50_224": Model(_resnet50, _rows(8, 3, 224, 224, kinds=1000)),
    "bert": Model(_bert, _rows(8, 128, 256)),
    "gpt2": Model(
        _gpt2, lambda rng: (rng.integers(0, 256, (8, 128)), rng.integers(0, 256, 1024))
    ),
    "gpt6": Model(
        _gpt6, lambda rng: (rng.integers(0, 256, (8, 128)), rng.integers(0, 256, 1024))
    ),
    "unet": Model(
        _unet,
        lambda rng: (
            rng.standard_normal((8, 3, 64, 64), np.float32), rng.integers(0, 3, (8, 64, 64)),
        ),
    ),
}  # fmt: skip
"""GPT is named by its layers; ResNet-50 is not run unless it is asked for."""

_DEFAULT = tuple(name for name in MODELS if not name.startswith("resnet50"))


def drawn(model: Model, seed: int = 0) -> tuple[dict[str, Array], Array, Array]:
    """Parameters, and a batch."""
    x, y = model.batch(np.random.default_rng(seed))
    p = Parameters(torch.from_numpy)
    with torch.no_grad():
        model.loss(TORCH, p, torch.from_numpy(x), torch.from_numpy(y))
    return {name: v.numpy() for name, v in p.values.items()}, x, y


# ---- steps


class Whole(tg.nn.Module):
    """A model and its loss as a module of (x, y), whose parameters are the drawn ones. Profiles and
    races of whole steps draw such, too: wider ones leave denormals behind a softmax.
    """

    def __init__(self, model: Model, parameters: dict[str, Array]) -> None:
        self.of = model
        for name, value in parameters.items():
            spread = float(value.std())
            mean = 0.0 if spread else float(value.mean())
            setattr(self, name, tg.nn.Parameter(*value.shape, mean=mean, spread=spread))

    def forward(self, x: Any, y: Any) -> Any:
        """The loss."""
        return self.of.loss(OURS, lambda name, *_, **__: getattr(self, name).tensor, x, y)


def our_step(
    model: Model, parameters: dict[str, Array], numerics: Numerics = "contract",
    store: str | Literal[False] = False,
) -> tg.TrainStep:  # fmt: skip
    """The step, by the winners of ``store``."""
    return tg.TrainStep(
        Whole(model, parameters), None, tg.nn.optim.SGD(_RATE, momentum=_MOMENTUM), inputs=2,
        weights=parameters, store=store, threads=torch.get_num_threads(), numerics=numerics,
    )  # fmt: skip


def theirs(
    model: Model,
    parameters: dict[str, Array],
    x: Array,
    y: Array,
    form: str,
    held: dict[str, torch.Tensor] | None = None,
) -> Callable[..., float]:
    """The same in PyTorch: ``form`` is eager, channels_last or inductor. A step of another batch
    where one is given; ``held`` gets the parameters.
    """

    def laid(v: torch.Tensor) -> Any:
        last = form == "channels_last" and v.ndim == 4
        return v.to(memory_format=torch.channels_last) if last else v

    values = {
        name: laid(torch.from_numpy(v.copy())).requires_grad_() for name, v in parameters.items()
    }
    if held is not None:
        held.update(values)
    first = laid(torch.from_numpy(x)), torch.from_numpy(y)
    optimizer = torch.optim.SGD(values.values(), _RATE, _MOMENTUM, fused=True)

    def loss(images: torch.Tensor, kinds: torch.Tensor) -> Any:
        return model.loss(TORCH, lambda name, *_, **__: values[name], images, kinds)

    forward = torch.compile(loss) if form == "inductor" else loss

    def call(*batch: Array) -> float:
        optimizer.zero_grad(set_to_none=True)
        value = forward(*([laid(torch.from_numpy(v)) for v in batch] or first))
        value.backward()
        optimizer.step()
        return float(value.detach())

    return call


def allocated_bytes(call: Callable[[], object]) -> int:
    """The most that PyTorch's allocator holds during a call, above what it held before."""
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    said = [e["args"] for e in events if e.get("name") == "[memory]"]
    if not said:
        return 0
    before = said[0]["Total Allocated"] - said[0]["Bytes"]
    return int(max(e["Total Allocated"] for e in said) - before)


def rows_of(name: str, said: argparse.Namespace) -> Iterator[str]:
    """The lines of one model."""
    model = MODELS[name]
    parameters, x, y = drawn(model)
    start = time.perf_counter()
    step = our_step(model, parameters, said.numerics)
    program = step.program(x, y)
    seconds = time.perf_counter() - start
    plan = program._plan  # noqa: SLF001 - its launches are counted
    yield (
        f"{name}: {len(plan.launches)} launches of {len(plan.kernels())} kernels, made in "
        f"{seconds:.1f} s"
    )
    calls: dict[str, Callable[[], Any]] = {"ours": lambda: step(x, y)}
    if said.tune:
        tg.tune(
            step.step_model(x, y), store=said.store, budget_s=said.tune, threads=said.threads,
            numerics=said.numerics,
        )  # fmt: skip
    if said.store:
        tuned = our_step(model, parameters, said.numerics, said.store)
        calls["tuned"] = lambda: tuned(x, y)
    for form in ("eager", "channels_last", *(() if said.no_inductor else ("inductor",))):
        calls[form] = theirs(model, parameters, x, y, form)
    wanted: list[float] = []
    contestants = []
    clock = time.process_time if said.cpu else time.perf_counter
    for peer, call in calls.items():
        start = time.perf_counter()
        try:
            losses = [call() for _ in range(5)]
        except Exception as error:  # noqa: BLE001 - another library's; the row says it
            yield f"  {peer}: does not run: {' '.join(str(error).split())[:200]}"
            continue
        wanted = wanted or losses
        apart = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))
        first = time.perf_counter() - start
        yield f"  {peer:14} five steps in {first:6.2f} s, losses within {apart:.1e} of ours"
        contestants.append(CallContestant(peer, "", call, _nothing, clock=clock))
    timings = interleave(contestants, _PACE)
    best = min(t.seconds for t in timings if t.peer not in ("ours", "tuned"))
    for t in timings:
        yield (
            f"  {t.peer:14} {1e3 * t.seconds:9.3f} ms +- {100 * t.interval:4.1f} %   "
            f"{best / t.seconds:5.2f} of PyTorch's best a second"
        )
    held = sum(2 * v.nbytes for v in parameters.values())
    yield (
        f"  memory beside a state of {held / 1e6:.1f} MB: ours "
        f"{program._runner.arena_bytes / 1e6:.2f} "  # noqa: SLF001
        f"({program.memory_bytes / 1e6:.1f} with scratch and constants), "
        f"PyTorch eager {allocated_bytes(calls['eager']) / 1e6:.2f}"
    )


def _nothing() -> npt.NDArray[np.float32]:
    """The result of a contestant whose results are compared elsewhere."""
    return np.zeros(1, np.float32)


# ---- losses, weights and memory

_WEIGHTS_AFTER = 10
_OWN_BOUND = 1e-3


@dataclass(frozen=True, slots=True)
class Course:
    """Losses of steps, and the weights after some of them."""

    losses: list[float]
    weights: dict[int, dict[str, Array]]

    @staticmethod
    def of(
        batches: Sequence[tuple[Array, Array]], step: Callable[..., Any],
        weights: Callable[[], dict[str, Array]],
    ) -> Course:  # fmt: skip
        """Of a step on each batch."""
        losses, kept = [], {}
        for count, batch in enumerate(batches, 1):
            losses.append(float(step(*batch)))
            if count in (_WEIGHTS_AFTER, len(batches)):
                kept[count] = weights()
        return Course(losses, kept)

    def losses_from(self, other: Course) -> list[float]:
        """Relative differences, step by step."""
        pairs = zip(self.losses, other.losses, strict=True)
        return [abs(a - b) / abs(b) for a, b in pairs]

    def weights_from(self, other: Course, steps: int) -> tuple[float, float]:
        """The largest difference of a weight after so many steps, and the root mean square of all
        over that of the weights.
        """
        one, two = self.weights[steps], other.weights[steps]
        off = [one[name] - two[name] for name in two]
        squares = sum(float(np.square(d, dtype=np.float64).sum()) for d in off)
        whole = sum(float(np.square(v, dtype=np.float64).sum()) for v in two.values())
        return max(float(np.abs(d).max()) for d in off), math.sqrt(squares / whole)


def losses_rows(name: str, steps: int, numerics: Numerics) -> Iterator[str]:
    """Steps over a new batch each: ours beside PyTorch eager's, of one thread, and its own of two
    threads so far beside that; and the bytes that a step takes beside its state.
    """
    model = MODELS[name]
    parameters, x, y = drawn(model)
    batches = [model.batch(np.random.default_rng(1 + i)) for i in range(steps)]

    def eager(threads: int) -> Course:
        torch.set_num_threads(threads)
        held: dict[str, torch.Tensor] = {}
        step = theirs(model, parameters, x, y, "eager", held)
        return Course.of(
            batches, step, lambda: {n: v.detach().numpy().copy() for n, v in held.items()}
        )

    wanted = eager(1)
    yield f"{name}, {steps} steps, loss {wanted.losses[0]:.4g} to {wanted.losses[-1]:.4g}"
    torch.set_num_threads(1)
    step = our_step(model, parameters, numerics)
    ours = Course.of(batches, step, step.weights)
    other = eager(2)
    # Of two runs that drift apart the losses are equal again and again.
    own = list(accumulate(other.losses_from(wanted), max))
    for peer, found in (("ours", ours), ("PyTorch of two threads", other)):
        off = found.losses_from(wanted)
        over = sum(d > max(_OWN_BOUND, 2 * e) for d, e in zip(off, own, strict=True))
        weights = "; ".join(
            "{:.1e}, {:.1e} of their size after {}".format(*found.weights_from(wanted, n), n)
            for n in wanted.weights
        )
        yield (
            f"  {peer:22} losses within {max(off):.1e}, {over} above 1e-3 and twice PyTorch's "
            f"own; weights {weights}"
        )
    held = step.program(x, y)._runner.arena_bytes  # noqa: SLF001
    torch.set_num_threads(1)
    call = theirs(model, parameters, x, y, "eager")
    call()  # which makes the momentum
    eagers = allocated_bytes(call)
    yield f"  bytes beside the state: ours {held}, PyTorch eager {eagers}: {held / eagers:.3f}"


# ---- gradients beside f64

_PEERS: dict[str, tuple[int, str]] = {
    "one thread": (1, "eager"), "two threads": (2, "eager"), "channels-last": (1, "channels_last"),
}  # fmt: skip


def gradient_rows(name: str, batches: int, numerics: Numerics) -> Iterator[str]:
    """Each gradient of a first step: the distance from that in f64, ours and PyTorch's, as root
    mean squares over the gradient's. The median of some batches.
    """
    model = MODELS[name]
    parameters, x, _ = drawn(model)
    doubled = {n: v.astype(np.float64) for n, v in parameters.items()}
    off: dict[str, dict[str, list[float]]] = {n: defaultdict(list) for n in parameters}
    torch.set_num_threads(1)
    step = our_step(model, parameters, numerics)
    first = step.state_dict()
    for i in range(batches):
        x, y = model.batch(np.random.default_rng(1 + i))
        exact = _slopes(model, doubled, _double(x), y, "eager")
        found = {}
        for peer, (threads, form) in _PEERS.items():
            torch.set_num_threads(threads)
            found[peer] = _slopes(model, parameters, x, y, form)
        step.load_state_dict(first)
        step(x, y)  # after which the momentum is the gradient
        state = step.state_dict()
        found["ours"] = {n: state[f"optimizer.momentum.{n}"] for n in parameters}
        for peer, slopes in found.items():
            for n, g in exact.items():
                size = float(np.linalg.norm(g)) or 1.0
                off[n][peer].append(float(np.linalg.norm(slopes[n] - g)) / size)
    yield f"{name}, {len(off)} gradients of a first step, {batches} batches; distances from f64"
    yield f"  {'':24} {'ours':>14} " + " ".join(f"{peer:>14}" for peer in _PEERS)
    ratios: dict[str, list[float]] = defaultdict(list)
    for n, all_of in off.items():
        middle = {peer: statistics.median(v) for peer, v in all_of.items()}
        yield f"  {n:24} {middle['ours']:14.1e} " + " ".join(f"{middle[p]:14.1e}" for p in _PEERS)
        for peer in ("ours", *_PEERS):
            ratios[peer].append(middle[peer] / max(middle["one thread"], 1e-30))
    for peer, found_ in ratios.items():
        mean = math.exp(statistics.mean(math.log(max(r, 1e-30)) for r in found_))
        yield (
            f"  {peer:14} beside one thread: geometric mean {mean:.2f}, {min(found_):.2f} to "
            f"{max(found_):.2f}; above it {sum(r > 1 for r in found_)} of {len(found_)}"
        )


_SHOWN = (1, 2, 3, 5, 10, 15, 20, 30, 40, 60, 100)
"""Steps whose distances from f64 are printed."""


def exact_rows(name: str, steps: int, series: int) -> Iterator[str]:
    """Losses of some series of batches beside those of PyTorch in f64, from equal weights: the
    median of their relative distances at a step, and the largest.
    """
    model = MODELS[name]
    parameters, x, y = drawn(model)
    torch.set_num_threads(1)
    numerics: tuple[Numerics, ...] = ("contract", "strict")
    own = {str(n): our_step(model, parameters, n) for n in numerics}
    first = {n: step.state_dict() for n, step in own.items()}
    off: dict[str, list[list[float]]] = {n: [] for n in (*_PEERS, *own)}
    for i in range(series):
        batches = [model.batch(np.random.default_rng(1000 * i + 1 + k)) for k in range(steps)]
        doubled = {n: v.astype(np.float64) for n, v in parameters.items()}
        exact = theirs(model, doubled, _double(x), y, "eager")
        wanted = [exact(_double(images), kinds) for images, kinds in batches]
        calls: dict[str, Any] = {**own}
        for n, step in own.items():
            step.load_state_dict(first[n])
        for n, (_, form) in _PEERS.items():
            calls[n] = theirs(model, parameters, x, y, form)
        for n, call in calls.items():
            torch.set_num_threads(_PEERS.get(n, (1, ""))[0])
            pairs = [(float(call(*batch)), w) for batch, w in zip(batches, wanted, strict=True)]
            off[n].append([abs(a - b) / abs(b) for a, b in pairs])
    yield f"{name}, {series} series: losses from f64, the median and the largest"
    yield f"  {'step':>4} " + " ".join(f"{n:>19}" for n in off)
    for k in (k for k in _SHOWN if k <= steps):
        each = [[found[k - 1] for found in every] for every in off.values()]
        yield f"  {k:4} " + " ".join(f"{statistics.median(e):9.1e} {max(e):9.1e}" for e in each)


def _double(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype == np.float32 else x


def _slopes(
    model: Model, parameters: dict[str, Array], x: Array, y: Array, form: str
) -> dict[str, Array]:
    """PyTorch's gradients."""
    held: dict[str, torch.Tensor] = {}
    theirs(model, parameters, x, y, form, held)()
    return {n: v.grad.detach().numpy() for n, v in held.items() if v.grad is not None}


# ---- PyTorch's loop


_FORMS = ("fused", "foreach", "step")


class _Net(torch.nn.Module):  # type: ignore[misc]
    """A model as a module of PyTorch, which gives the loss."""

    def __init__(self, model: Model, parameters: dict[str, Array]) -> None:
        super().__init__()
        self.model = model
        for name, v in parameters.items():
            places = torch.channels_last if v.ndim == 4 else torch.contiguous_format
            given = torch.from_numpy(v.copy()).to(memory_format=places)
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(given))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """The loss of a batch."""
        return self.model.loss(
            TORCH, lambda name, *_, **__: getattr(self, name.replace(".", "_")), x, y
        )


def loop(
    model: Model, parameters: dict[str, Array], x: Array, y: Array, way: str, form: str
) -> Callable[[], float]:
    """A step of PyTorch's loop, which gives the loss. ``way``: eager, inductor or tunegrad;
    ``form``: fused, foreach, or step, where the optimiser's step is compiled the same way.
    """
    module = _Net(model, parameters)
    images, kinds = torch.from_numpy(x), torch.from_numpy(y)
    if images.ndim == 4:
        images = images.to(memory_format=torch.channels_last)
    fused = form == "fused"
    optimizer = torch.optim.SGD(
        module.parameters(), _RATE, _MOMENTUM, fused=fused, foreach=not fused
    )
    threads = {"threads": torch.get_num_threads()} if way == "tunegrad" else None
    compiled = partial(torch.compile, backend=way, options=threads)
    forward: Any = module if way == "eager" else compiled(module)
    update = compiled(optimizer.step) if form == "step" else optimizer.step

    def call() -> float:
        optimizer.zero_grad()
        loss = forward(images, kinds)
        loss.backward()
        update()
        return float(loss.detach())

    return call


def loop_rows(name: str, said: argparse.Namespace) -> Iterator[str]:
    """PyTorch's loop by each way, with each form of the optimiser; ratios of paired turns."""
    model = MODELS[name]
    parameters, x, y = drawn(model)
    clock = time.process_time if said.cpu else time.perf_counter
    wanted: list[float] = []
    contestants = []
    yield f"{name}, {torch.get_num_threads()} threads"
    ways = [w for w in ("eager", "inductor", "tunegrad") if w != "inductor" or not said.no_inductor]
    for way in ways:
        for form in said.forms.split(","):
            if (way, form) == ("eager", "step"):
                continue
            torch._dynamo.reset()  # noqa: SLF001 - each has its own programs of one class
            start = time.perf_counter()
            call = loop(model, parameters, x, y, way, form)
            losses = [call() for _ in range(5)]
            wanted = wanted or losses
            apart = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))
            yield (
                f"  {way:9} {form:8} five steps in {time.perf_counter() - start:6.2f} s, losses "
                f"within {apart:.1e} of eager's"
            )
            contestants.append(CallContestant(way, form, call, _nothing, clock=clock))
    timings = interleave(contestants, _PACE)
    best = {w: min((t for t in timings if t.peer == w), key=lambda t: t.seconds) for w in ways}
    for t in timings:
        yield (
            f"  {t.peer:9} {t.variant:8} {1e3 * t.seconds:9.3f} ms +- {100 * t.interval:4.1f} %"
            f"   {best['tunegrad'].seconds / t.seconds:5.2f}"
        )
    for way in ways[:-1]:
        us, them = best["tunegrad"], best[way]
        wide = math.hypot(us.interval, them.interval)
        ratio = them.seconds / us.seconds
        yield f"  {ratio:.2f} (+- {100 * wide:.0f} %) of the steps of {way} ({them.variant})"


# ---- gradients of convolutions


@dataclass(frozen=True, slots=True)
class Convolution:
    """Shapes of one convolution of a model: image (N, C, H, W), weight (O, C, KH, KW)."""

    image: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int

    @property
    def padding(self) -> int:
        return self.weight[2] // 2

    @property
    def output(self) -> tuple[int, ...]:
        """Shape of the result."""
        n, _, *sides = self.image
        size = self.weight[2]
        places = (1 + (s + 2 * self.padding - size) // self.stride for s in sides)
        return (n, self.weight[0], *places)

    def __str__(self) -> str:
        size, side = self.weight[2], self.image[2]
        return f"{size}x{size}s{self.stride} {self.weight[1]}->{self.weight[0]} {side}"


def convolutions(name: str) -> list[Convolution]:
    """The distinct convolutions of a model, in order."""
    found: dict[Convolution, None] = {}

    class Noting:
        """PyTorch's functions, of which conv2d is noted."""

        def __getattr__(self, word: str) -> Any:
            return getattr(torch.nn.functional, word)

        def conv2d(self, x: Any, weight: Any, stride: int, padding: int) -> Any:
            found[Convolution(tuple(x.shape), tuple(weight.shape), stride)] = None
            return torch.nn.functional.conv2d(x, weight, stride=stride, padding=padding)

    model = MODELS[name]
    x, y = model.batch(np.random.default_rng(0))
    with torch.no_grad():
        backend = Backend(Noting(), _torch_norm, torch.cat)
        model.loss(backend, Parameters(torch.from_numpy), torch.from_numpy(x), torch.from_numpy(y))
    return list(found)


def _our_gradient(c: Convolution, which: str, arrays: list[Array]) -> Any:
    """A compiled function of images with channels last, as temporaries of a step are."""

    def of_weight(x: Any, g: Any, w: Any) -> Any:
        first = x.permute(0, 3, 1, 2)

        def product(w: Any) -> Any:
            y = tg.nn.functional.conv2d(first, w, stride=c.stride, padding=c.padding)
            return (y * g.permute(0, 3, 1, 2)).sum()

        return tg.grad(product)(w)

    def of_data(x: Any, g: Any, w: Any) -> Any:
        def product(x: Any) -> Any:
            y = tg.nn.functional.conv2d(x, w, stride=c.stride, padding=c.padding)
            return (y * g.permute(0, 3, 1, 2)).sum()

        return tg.grad(product)(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    step = of_weight if which == "weight" else of_data
    return tg.compile(step, *arrays, store=False, threads=torch.get_num_threads())


def kernel_rows(name: str, cpu: bool) -> Iterator[str]:
    """The gradients of a model's convolutions, and the geometric means of the gain."""
    clock = time.process_time if cpu else time.perf_counter
    gains: dict[str, list[float]] = {"weight": [], "data": []}
    for i, c in enumerate(convolutions(name)):
        rng = np.random.default_rng(i)
        x, g, w = (rng.standard_normal(s, np.float32) for s in (c.image, c.output, c.weight))
        for which in ("weight", "data") if i else ("weight",):  # nothing asks for the image's
            mask = [which == "data", which == "weight", False]
            tensors = [torch.from_numpy(v) for v in (g, x, w)]
            contestants = []
            for form, layout in (
                ("rows", torch.contiguous_format), ("last", torch.channels_last),
            ):  # fmt: skip
                g_, x_, w_ = (v.to(memory_format=layout) for v in tensors)

                def theirs(g: Any = g_, x: Any = x_, w: Any = w_, mask: Any = mask) -> Any:
                    return torch.ops.aten.convolution_backward(
                        g, x, w, None, [c.stride] * 2, [c.padding] * 2, [1, 1],  # noqa: B023
                        False, [0, 0], 1, mask,
                    )  # fmt: skip

                contestants.append(CallContestant("oneDNN", form, theirs, _nothing, clock=clock))
            arrays = [x.transpose(0, 2, 3, 1).copy(), g.transpose(0, 2, 3, 1).copy(), w]
            compiled = _our_gradient(c, which, arrays)
            mine = compiled(*arrays)
            mine = mine.transpose(0, 3, 1, 2) if which == "data" else mine
            wanted = theirs()[which == "weight"].numpy()
            apart = float(np.abs(mine - wanted).max() / np.abs(wanted).max())

            def ours(compiled: Any = compiled, arrays: Any = arrays) -> Any:
                return compiled(*arrays)

            contestants.append(CallContestant("ours", "", ours, _nothing, clock=clock))
            *peers, own = interleave(contestants, _PACE)
            best = min(peers, key=lambda t: t.seconds)
            gains[which].append(best.seconds / own.seconds)
            flops = 2 * math.prod(c.output) * math.prod(c.weight[1:])
            yield (
                f"  {c!s:22} {which:6} ours {1e3 * own.seconds:8.3f} ms "
                f"{flops / own.seconds / 1e9:6.1f} GFLOP/s, oneDNN {best.variant:4} "
                f"{1e3 * best.seconds:8.3f}: {gains[which][-1]:5.2f}   {apart:.0e} apart, "
                f"{len(compiled._plan.launches)} launches"  # noqa: SLF001
            )
    for which, found in gains.items():
        yield f"  geometric mean, {which}: {math.exp(statistics.mean(map(math.log, found))):.2f}"


# ---- kernels of ours


def peaks() -> tuple[float, float]:
    """FLOP/s of a product of matrices and bytes/s of a copy, as PyTorch has them just now."""
    a, b = torch.rand(768, 768), torch.rand(768, 768)
    product = min(_seconds(lambda: torch.mm(a, b)) for _ in range(7))
    x = torch.rand(1 << 22)
    y = torch.empty_like(x)
    copied = min(_seconds(lambda: y.copy_(x)) for _ in range(7))
    return 2 * 768**3 / product, 2 * x.nbytes / copied


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def launch_rows(name: str, samples: int = 5) -> Iterator[str]:
    """Our kernels, the heaviest first: time, share, rates, and the time at both peaks."""
    model = MODELS[name]
    parameters, x, y = drawn(model)
    step = our_step(model, parameters).program(x, y)
    launches = step._plan.launches  # noqa: SLF001
    turns = [step.profile_s(1) for _ in range(samples)]
    times = [min(s for _, s in same) for same in zip(*turns, strict=True)]
    flops_s, bytes_s = peaks()
    total = sum(times)
    by_kernel: dict[str, list[float]] = defaultdict(list)
    kernels = {}
    for launch, seconds in zip(launches, times, strict=True):
        by_kernel[launch.kernel.key].append(seconds)
        kernels[launch.kernel.key] = launch.kernel
    least = 0.0
    lines = []
    for key, found in sorted(by_kernel.items(), key=lambda item: -sum(item[1])):
        k, count = kernels[key], len(found)
        need = max(k.flops / flops_s, k.unique_bytes / bytes_s)
        least += count * need
        each = statistics.median(found)
        lines.append(
            f"{100 * sum(found) / total:5.1f} % {count:3}x {1e3 * each:8.3f} ms, needs "
            f"{1e3 * need:7.3f}  {k.flops / each / 1e9:6.1f} GFLOP/s "
            f"{k.unique_bytes / each / 1e9:6.1f} GB/s  {key[:8]} {k.name}"
        )
    yield (
        f"{name}: {1e3 * total:.1f} ms in {len(launches)} launches of {len(kernels)} kernels; at "
        f"{flops_s / 1e9:.0f} GFLOP/s and {bytes_s / 1e9:.1f} GB/s they need {1e3 * least:.1f} ms"
    )
    yield from lines


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-inductor", action="store_true", help="without torch.compile")
    parser.add_argument("--numerics", choices=("contract", "strict"), default="contract")
    parser.add_argument("--cpu", action="store_true", help="CPU time of one thread, not the wall's")
    parser.add_argument("--kernels", action="store_true", help="gradients of convolutions alone")
    parser.add_argument("--launches", action="store_true", help="our kernels, one by one")
    parser.add_argument(
        "--store", default="", help="tuned steps, too, by the winners of this store"
    )
    parser.add_argument("--tune", default="", help="tune the step for that long first, as 5m")
    parser.add_argument(
        "--losses", type=int, default=0, help="so many steps beside PyTorch's: numbers, no times"
    )
    parser.add_argument(
        "--gradients", type=int, default=0, help="of a first step on so many batches, beside f64"
    )
    parser.add_argument(
        "--series", type=int, default=0, help="so many series of --losses, beside f64 alone"
    )
    parser.add_argument("--loop", action="store_true", help="PyTorch's loop through torch.compile")
    parser.add_argument(
        "--forms", default=",".join(_FORMS), help="of the loop's optimiser; fused alone is quick"
    )
    said = parser.parse_args()
    if wrong := set(said.forms.split(",")) - {*_FORMS}:
        parser.error(f"--forms {', '.join(sorted(wrong))}; valid: {', '.join(_FORMS)}")
    if said.tune and not said.store:
        parser.error("--tune needs --store, the file of its winners")
    if unknown := [name for name in said.models if name not in MODELS]:
        parser.error(f"models {', '.join(unknown)}; valid: {', '.join(MODELS)}")
    torch.set_num_threads(1 if said.cpu else said.threads)
    for name in said.models or (("resnet18", "resnet50") if said.kernels else _DEFAULT):
        if said.kernels:
            print(name, flush=True)
            rows = kernel_rows(name, said.cpu)
        elif said.loop:
            rows = loop_rows(name, said)
        elif said.gradients:
            rows = gradient_rows(name, said.gradients, said.numerics)
        elif said.losses and said.series:
            rows = exact_rows(name, said.losses, said.series)
        elif said.losses:
            rows = losses_rows(name, said.losses, said.numerics)
        else:
            rows = launch_rows(name) if said.launches else rows_of(name, said)
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
