"""A model or a function with the stored winners: planned, looked up, compiled and bound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

from numpy.typing import ArrayLike

from tunegrad import compiling, config, devices, errors
from tunegrad.inference.choosing import Choice, OnMiss, compiled_choice, engine_of, process_compiler
from tunegrad.inference.loaded import LoadedModel, Origin
from tunegrad.ir import dtypes, fusion
from tunegrad.ir.graph import Node
from tunegrad.ir.rewrites import Guard
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass, logger
from tunegrad.runtime import Argument, Code, Constants

if TYPE_CHECKING:
    from tunegrad import config
    from tunegrad.db import Store
    from tunegrad.devices import Engine
    from tunegrad.frontend import Example, Model, Tensor, Weights
    from tunegrad.reports import Deviation

StorePath = str | os.PathLike[str] | Literal[False] | None

_SQLITE = b"SQLite format 3\0"

UNITS = {"f16": 2.0**-11, "bf16": 2.0**-8, "tf32": 2.0**-11}
"""One rounding of a dtype, or of numerics, that values are rounded to on the way."""


class Precision(TypedDict, total=False):
    """Of ``load``: how exact a model is."""

    numerics: config.Numerics
    dtype: config.AskedDtype | None


class LoadOptions(TypedDict, total=False):
    """Settings of ``load`` that ``compile`` and ``TrainStep`` have, too."""

    device: str
    threads: int | None
    store: StorePath
    on_miss: OnMiss
    numerics: config.Numerics
    dtype: config.ModelDtype


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """``LoadOptions`` with their defaults."""

    device: str = devices.DEFAULT
    threads: int | None = None
    store: StorePath = None
    on_miss: OnMiss = "default"
    numerics: config.Numerics = "contract"
    dtype: config.ModelDtype = "f32"


def load(
    model: str | os.PathLike[str] | Model | Example,
    device: str = devices.DEFAULT,
    store: StorePath = None,
    on_miss: OnMiss = "default",
    threads: int | None = None,
    weights: Weights | str | Path | None = None,
    seed: int = 0,
    **precision: Unpack[Precision],
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
    ``"bf16-dot"`` allows bf16 products to be added in pairs, ``"tf32"`` also f32 products whose
    factors are rounded to 11 digits, where the device has a matrix unit for such. ``dtype``: what
    weights and activations are stored in, ``"f16"`` or ``"bf16"``, whose products are added in
    pairs unless numerics are strict; ``"f32"`` is the model as it is; default: what the model's
    file says, or that (docs/NUMERICS.md). ``"int8"`` of a named model is the one that was
    calibrated beside the store (docs/QUANTISE.md).

    Raises UserError (ModelError, ConfigError, DeviceError, StoreError, WeightsError, MissError), in
    one line.
    """
    config.check_names(precision, Precision.__optional_keys__)
    numerics, dtype = precision.get("numerics", "contract"), precision.get("dtype")
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    if isinstance(model, str) and model.endswith(compiling.SUFFIX):
        return _opened_model(Path(model), device, threads, weights, dtype)
    if dtype == "int8":
        from tunegrad.frontend import model_of_spec

        spec, dtype = _in_bytes(model, store), None
        model, threads = model_of_spec(spec), spec.tune.threads if threads is None else threads
    found, threads, stored_as = resolved(model, threads, dtype)
    how = LoadSettings(
        device=device, threads=threads, store=store, on_miss=on_miss, numerics=numerics,
        dtype=stored_as,
    )  # fmt: skip
    loaded = load_model(found, how, weights, seed)
    if store is None or store:
        warn_of_misses(loaded, _store_name(store))
    return loaded


def compile(  # noqa: A001 - the word that every such library uses
    function: Callable[..., Tensor | Sequence[Tensor]],
    *examples: ArrayLike | Tensor,
    donate: Sequence[int | str] = (),
    **options: Unpack[LoadOptions],
) -> LoadedModel:
    """A function of tensors as a function of arrays like ``examples``: of their shapes and dtypes,
    whatever the values.

    Arrays that the function brings along become constants. An argument that the function writes to
    is changed by each call: a Tensor is given its new value, a numpy array is written to, and must
    be writable. ``store``, ``on_miss``, ``dtype`` and errors as in ``load``.

    ``donate``: arguments, by number or name, whose new values are the last outputs, in this order
    (a parameter and a moment in a step of training). A call writes them into the arrays that it is
    given, and returns these arrays for them. They must be arrays, be writable, and share no memory
    with another argument.
    """
    from tunegrad.frontend import Model

    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    config.check_names(options, LoadOptions.__optional_keys__)
    how = LoadSettings(**options)
    compiled = load_model(Model.of_function(name, function, examples).donating(donate), how)
    if how.store:
        warn_of_misses(compiled, _store_name(how.store))
    return compiled


