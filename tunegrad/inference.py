"""Running models: with the stored winners, never searching, never writing to the store.

    model   -->  graph   -->   constants folded   -->   schedule of kernels
    kernel  -->  stored winner, a near one, or the default   -->   code (from the cache, or
                                                                   compiled)

All of it is bound to memory once; then numpy in, one native call, numpy out.
"""

from __future__ import annotations

import functools
import logging
import os
import statistics
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad import devices
from tunegrad.compiling.artifact import Compiler, code_of
from tunegrad.compiling.saved import (
    SUFFIX,
    SavedKernel,
    SavedModel,
    open_model,
    save_model,
    taken_constants,
)
from tunegrad.config import (
    ModelDtype,
    Numerics,
    allowed_threads,
    cache_dir,
    check_dtype,
    check_numerics,
    default_store,
    labelled,
    resolve_model,
)
from tunegrad.db import Hit, Lookup, Store, open_store
from tunegrad.devices import Device, Engine, Parameter
from tunegrad.devices.dlpack import DeviceTensor, Imported, Sharing, imported, place_of
from tunegrad.devices.verifying.inputs import draw
from tunegrad.errors import (
    CandidateFailure,
    ConfigError,
    DeviceError,
    IllegalAction,
    InternalError,
    MissError,
    ModelError,
)
from tunegrad.forks import ForkSafeLock
from tunegrad.frontend import (
    Example,
    Model,
    Tensor,
    as_model,
    joined,
    model_of_spec,
    substitute,
)
from tunegrad.frontend.weights import Weights
from tunegrad.ir import fusion, graph
from tunegrad.ir.evaluate import evaluate
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.numeric import to_compute
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.paired import gain_interval
from tunegrad.planning.deviation import deviation
from tunegrad.planning.plan import plan_launches, planned_as, prepared
from tunegrad.reports import Deviation, LookupRow, Outcome, RunReport
from tunegrad.runtime import (
    Argument,
    Code,
    Constants,
    ObjectCache,
    Runner,
    Runners,
    check_arguments,
)
from tunegrad.runtime.plan import needed_bytes
from tunegrad.trial import Fingerprint, Trial

__all__ = [
    "Choice",
    "LoadedModel",
    "OnMiss",
    "StorePath",
    "choices",
    "compile",
    "compiled_choice",
    "load",
    "measured_deviation",
    "process_compiler",
    "realize",
    "stale",
]

Array = NDArray[Any]
OnMiss = Literal["default", "nearest", "error"]
StorePath = str | os.PathLike[str] | Literal[False] | None

_CACHED_PLANS, _CACHED_BYTES = 64, 256 << 20
_log = logging.getLogger(__name__)


# ---- the device


@functools.lru_cache(maxsize=8)
def _engine(device: Device) -> Engine:
    """Open devices are kept: models take turns on one of them."""
    return device.open()


def process_compiler() -> Compiler:
    """The compiler of this process, with the user's cache of images: all models share what it
    lowered and loaded.
    """
    return _compiler_at(cache_dir() / "objects")


@functools.lru_cache(maxsize=2)
def _compiler_at(directory: Path) -> Compiler:
    return Compiler(ObjectCache(directory))


# ---- which schedule


@dataclass(frozen=True, slots=True)
class Choice:
    """What a kernel runs with, and why.

    ``trial`` is the stored one it comes from; None for a default schedule.

    ``differs`` says what kept a stored winner from being a hit, as ``field: here != stored``.
    """

    kernel: Kernel
    outcome: Outcome
    actions: str
    trial: Trial | None = None
    differs: tuple[str, ...] = ()


