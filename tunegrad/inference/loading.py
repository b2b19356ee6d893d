"""A model or a function with the stored winners: planned, looked up, compiled and bound."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from numpy.typing import ArrayLike

from tunegrad import devices
from tunegrad.compiling import SUFFIX
from tunegrad.config import (
    CALIBRATED,
    AskedDtype,
    ModelDtype,
    ModelSpec,
    Numerics,
    allowed_threads,
    calibrated_model,
    check_dtype,
    check_numerics,
    default_store,
    labelled,
    resolve_model,
)
from tunegrad.errors import CandidateFailure, ConfigError, DeviceError, ModelError
from tunegrad.inference.choosing import Choice, OnMiss, compiled_choice, engine_of, process_compiler
from tunegrad.inference.loaded import LoadedModel
from tunegrad.ir import fusion
from tunegrad.ir.graph import Node
from tunegrad.ir.rewrites import Guard
from tunegrad.ir.target import Target
from tunegrad.ir.validate import validated_guards
from tunegrad.planning import plan_launches, planned_as, prepared
from tunegrad.runtime import Argument, Code, Constants

if TYPE_CHECKING:
    from tunegrad.db import Store
    from tunegrad.frontend import Example, Model, Tensor, Weights
    from tunegrad.reports import Deviation

StorePath = str | os.PathLike[str] | Literal[False] | None

_log = logging.getLogger(__name__)

UNITS = {"f16": 2.0**-11, "bf16": 2.0**-8, "tf32": 2.0**-11}
"""One rounding of a dtype, or of numerics, that values are rounded to on the way."""


def load(
    model: str | Model | Example,
    device: str = devices.DEFAULT,
    store: StorePath = None,
    on_miss: OnMiss = "default",
    threads: int | None = None,
    weights: Weights | str | Path | None = None,
    seed: int = 0,
    numerics: Numerics = "contract",
    dtype: AskedDtype | None = None,
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
    if isinstance(model, str) and model.endswith(SUFFIX):
        return _opened_model(Path(model), device, threads, weights, dtype)
    if dtype == "int8":
        from tunegrad.frontend import model_of_spec

        spec, dtype = _in_bytes(model, store), None
        model, threads = model_of_spec(spec), spec.tune.threads if threads is None else threads
    found, threads, stored_as = resolved(model, threads, dtype)
    loaded = load_model(found, device, threads, store, on_miss, weights, seed, numerics, stored_as)
    if store is None or store:
        warn_of_misses(loaded, _store_name(store))
    return loaded


def compile(  # noqa: A001 - the word that every such library uses
    function: Callable[..., Tensor | Sequence[Tensor]],
    *examples: ArrayLike | Tensor,
    device: str = devices.DEFAULT,
    threads: int | None = None,
    store: StorePath = None,
    on_miss: OnMiss = "default",
    numerics: Numerics = "contract",
    dtype: ModelDtype = "f32",
    donate: Sequence[int | str] = (),
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
    compiled = load_model(
        Model.of_function(name, function, examples).donating(donate),
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
        warn_of_misses(compiled, _store_name(store))
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


def _in_bytes(model: str | Model | Example, store: StorePath) -> ModelSpec:
    """A named model in bytes, as it was calibrated. Raises ConfigError where it was not."""
    if not isinstance(model, str):
        raise ConfigError("dtype 'int8' of a Model: tg.quantize(model, batches) makes one in bytes")
    if store is not None and not store:
        raise ConfigError(
            f"dtype 'int8' of {model}: its calibration lies beside a store, and there is none; "
            f"give the file NAME{CALIBRATED} as the model"
        )
    place = default_store() if store is None else Path(store)
    return calibrated_model(resolve_model(model), place)


def resolved(
    model: str | Model | Example, threads: int | None, dtype: ModelDtype | None
) -> tuple[Model, int | None, ModelDtype]:
    """The model, and the settings that its file may say."""
    try:
        from tunegrad.frontend import Model, as_model, model_of_spec
    except ModuleNotFoundError as error:  # this is tunegrad-serve
        raise ModelError(
            f"model {model!r:.80}: tunegrad-serve runs .plan files alone: pip install tunegrad in "
            "its place"
        ) from error

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


def load_model(
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
    """``load`` of a Model; kernels without a winner are said nowhere."""
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
        outputs, guards, changed = make()
        news = model.news(outputs[: len(outputs) - len(guards)], changed)
        found = plan_launches(outputs, target, here, stored, numerics, news=news)
        engine = engine_of(opened)
        chosen = {
            key: compiled_choice(kernel, engine, here, stored, on_miss, process_compiler())
            for key, (kernel, _) in found.plan.kernels().items()
        }
        read = "" if stored is None else _store_name(store)
    arguments = [Argument.of(i) for i in model.inputs]
    again = partial(_again, make, found.toggles, found.variants, found.images, target, news)
    loaded = LoadedModel(
        labelled(model.name, dtype), arguments, found.plan, chosen, engine, read, dtype, again,
        guards=guards, changed=changed,
    )  # fmt: skip
    if model.first_call is not None:
        given = None if weights is None else model.weights(weights, seed)
        unit = max(UNITS.get(dtype, 0.0), UNITS.get(numerics, 0.0))

        def run(part: Model, arrays: Sequence[ArrayLike]) -> object:
            return load_model(part, device, threads, store, on_miss, None, 0, numerics, dtype)(
                *arrays
            )

        loaded.compare_first_call(model.first_call.prepared(given, unit, run))
    return loaded


def _again(
    make: Callable[[], tuple[tuple[Node, ...], tuple[Guard, ...], tuple[str, ...]]],
    toggles: frozenset[int],
    variants: Mapping[str, str],
    images: fusion.Images,
    target: Target,
    news: tuple[fusion.New, ...],
) -> fusion.LaunchPlan:
    return planned_as(make()[0], toggles, variants, images, target, news)


def _prepared(
    model: Model,
    weights: Weights | str | Path | None,
    seed: int,
    numerics: Numerics,
    target: Target,
    dtype: ModelDtype,
) -> tuple[tuple[Node, ...], tuple[Guard, ...], tuple[str, ...]]:
    built, changed = model.traced(model.weights(weights, seed))
    outputs, guards = validated_guards(tuple(t.node for t in built))
    return prepared(outputs, numerics, target, dtype, known=True), guards, changed


def warn_of_misses(model: LoadedModel, store: str) -> None:
    """Log one warning for the kernels that have no winner in a store."""
    missed = [c for c in model.choices if c.outcome == "miss"]
    if missed:
        _log.warning(
            "model %s: %d of %d kernels have no winner in store %s and run with default "
            "schedules (%s: %s)",
            model.name, len(missed), len(model.choices), store, missed[0].kernel.name,
            "; ".join(missed[0].differs),
        )  # fmt: skip


def _open(store: StorePath) -> Store | nullcontext[None]:
    """The store to read.

    None is the default one if there is one; an empty path or False is none at all.
    """
    path = default_store() if store is None else store
    if not path or (store is None and not Path(path).is_file()):
        return nullcontext()
    from tunegrad.db import open_store

    return open_store(path, "read")


def _store_name(store: StorePath) -> str:
    return str(default_store()) if store is None else os.fspath(store) if store else ""


# ---- a model of a file


def _opened_model(
    path: Path,
    device: str,
    threads: int | None,
    weights: object,
    dtype: AskedDtype | None,
) -> LoadedModel:
    """A model from a file ``NAME.plan``, which a loaded model's ``save`` wrote.

    Raises ModelError, ConfigError or DeviceError.
    """
    from tunegrad.compiling import code_of, open_model

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
    needed = {f for f in features if f.startswith("+")}
    missing = sorted(needed - set(opened.target.features))
    if missing or (not features and arch != opened.target.arch):
        lacks = f" without {', '.join(missing[:4])}" if missing else ""
        raise DeviceError(
            f"model file {path} is for {arch}; this machine is {opened.target.arch}{lacks}: load "
            "the model here, and save it again"
        )
    if saved.validated != fusion.VALIDATION:
        how = (
            f"by rules {saved.validated}, not {fusion.VALIDATION}"
            if saved.validated
            else "not at all"
        )
        _log.warning(
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
            loaded = engine.load(lowered, k.image)
        except CandidateFailure as error:
            raise ModelError(f"model file {path}: its code does not load here: {error}") from error
        choice = Choice(k.kernel, k.outcome, k.actions, None, k.differs)
        chosen[key] = choice, code_of(lowered, loaded)
    return LoadedModel(
        saved.name, saved.inputs, saved.plan, chosen, engine, str(path), saved.dtype,
        constants=constants, guards=saved.guards, validated=saved.validated,
        changed=saved.changed,
    )  # fmt: skip