def measured_deviation(
    loaded: LoadedModel,
    model: str | Model | Example,
    weights: Weights | str | Path | None = None,
    seed: int = 0,
) -> Deviation:
    """The cost of ``dtype`` to a loaded model: its outputs next to those of the model as it was.

    ``model``, ``weights`` and ``seed`` are what it was loaded with. Takes as long as numpy takes to
    evaluate the model once; the inputs are drawn from the seed.
    """
    found, _, _ = resolved(model, None, None)
    return loaded.deviation(tuple(t.node for t in found.build(found.weights(weights, seed))), seed)


def _in_bytes(model: str | Model | Example, store: StorePath) -> config.ModelSpec:
    """A named model in bytes, as it was calibrated. Raises ConfigError where it was not."""
    from tunegrad import config

    if not isinstance(model, str):
        raise errors.ConfigError(
            "dtype 'int8' of a Model: tg.quantize(model, batches) makes one in bytes"
        )
    if store is not None and not store:
        raise errors.ConfigError(
            f"dtype 'int8' of {model}: its calibration lies beside a store, and there is none; "
            f"give the file NAME{config.CALIBRATED} as the model"
        )
    place = config.default_store() if store is None else Path(store)
    return config.calibrated_model(config.resolve_model(model), place)


def resolved(
    model: str | Model | Example, threads: int | None, dtype: config.ModelDtype | None
) -> tuple[Model, int | None, config.ModelDtype]:
    """The model, and the settings that its file may say."""
    try:
        from tunegrad.frontend import Model, as_model, model_of_spec
    except ModuleNotFoundError as error:  # this is tunegrad-serve
        raise errors.ModelError(
            f"model {model!r:.80}: tunegrad-serve runs .plan files alone: pip install tunegrad in "
            "its place"
        ) from error

    if isinstance(model, Model | tuple):
        return as_model(model), threads, "f32" if dtype is None else dtype
    if not isinstance(model, str):
        raise errors.ModelError(
            f"model {model!r:.80} is a {type(model).__name__}; it must be a name, a TOML file, "
            "'package.module:function', a Model, or a pair (function or torch.nn.Module, "
            "[examples]); compile(function, *examples) takes functions"
        )
    from tunegrad import config

    spec = config.resolve_model(model)
    tune = spec.tune
    return (
        model_of_spec(spec),
        tune.threads if threads is None else threads,
        (tune.dtype or "f32") if dtype is None else dtype,
    )


def load_model(
    model: Model,
    how: LoadSettings,
    weights: Weights | str | Path | None = None,
    seed: int = 0,
) -> LoadedModel:
    """``load`` of a Model; kernels without a winner are said nowhere."""
    numerics, dtype, on_miss = how.numerics, how.dtype, how.on_miss
    config.check_numerics(numerics)
    config.check_dtype(dtype)
    if on_miss not in get_args(OnMiss):
        raise errors.ConfigError(
            f"on_miss {on_miss!r} is unknown; valid: {', '.join(get_args(OnMiss))}"
        )
    opened = devices.open(
        how.device, config.allowed_threads() if how.threads is None else how.threads
    )
    compiler, here, place = process_compiler(), opened.fingerprint(numerics), _place(how.store)
    facts = _facts_of(place)
    with ExitStack() as opening:
        # before the weights are read: what can not be opened costs no time
        stored = opening.enter_context(_open(place)) if place and facts is None else None
        nodes, changed = _traced(model, weights, seed)
        settings = repr((numerics, dtype, model.donated, changed, here, facts))
        known = facts is not None and on_miss == "default"
        key = compiling.graph_key(nodes, opened, "loaded", settings) if known else None
        ready = cache(partial(_prepared, nodes, opened.target, how))
        kept, engine = compiler.plan(key, nodes, opened, lambda: ready()[0]), engine_of(opened)
        chosen: dict[str, tuple[Choice, Code]] = {}
        if kept is None:
            if place and stored is None:
                stored = opening.enter_context(_open(place))
            kept, chosen = _planned(model, *ready(), changed, engine, stored, how)
            if (stored is None or stored.sound) and not _passes_over(chosen):
                compiler.keep(key, kept, (*nodes, *ready()[0]), opened)
    decided: _Decided = kept.decided
    chosen = chosen or {
        key: (choice, compiler.code(choice.kernel, choice.actions, engine))
        for key, choice in decided.choices.items()
    }
    arguments = [Argument.of(i) for i in model.inputs]
    again = partial(_again, model, weights, seed, opened.target, how, decided)
    loaded = LoadedModel(
        dtypes.labelled(model.name, dtype), arguments, kept.plan, chosen, engine,
        Origin(place, dtype, planned=again, guards=kept.guards, changed=changed),
    )  # fmt: skip
    if model.first_call is not None:
        given = None if weights is None else model.weights(weights, seed)
        unit = max(UNITS.get(dtype, 0.0), UNITS.get(numerics, 0.0))

        def run(part: Model, arrays: Sequence[ArrayLike]) -> object:
            return load_model(part, how)(*arrays)

        loaded.compare_first_call(model.first_call.prepared(given, unit, run))
    return loaded