def choices(
    kernel: Kernel,
    device: Device,
    here: Fingerprint,
    store: Store | None,
    on_miss: OnMiss,
    compiler: Compiler,
) -> Iterator[Choice]:
    """What ``kernel`` may run with, best first; the last one is its default schedule.

    A stored winner is among them where it lowers to the program that was measured; one of another
    machine may be illegal here.

    Raises MissError, naming the kernel and what differs, for ``on_miss="error"`` and no hit, and
    IllegalAction for the schedule of a fence that is not legal here.
    """
    if kernel.fixed:
        yield Choice(kernel, "fixed", Space(kernel, device.target).fixed().text)
        return
    found = None if store is None else store.lookup(kernel.key, here, SPACE_VERSION)
    differs = ("store: there is none",) if found is None else _differs(found)
    if isinstance(found, Hit):
        fault = stale(kernel, found.trial, device, compiler)
        if not fault:
            yield Choice(kernel, "hit", found.trial.actions, found.trial)
            fault = "program: the stored winner does not compile here"
        differs = (fault,)
    if on_miss == "error":
        raise MissError(
            f"kernel {kernel.name} ({kernel.key}): no stored winner: {'; '.join(differs)}"
        )
    if on_miss == "nearest" and found is not None and not isinstance(found, Hit):
        for near in found.nearest:
            yield Choice(
                kernel,
                "near",
                near.trial.actions,
                near.trial,
                tuple(d.brief for d in near.differences),
            )
    yield Choice(kernel, "miss", Space(kernel, device.target).defaults()[0].text, None, differs)


def stale(kernel: Kernel, trial: Trial, device: Device, compiler: Compiler) -> str:
    """Why a stored schedule is not what was measured, which is logged; '' where it lowers to the
    same program.

    A row without a program's hash was written by hand: it has no program that could be another one,
    and only has to be legal.
    """
    try:
        now = compiler.program_hash(kernel, Schedule.parse(trial.actions), device)
    except IllegalAction as error:
        fault, detail = "actions: the stored winner is not legal here", str(error)
    except CandidateFailure as error:
        fault, detail = "program: the stored winner is too large here", str(error)
    else:
        if trial.program_hash in ("", now):
            return ""
        fault = "program: the stored schedule lowers to other code now; tune into a new store"
        detail = f"program {now} is not {trial.program_hash}, which was measured"
    _log.warning(
        "kernel %s: the stored schedule can not be used: %s (%s)", kernel.name, fault, detail
    )
    return fault


def _differs(found: Lookup) -> tuple[str, ...]:
    return () if isinstance(found, Hit) else tuple(d.brief for d in found.differences)


def compiled_choice(
    kernel: Kernel,
    engine: Engine,
    here: Fingerprint,
    store: Store | None,
    on_miss: OnMiss,
    compiler: Compiler,
) -> tuple[Choice, Code]:
    """What ``kernel`` runs with, as code: the first of its ``choices`` that is legal here and
    compiles.

    A stored one that is passed over is logged. Raises IllegalAction or CandidateFailure where the
    default fails too.
    """
    for choice in choices(kernel, engine.device, here, store, on_miss, compiler):
        try:
            return choice, compiler.code(kernel, Schedule.parse(choice.actions), engine)
        except (IllegalAction, CandidateFailure) as error:
            if choice.trial is None:
                raise
            _log.warning("kernel %s: the stored schedule can not be used: %s", kernel.name, error)
    raise InternalError(f"kernel {kernel.name}: no schedule at all")


def _open(store: StorePath) -> Store | nullcontext[None]:
    """The store to read.

    None is the default one if there is one; an empty path or False is none at all.
    """
    if store is None:
        path = default_store()
        return open_store(path, "read") if path.is_file() else nullcontext()
    return open_store(store, "read") if store else nullcontext()


def _store_name(store: StorePath) -> str:
    return str(default_store()) if store is None else os.fspath(store) if store else ""


# ---- models


class LoadedModel:
    """A model, or a function of tensors, ready to run: numpy in, numpy out.

    Threads may share it. As many calls run side by side as there are cores for the threads of each
    (``threads=1``: one on each core); more take turns.

    Made by ``load`` and ``compile``. Freed memory, code and all, when the last reference to it
    goes. ``planned`` makes the plan once more: with it, constants are kept as kernels read them,
    and as nothing else.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Argument],
        plan: fusion.LaunchPlan,
        chosen: Mapping[str, tuple[Choice, Code]],
        engine: Engine,
        store: str = "",
        dtype: ModelDtype = "f32",
        planned: Callable[[], fusion.LaunchPlan] | None = None,
        constants: Constants | None = None,
    ) -> None:
        self.name, self.dtype = name, dtype
        self.inputs = tuple(inputs)
        self._planned = planned
        self._chosen = chosen
        self._engine = engine
        self._store = store
        self._constants = constants or Constants(engine, untouched=True)
        codes = {key: code for key, (_, code) in chosen.items()}
        first = _bound(name, plan, codes, engine, self._constants)
        self._plan = plan if planned is None else plan.forgotten  # kernels read what was packed
        more = partial(_bound, name, self._plan, codes, engine, self._constants)
        self._runners = Runners(first, more, engine.at_once)
        self._runner = self._runners.first
        self._default: Runner | None = None

    def __call__(self, *positional: ArrayLike, **named: ArrayLike) -> Any:
        """Run on inputs in order or by name.

        One output comes as an array, several as a tuple, in fresh memory.

        Raises ShapeError or DTypeError, naming the input, what was given and what is valid.
        """
        outputs = self._runners.run(check_arguments(self.name, self.inputs, positional, named))
        return outputs[0] if len(outputs) == 1 else outputs

    def on_device(self, *positional: Any, **named: Any) -> Any:
        """Run, and leave the outputs on the device: a ``DeviceTensor``, or a tuple of them.

        Inputs that speak DLPack and lie there (torch's on this GPU) are used where they lie; numpy
        arrays, and tensors in this process's memory, are copied. ``torch.from_dlpack`` takes what
        comes back, without a copy. Raises DeviceError on a device whose memory other libraries can
        not use, and as a call does.
        """
        engine = self._engine
        if not isinstance(engine, Sharing):
            raise DeviceError(
                f"device {engine.device.name}: its memory is not shared; call the model, which "
                "takes and gives numpy arrays"
            )

        def take(value: object) -> Imported | None:
            there = not isinstance(value, np.ndarray) and place_of(value) == engine.place
            return imported(value, engine) if there else None

        given = check_arguments(self.name, self.inputs, positional, named, take)
        outputs = tuple(
            DeviceTensor(memory, b.shape, b.dtype, engine.place, f"output of {self.name}")
            for memory, b in zip(
                self._runner.run_on_device(given, engine), self._runner.outputs, strict=True
            )
        )
        return outputs[0] if len(outputs) == 1 else outputs

    def __repr__(self) -> str:
        return (
            f"<LoadedModel {self.name}({', '.join(map(str, self.inputs))}), "
            f"{len(self._plan.launches)} kernels>"
        )

    @property
    def threads(self) -> int:
        """Native threads that it runs on, at most."""
        return self._engine.device.target.threads

    @property
    def memory_bytes(self) -> int:
        """Bytes of intermediate buffers, scratch and constants."""
        return self._runners.memory_bytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of the weights, each once, before a schedule packs them."""
        return sum({b.data.digest: b.nbytes for b in self._plan.buffers if b.data}.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file ``NAME.plan``, which ``load`` takes: kernels, schedules, code and
        constants.

        A process that loads it needs no store, no weights and no compiler; the constants are
        mapped, so that processes share them. The file is for this kind of machine, and its code
        runs where it is loaded: load files of those you trust. Raises ModelError where it can not
        be written.
        """
        if not os.fspath(path).endswith(SUFFIX):
            raise ModelError(f"model file {os.fspath(path)}: its name must end with {SUFFIX}")
        engine, compiler = self._engine, process_compiler()
        kernels = {
            key: SavedKernel(
                c.kernel, c.outcome, c.actions, c.differs,
                *compiler.made(c.kernel, Schedule.parse(c.actions), engine.device),
            )
            for key, (c, _) in self._chosen.items()
        }  # fmt: skip
        constants = taken_constants(self._plan, kernels, self._constants)
        saved = SavedModel(
            self.name, self.dtype, self.inputs, engine.device.name, self.threads, self._plan,
            kernels, constants,
        )  # fmt: skip
        save_model(Path(path), saved, engine.device)

    def report(self) -> tuple[LookupRow, ...]:
        """A row per distinct kernel: hit, near or miss and which field differed, the actions, how
        often it is used.
        """
        uses = {key: count for key, (_, count) in self._plan.kernels().items()}
        layers = fusion.layers_of(self._plan)
        return tuple(
            LookupRow(c.kernel.name, key, uses[key], c.outcome, c.differs, c.actions, layers[key])
            for key, (c, _) in self._chosen.items()
        )

    def benchmark_s(self, samples: int = 20, seed: int = 0) -> list[float]:
        """Seconds of each of ``samples`` runs on drawn inputs, timed inside compiled code; caches
        are warm.
        """
        return list(self._runner.time(self._drawn(seed), samples)[0])

    def timer(self, *positional: ArrayLike, **named: ArrayLike) -> Callable[[int], Sequence[float]]:
        """A function that times so many runs on these inputs, as ``benchmark_s``, for turns with
        other contestants.

        The inputs are copied once, not for each turn. Raises ShapeError or DTypeError, as a call
        does.
        """
        return self._runner.timer(check_arguments(self.name, self.inputs, positional, named))

    def profile_s(self, samples: int = 10, seed: int = 0) -> tuple[tuple[str, float], ...]:
        """(kernel, mean seconds) of each launch in order."""
        _, means = self._runner.time(self._drawn(seed), samples, each=True)
        return tuple((launch.name, s) for launch, s in zip(self._plan.launches, means, strict=True))

    def benchmark(self, budget_s: float = 2.0, seed: int = 0) -> RunReport:
        """Latency as it is loaded next to the default schedules: medians of interleaved runs on the
        same inputs.
        """
        arrays = self._drawn(seed)
        mine, other = self._runner, self._defaults()
        pairs = _interleaved(
            lambda n: mine.time(arrays, n)[0], lambda n: other.time(arrays, n)[0], budget_s
        )
        stored_s, default_s = (statistics.median(side) for side in pairs)
        return RunReport(
            self.name, self._engine.device.name, self.threads, self._store, 1e3 * stored_s,
            1e3 * default_s,
            len(pairs[0]), self.report(), self.dtype, self.constant_bytes,
            interval=gain_interval(pairs[1], pairs[0]),
        )  # fmt: skip

    def deviation(self, full: tuple[Node, ...], seed: int = 0) -> Deviation:
        """How far its outputs on drawn inputs are from those of ``full``, evaluated by numpy.

        ``full`` is the graph of the model as it was: the same inputs and outputs, no ``dtype``.
        """
        arrays = self._drawn(seed)
        wanted = [to_compute(a, n.dtype) for a, n in zip(evaluate(full, arrays), full, strict=True)]
        mine = zip(self._runner.run(arrays), full, strict=True)
        return deviation([to_compute(a, n.dtype) for a, n in mine], wanted)

    def _defaults(self) -> Runner:
        """The same model under the default schedules; itself, where those are what it runs."""
        if all(c.trial is None for c, _ in self._chosen.values()):
            return self._runner
        if self._default is None:
            codes = {
                key: code
                if c.trial is None
                else compiled_choice(
                    c.kernel,
                    self._engine,
                    self._engine.device.fingerprint(),
                    None,
                    "default",
                    process_compiler(),
                )[1]
                for key, (c, code) in self._chosen.items()
            }
            plan = self._plan if self._planned is None else self._planned()
            self._default = _bound(self.name, plan, codes, self._engine, self._constants)
        return self._default

    def _drawn(self, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        flat = {
            a.name: draw(Parameter(a.name, a.dtype.name, prod(a.shape), "in"), rng)
            for a in self.inputs
        }
        return {a.name: flat[a.name].reshape(a.shape) for a in self.inputs}


def _bound(
    name: str,
    plan: fusion.LaunchPlan,
    codes: Mapping[str, Code],
    engine: Engine,
    constants: Constants,
) -> Runner:
    """A plan with its memory. Raises DeviceError, which says what it takes, where there is none."""
    try:
        return Runner(plan, codes, engine, constants)
    except MemoryError as error:
        weights, rest = (f"{n / 1e6:.1f}" for n in needed_bytes(plan))
        raise DeviceError(
            f"device {engine.device.name} has no memory for {name}: {weights} MB of "
            f"weights, {rest} MB of activations; {error}; a smaller batch, or dtype f16 or "
            "bf16, takes less"
        ) from error


def _interleaved(
    first: Callable[[int], Sequence[float]],
    second: Callable[[int], Sequence[float]],
    budget_s: float,
) -> tuple[list[float], list[float]]:
    """Samples of two sides in turns, for about ``budget_s`` seconds.

    A turn's first run only warms the caches.
    """
    once_s = sum(min(side(2)) for side in (first, second))
    rounds = max(3, min(100, int(budget_s / max(4 * once_s, 1e-6))))
    samples: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            samples[side].extend((first, second)[side](3)[1:])
    return samples


def load(
    model: str | Model | Example,
    device: str = devices.DEFAULT,
    store: StorePath = None,
    on_miss: OnMiss = "default",
    threads: int | None = None,
    weights: Weights | str | Path | None = None,
    seed: int = 0,
    numerics: Numerics = "contract",
    dtype: ModelDtype | None = None,
) -> LoadedModel:
    """A model with the winners that ``store`` holds for this machine.

    Never searches, never writes to the store.

    ``model``: a name in ``configs/``, a TOML file, ``package.module:function``, a Model, a pair of
    a function or ``torch.nn.Module`` and its examples, or a file ``NAME.plan`` that a loaded
    model's ``save`` wrote, which has all but ``device`` in it.
    ``store``: a path; None is the default store if it exists; False or ``""`` is none. A kernel
    without a winner runs with its default schedule, and one warning is logged; with
    ``on_miss="nearest"`` it runs with the winner of the most similar machine where that is legal;
    with "error" there is a MissError. ``weights``: arrays by name or a ``.safetensors`` file; drawn
    from ``seed`` without any. ``threads``: default, those of the model's file, or all that this
    process may use. ``numerics="strict"`` forbids Winograd convolutions, which lose some bits;
    ``"bf16-dot"`` allows bf16 products to be added in pairs. ``dtype``: what weights and
    activations are stored in, ``"f16"`` or ``"bf16"``, whose products are added in pairs unless
    numerics are strict; ``"f32"`` is the model as it is; default: what the model's file says, or
    that (docs/NUMERICS.md).

    Raises UserError (ModelError, ConfigError, DeviceError, StoreError, WeightsError, MissError), in
    one line.
    """
    if isinstance(model, str) and model.endswith(SUFFIX):
        return _opened(Path(model), device, threads, weights, dtype)
    found, threads, stored_as = _resolved(model, threads, dtype)
    loaded = _load(found, device, threads, store, on_miss, weights, seed, numerics, stored_as)
    if store is None or store:
        _warn_of_misses(loaded, _store_name(store))
    return loaded


def _opened(
    path: Path,
    device: str,
    threads: int | None,
    weights: object,
    dtype: ModelDtype | None,
) -> LoadedModel:
    """A saved model. Raises ModelError, ConfigError or DeviceError."""
    saved, arch, features = open_model(path)
    asked: dict[str, tuple[object, object]] = {
        "device": (None if device == devices.DEFAULT else device, saved.device),
        "threads": (threads, saved.threads),
        "dtype": (dtype, saved.dtype),
        "weights": (weights, "its own"),
    }
    for name, (value, has) in asked.items():
        if value not in (None, has):
            raise ConfigError(f"{name} {value!r}: model file {path} was saved with {has}")
    opened = devices.open(saved.device, saved.threads)
    missing = sorted(features - set(opened.target.features))
    if missing or (not features and arch != opened.target.arch):
        lacks = f" without {', '.join(missing[:4])}" if missing else ""
        raise DeviceError(
            f"model file {path} is for {arch}; this machine is {opened.target.arch}{lacks}: load "
            "the model here, and save it again"
        )
    engine = _engine(opened)
    constants = Constants(engine, untouched=True)
    for buffer, pack, values in saved.constants:
        constants.give(saved.plan.buffers[buffer], pack, values)
    chosen: dict[str, tuple[Choice, Code]] = {}
    for key, k in saved.kernels.items():
        lowered = k.program.lowered
        try:
            loaded = engine.load(lowered, k.image)
        except CandidateFailure as error:
            raise ModelError(f"model file {path}: its code does not load here: {error}") from error
        choice = Choice(k.kernel, k.outcome, k.actions, None, k.differs)
        chosen[key] = choice, code_of(lowered, loaded)
    return LoadedModel(
        saved.name, saved.inputs, saved.plan, chosen, engine, str(path), saved.dtype,
        constants=constants,
    )  # fmt: skip


def compile(  # noqa: A001 - the word that every such library uses
    function: Callable[..., Tensor | Sequence[Tensor]],
    *examples: ArrayLike | Tensor,
    device: str = devices.DEFAULT,
    threads: int | None = None,
    store: StorePath = None,
    on_miss: OnMiss = "default",
    numerics: Numerics = "contract",
    dtype: ModelDtype = "f32",
) -> LoadedModel:
    """A function of tensors as a function of arrays like ``examples``: of their shapes and dtypes,
    whatever the values.

    Arrays that the function brings along become constants. ``store``, ``on_miss``, ``dtype`` and
    errors as in ``load``.
    """
    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    compiled = _load(
        Model.of_function(name, function, examples),
        device,
        threads,
        store,
        on_miss,
        None,
        0,
        numerics,
        dtype,
    )
    if store:
        _warn_of_misses(compiled, _store_name(store))
    return compiled


def measured_deviation(
    loaded: LoadedModel,
    model: str | Model | Example,
    weights: Weights | str | Path | None = None,
    seed: int = 0,
) -> Deviation:
    """What ``dtype`` costs a loaded model: its outputs next to those of the model as it was.

    ``model``, ``weights`` and ``seed`` are what it was loaded with. Takes as long as numpy takes to
    evaluate the model once; the inputs are drawn from the seed.
    """
    found, _, _ = _resolved(model, None, None)
    return loaded.deviation(tuple(t.node for t in found.build(found.weights(weights, seed))), seed)


def _resolved(
    model: str | Model | Example, threads: int | None, dtype: ModelDtype | None
) -> tuple[Model, int | None, ModelDtype]:
    """The model, and the settings that its file may say."""
    if isinstance(model, Model | tuple):
        return as_model(model), threads, "f32" if dtype is None else dtype
    if not isinstance(model, str):
        raise ModelError(
            f"model {model!r:.80} is a {type(model).__name__}; it must be a name, a TOML file, "
            "'package.module:function', a Model, or a pair (function or torch.nn.Module, "
            "[examples]); compile(function, *examples) takes functions"
        )
    spec = resolve_model(model)
    tune = spec.tune
    return (
        model_of_spec(spec),
        tune.threads if threads is None else threads,
        (tune.dtype or "f32") if dtype is None else dtype,
    )


def _load(
    model: Model,
    device: str,
    threads: int | None,
    store: StorePath,
    on_miss: OnMiss,
    weights: Weights | str | Path | None,
    seed: int,
    numerics: Numerics = "contract",
    dtype: ModelDtype = "f32",
) -> LoadedModel:
    check_numerics(numerics)
    check_dtype(dtype)
    if on_miss not in get_args(OnMiss):
        raise ConfigError(f"on_miss {on_miss!r} is unknown; valid: {', '.join(get_args(OnMiss))}")
    opened = devices.open(device, allowed_threads() if threads is None else threads)
    with _open(
        store
    ) as stored:  # before the weights are read: what can not be opened costs no time
        here, target = opened.fingerprint(numerics), opened.target
        make = partial(_prepared, model, weights, seed, numerics, target, dtype)
        found = plan_launches(make(), target, here, stored, numerics)
        engine = _engine(opened)
        chosen = {
            key: compiled_choice(kernel, engine, here, stored, on_miss, process_compiler())
            for key, (kernel, _) in found.plan.kernels().items()
        }
        read = "" if stored is None else _store_name(store)
    arguments = [Argument(i.name, i.shape, i.dtype) for i in model.inputs]
    again = partial(_again, make, found.toggles, found.variants, found.images)
    return LoadedModel(
        labelled(model.name, dtype), arguments, found.plan, chosen, engine, read, dtype, again
    )


def _again(
    make: Callable[[], tuple[Node, ...]],
    toggles: frozenset[int],
    variants: Mapping[str, str],
    images: fusion.Images,
) -> fusion.LaunchPlan:
    return planned_as(make(), toggles, variants, images)


def _prepared(
    model: Model,
    weights: Weights | str | Path | None,
    seed: int,
    numerics: Numerics,
    target: Target,
    dtype: ModelDtype,
) -> tuple[Node, ...]:
    outputs = model.build(model.weights(weights, seed))
    return prepared(tuple(t.node for t in outputs), numerics, target, dtype)


def _warn_of_misses(model: LoadedModel, store: str) -> None:
    rows = model.report()
    missed = [row for row in rows if row.outcome == "miss"]
    if missed:
        _log.warning(
            "model %s: %d of %d kernels have no winner in store %s and run with default "
            "schedules (%s: %s)",
            model.name, len(missed), len(rows), store, missed[0].kernel,
            "; ".join(missed[0].differs),
        )  # fmt: skip


# ---- tensors


_plans: OrderedDict[tuple[Node, ...], Runner] = OrderedDict()
_plans_lock = ForkSafeLock()


def realize(tensors: Sequence[Tensor]) -> list[Array]:
    """The values of tensors whose inputs are all known, with default schedules, on all of this
    process's threads.

    Equal graphs of equal shapes share one plan, whatever the values.
    """
    nodes, names = _canonical(tuple(t.node for t in tensors))
    bindings = joined(tensors)
    runner = _plan_of(nodes)
    return list(runner.run({new: bindings[old] for old, new in names.items()}))


def _canonical(outputs: tuple[Node, ...]) -> tuple[tuple[Node, ...], dict[str, str]]:
    """The graph with its inputs numbered in order, so that equal graphs are the same nodes; and new
    names by old.
    """
    inputs = [n for n in graph.topological(outputs) if n.op is GraphOp.INPUT]
    names = {str(n.arg): f"in{i}" for i, n in enumerate(inputs)}
    renamed = {n: graph.graph_input(names[str(n.arg)], n.shape, n.dtype) for n in inputs}
    return substitute(outputs, renamed), names


def _plan_of(nodes: tuple[Node, ...]) -> Runner:
    with _plans_lock:
        runner = _plans.get(nodes)
        if runner is None:
            runner = _plans[nodes] = _default_plan(nodes)
        _plans.move_to_end(nodes)
        while len(_plans) > _CACHED_PLANS or (len(_plans) > 1 and _plan_bytes() > _CACHED_BYTES):
            _plans.popitem(last=False)
        return runner


def _plan_bytes() -> int:
    return sum(r.memory_bytes for r in _plans.values())


def _default_plan(nodes: tuple[Node, ...]) -> Runner:
    engine = _engine(devices.host_device(allowed_threads()))
    here, target = engine.device.fingerprint(), engine.device.target
    plan = plan_launches(prepared(nodes, "contract", target), target, here, None, "contract").plan
    codes = {
        key: compiled_choice(kernel, engine, here, None, "default", process_compiler())[1]
        for key, (kernel, _) in plan.kernels().items()
    }
    return Runner(plan, codes, engine)