@dataclass(frozen=True, slots=True)
class _Decided:
    """The choice of each kernel by key, and how ``planned_as`` makes the plan again."""

    choices: Mapping[str, Choice]
    toggles: frozenset[int]
    variants: Mapping[str, str]
    images: str


def _traced(
    model: Model, weights: Weights | str | Path | None, seed: int
) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """The graph of a model, and the names of inputs that it changes."""
    built, changed = model.traced(model.weights(weights, seed))
    return tuple(t.node for t in built), changed


def _prepared(
    nodes: tuple[Node, ...], target: Target, how: LoadSettings
) -> tuple[tuple[Node, ...], tuple[Guard, ...]]:
    """A graph as it is planned, its guards last."""
    from tunegrad import planning
    from tunegrad.ir.validate import validated_guards

    outputs, guards = validated_guards(nodes)
    return planning.prepared(outputs, how.numerics, target, how.dtype, model=True), guards


def _planned(
    model: Model,
    outputs: tuple[Node, ...],
    guards: tuple[Guard, ...],
    changed: tuple[str, ...],
    engine: Engine,
    stored: Store | None,
    how: LoadSettings,
) -> tuple[compiling.KeptPlan, dict[str, tuple[Choice, Code]]]:
    """The plan of a prepared model that is not kept, and what its kernels run with."""
    from tunegrad import planning

    target, here = engine.device.target, engine.device.fingerprint(how.numerics)
    news = model.news(outputs[: len(outputs) - len(guards)], changed)
    found = planning.plan_launches(outputs, target, here, stored, how.numerics, news=news)
    chosen = {
        key: compiled_choice(kernel, engine, here, stored, how.on_miss, process_compiler())
        for key, (kernel, _) in found.plan.kernels().items()
    }
    choices = {key: choice for key, (choice, _) in chosen.items()}
    decided = _Decided(choices, found.toggles, found.variants, str(found.images))
    schedules = {key: choice.actions for key, choice in choices.items()}
    return compiling.KeptPlan(found.plan, schedules, guards, decided), chosen


def _passes_over(chosen: Mapping[str, tuple[Choice, Code]]) -> bool:
    return any(choice.passes_over for choice, _ in chosen.values())


def _again(
    model: Model,
    weights: Weights | str | Path | None,
    seed: int,
    target: Target,
    how: LoadSettings,
    decided: _Decided,
) -> fusion.LaunchPlan:
    """The plan of a loaded model once more, with the elements of its constants."""
    from tunegrad import planning

    nodes, changed = _traced(model, weights, seed)
    outputs, guards = _prepared(nodes, target, how)
    news = model.news(outputs[: len(outputs) - len(guards)], changed)
    images = fusion.Images.parse(decided.images) or fusion.LAST
    return planning.planned_as(outputs, decided.toggles, decided.variants, images, target, news)


def warn_of_misses(model: LoadedModel, store: str) -> None:
    """Log one warning for the kernels that have no winner in a store."""
    missed = [c for c in model.choices if c.outcome == "miss"]
    if missed:
        logger(__name__).warning(
            "model %s: %d of %d kernels have no winner in store %s and run with default "
            "schedules (%s: %s)",
            model.name, len(missed), len(model.choices), store, missed[0].kernel.name,
            "; ".join(missed[0].differs),
        )  # fmt: skip


def _place(store: StorePath) -> str:
    """The path of the store to read; '' for none.

    None is the default one if there is one; an empty path or False is none at all.
    """
    path = config.default_store() if store is None else store
    return os.fspath(path) if path and (store is not None or Path(path).is_file()) else ""


def _open(place: str) -> Store:
    from tunegrad.db import open_store

    return open_store(place, "read")


def _facts_of(place: str) -> tuple[object, ...] | None:
    """Facts of the file system about a store and its log, by which its contents are known; nothing
    of none, and None where they are not: of no such file, and of one that was changed just now.
    """
    if not place:
        return ()
    facts: list[object] = []
    try:
        place = os.path.realpath(place)  # a link has no log beside it
        if not os.path.isfile(place):  # noqa: PTH113  # a pipe would be waited for
            return None
        with open(place, "rb") as file:  # noqa: PTH123
            if file.read(len(_SQLITE)) != _SQLITE:
                return None
        for path in (place, f"{place}-wal", f"{place}-journal"):
            if path == place or os.path.exists(path):  # noqa: PTH110
                s = os.stat(path)  # noqa: PTH116
                if max(s.st_mtime_ns, s.st_ctime_ns) > time.time_ns() - compiling.SETTLED_NS:
                    return None
                facts += (path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev)
    except (OSError, ValueError):
        return None
    return tuple(facts)


def _store_name(store: StorePath) -> str:
    return str(config.default_store()) if store is None else os.fspath(store) if store else ""


# ---- a model of a file


def unpickled(content: bytes) -> LoadedModel:
    """A model from what its ``save`` wrote, as ``pickle`` carries it."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"model{compiling.SUFFIX}"
        path.write_bytes(content)
        return load(path)


def _opened_model(
    path: Path, device: str, threads: int | None, weights: object, dtype: config.AskedDtype | None
) -> LoadedModel:
    """A model from a file ``NAME.plan``, which a loaded model's ``save`` wrote.

    Raises ModelError, ConfigError or DeviceError.
    """
    from tunegrad import compiling

    saved, arch, features = compiling.open_model(path)
    asked: dict[str, tuple[object, object]] = {
        "device": (None if device == devices.DEFAULT else device, saved.device),
        "threads": (threads, saved.threads),
        "dtype": (dtype, saved.dtype),
        "weights": (weights, "its own"),
    }
    for name, (value, has) in asked.items():
        if value not in (None, has):
            raise errors.ConfigError(f"{name} {value!r}: model file {path} was saved with {has}")
    opened = devices.open(saved.device, saved.threads)
    needed = {f for f in features if f.startswith("+")}
    missing = sorted(needed - set(opened.target.features))
    if missing or (not features and arch != opened.target.arch):
        lacks = f" without {', '.join(missing[:4])}" if missing else ""
        raise errors.DeviceError(
            f"model file {path} is for {arch}; this machine is {opened.target.arch}{lacks}: load "
            "the model here, and save it again"
        )
    if saved.validated != fusion.VALIDATION:
        rules = f"by rules {saved.validated}, not {fusion.VALIDATION}"
        how = rules if saved.validated else "not at all"
        logger(__name__).warning(
            "model file %s: its plan was not compared with its graph as this tunegrad does it "
            "(%s); load the model itself, and save it again", path, how,
        )  # fmt: skip
    engine = engine_of(opened)
    constants = Constants(engine, untouched=True)
    for buffer, pack, values in saved.constants:
        constants.give(saved.plan.buffers[buffer], pack, values)
    chosen: dict[str, tuple[Choice, Code]] = {}
    for key, k in saved.kernels.items():
        lowered = k.program.lowered
        try:
            with devices.linked_as(k.kernel.name):
                loaded = engine.load(lowered, k.image)
        except errors.CandidateFailure as error:
            raise errors.ModelError(
                f"model file {path}: its code does not load here: {error}"
            ) from error
        choice = Choice(k.kernel, k.outcome, k.actions, None, k.differs)
        chosen[key] = choice, compiling.code_of(lowered, loaded)
    return LoadedModel(
        saved.name, saved.inputs, saved.plan, chosen, engine,
        Origin(
            str(path), saved.dtype, constants=constants, guards=saved.guards,
            validated=saved.validated, changed=saved.changed,
        ),
    )  # fmt: skip
