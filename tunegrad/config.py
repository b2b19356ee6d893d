"""Settings: what the user asked for, resolved once into frozen values.

    command line  over  the model's TOML file  over  defaults (of which the environment can move
    some)

This module is the only reader of the environment: ``TUNEGRAD_STORE``, ``XDG_DATA_HOME`` and
``HOME`` place the default store, ``XDG_CACHE_HOME`` and ``HOME`` the cache of compiled kernels,
``TUNEGRAD_THREADS`` caps the default number of threads. A model file looks like this:

    [model]
    name = "resnet18"
    builder = "tunegrad.models.resnet:resnet18"  # package.module:function
    batch = 1
    [model.args]                                 # keyword arguments of the builder
    classes = 1000                               # plain values, or lists of them
    [input]                                      # or [[input]], once for each
    shape = ["batch", 3, 224, 224]               # "batch" stands for model.batch
    dtype = "f32"
    [tune]
    budget = "5m"
    searcher = "portfolio"
    patience = 500                               # and target_ms, max_trials, warm_start, dtype ...

A file with ``[model] alias = "resnet50"`` alone is another name for that one.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from tunegrad.errors import ConfigError, ModelCodeError, ModelError, UserError

__all__ = [
    "DEFAULT_BUDGET_S",
    "DEFAULT_DEVICE",
    "DtypeName",
    "InputSpec",
    "ModelDtype",
    "ModelSpec",
    "Numerics",
    "Scalar",
    "Searcher",
    "TuneDefaults",
    "TuneSettings",
    "allowed_threads",
    "build_model",
    "cache_dir",
    "check_dtype",
    "check_numerics",
    "check_searcher",
    "check_settings",
    "config_names",
    "configs_dir",
    "default_store",
    "import_builder",
    "labelled",
    "parse_budget",
    "parse_duration",
    "resolve_model",
    "resolve_settings",
    "usable_cpus",
]

Scalar = bool | int | float | str
Searcher = Literal["beam", "random", "exhaustive", "bayesian", "gp", "evolutionary", "portfolio"]
Numerics = Literal["contract", "strict", "bf16-dot"]
"""Each allows more than the one before it: ``strict``, ``contract``, ``bf16-dot``.

``contract``: Winograd convolutions are allowed, within the stated tolerance. ``strict``: they are
not. ``bf16-dot``: sums of products of bf16 tensors are added up in pairs, which flushes subnormal
numbers; in a model that is asked to be bf16, so they are under ``contract``.
"""
ModelDtype = Literal["f32", "f16", "bf16"]
"""What a model's weights and activations are stored in; ``f32``: as the model has them."""
DtypeName = Literal[
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64"
]
DEFAULT_BUDGET_S = 300.0
DEFAULT_DEVICE = "cpu"

_SPAN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhdw])")
_SECONDS = re.compile(r"\d+(\.\d*)?|\.\d+")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BUILDER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model: its full shape, batch included, and its dtype's name."""

    shape: tuple[int, ...]
    dtype: DtypeName = "f32"


@dataclass(frozen=True, slots=True)
class TuneDefaults:
    """What a model file's ``[tune]`` sets; None where it is silent."""

    budget: str | int | float | None = None
    searcher: Searcher | None = None
    threads: int | None = None
    seed: int | None = None
    device: str | None = None
    patience: int | None = None
    target_ms: float | None = None
    max_trials: int | None = None
    warm_start: bool | None = None
    dtype: ModelDtype | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which model.

    ``builder`` (``package.module:function``) is called with ``args``, and ``batch`` where it takes
    one.

    The inputs are empty where nothing declares them, as for a model given on the command line as a
    function. ``source`` says where the spec came from, for messages.
    """

    name: str
    builder: str
    batch: int = 1
    args: tuple[tuple[str, Scalar | tuple[Scalar, ...]], ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    tune: TuneDefaults = field(default_factory=TuneDefaults)
    source: str = ""


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """Everything a session needs to know, resolved. Stored with the session as text.

    ``patience`` is how many candidates in a row may bring less than 1 % before the search stops: 0
    for any number, None to stop where less than 1 % more is expected. The search also stops once
    the model takes ``target_ms``, or when ``max_trials`` candidates were measured. ``others`` are
    tuned in the same session, within the same budget. ``ray`` is the address of a cluster to
    measure on (``local``: one of this machine), None without Ray; ``ray_kind`` the kind of its
    machines that measure. ``in_flight``: batches are begun until so many proposals are unanswered;
    a session sets it by where it measures. ``warm_start``: a kernel that is new in the store is
    seeded from the nearest ones in it, and learners are told what the store knows of the device's
    other kernels. ``dtype`` is what weights and activations are stored in.
    """

    model: ModelSpec
    device: str
    threads: int
    budget_s: float
    searcher: Searcher
    store: Path
    seed: int
    json: bool = False
    log: Path | None = None
    numerics: Numerics = "contract"
    patience: int | None = None
    target_ms: float | None = None
    max_trials: int | None = None
    others: tuple[ModelSpec, ...] = ()
    ray: str | None = None
    ray_kind: str | None = None
    in_flight: int = 1
    warm_start: bool = True
    dtype: ModelDtype = "f32"

    @property
    def models(self) -> tuple[ModelSpec, ...]:
        """All of them, in the order in which they were named."""
        return (self.model, *self.others)


@dataclass(frozen=True, slots=True)
class _ModelTable:
    name: str | None = None
    builder: str | None = None
    alias: str | None = None
    batch: int = 1
    args: dict[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _InputTable:
    shape: list[int | Literal["batch"]]
    dtype: DtypeName = "f32"


# ---- budgets, threads, places
# ----------------------------------------------------------------------------------------


def parse_duration(value: str | int | float) -> float | None:
    """Seconds of ``90``, ``30s``, ``5m``, ``1h30m``, ``2d`` or ``8w``; None for what is no positive
    finite time.
    """
    text = str(value).strip()
    if isinstance(value, bool) or not text:
        return None
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    elif "".join(n + unit for n, unit in _SPAN.findall(text)) == text:
        seconds = sum(float(n) * _UNIT_S[unit] for n, unit in _SPAN.findall(text))
    else:
        return None
    return seconds if 0.0 < seconds < math.inf else None


def parse_budget(value: str | int | float, place: str = "budget") -> float:
    """Seconds of a wall-clock budget: ``30s``, ``5m``, ``1h30m``, ``1d``, or a plain number of
    seconds.

    Raises ConfigError when it does not parse, or is not a positive finite time.
    """
    seconds = parse_duration(value)
    if seconds is None:
        rule = "a positive time such as 30s, 5m, 1h30m, 1d or 90 (seconds)"
        raise ConfigError(f"{place} {value!r} is not {rule}")
    return seconds


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """``$TUNEGRAD_STORE``, or ``tunegrad/store.db`` under ``$XDG_DATA_HOME`` (``~/.local/share``).

    Creates nothing.
    """
    if store := environ.get("TUNEGRAD_STORE"):
        return Path(store)
    return _xdg(environ, "XDG_DATA_HOME", ".local/share") / "tunegrad" / "store.db"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``tunegrad`` under ``$XDG_CACHE_HOME`` (``~/.cache``): what can be made again.

    Creates nothing.
    """
    return _xdg(environ, "XDG_CACHE_HOME", ".cache") / "tunegrad"


def _xdg(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    place = environ.get(variable, "")
    if Path(place).is_absolute():  # the XDG rule: a relative path is ignored
        return Path(place)
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / below_home


def usable_cpus() -> int:
    """The CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed_threads(environ: Mapping[str, str] = os.environ) -> int:
    """The CPUs this process may run on, capped by ``$TUNEGRAD_THREADS``."""
    cpus = usable_cpus()
    cap = environ.get("TUNEGRAD_THREADS", "")
    if not cap:
        return cpus
    if not cap.isdecimal() or int(cap) < 1:
        raise ConfigError(f"TUNEGRAD_THREADS={cap!r} is not a positive whole number")
    return min(cpus, int(cap))


def configs_dir() -> Path:
    """The directory of the named model files: inside the installed package, or at the top of a
    checkout.
    """
    package = Path(__file__).parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def config_names() -> tuple[str, ...]:
    """The names that stand for a model, sorted: of files in which ``[model]`` stands.

    Another one says what a sweep times.
    """
    found = (p for p in configs_dir().glob("*.toml") if "[model]" in p.read_text(encoding="utf-8"))
    return tuple(sorted(path.stem for path in found))


# ---- models
# --------------------------------------------------------------------------------------------------


def resolve_model(text: str) -> ModelSpec:
    """The model that ``text`` means: a name in ``configs/``, a path to a TOML file, or
    ``package.module:function``, and after it the batch and arguments of the builder that are not
    the file's: ``resnet18[batch=8,image=128]``.

    Raises ModelError for an unknown name or file, ConfigError for a file, or an argument, that
    breaks a rule.
    """
    base, bracket, said = text.removesuffix("]").partition("[")
    if not (bracket and text.endswith("]")):
        return _resolved(text, None)
    given = {name: _argument_value(text, name, value) for name, value in _arguments(text, said)}
    batch = given.pop("batch", None)
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ConfigError(f"model {text!r}: batch = {batch!r} is not a positive whole number")
    spec = _resolved(base, batch)
    return replace(
        spec,
        name=f"{spec.name}[{said}]",
        args=tuple(sorted({**dict(spec.args), **given}.items())),
        inputs=() if given else spec.inputs,
    )


def _arguments(text: str, said: str) -> list[tuple[str, str]]:
    """``NAME=VALUE`` of each argument: what is between commas outside of brackets."""
    parts, depth = [""], 0
    for c in said:
        depth += (c == "[") - (c == "]")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    pairs = []
    for part in parts:
        name, _, value = map(str.strip, part.partition("="))
        if not (name.isidentifier() and value):
            raise ConfigError(f"model {text!r}: {part!r} is not of the form NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _argument_value(text: str, name: str, value: str) -> Scalar | tuple[Scalar, ...]:
    """A value as TOML has it; a bare word is a text."""
    try:
        found = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return value
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(x, bool | int | float | str) for x in listed):
        raise ConfigError(f"model {text!r}: {name} = {value} is neither a plain value nor a list")
    return tuple(found) if isinstance(found, list) else found


def _resolved(text: str, batch: int | None) -> ModelSpec:
    if text.endswith(".onnx"):
        return _onnx_model(text, batch)
    if text.endswith(".toml") or "/" in text:
        path = Path(text).expanduser()
        if not path.is_file():
            raise ModelError(f"model {text!r}: there is no such file")
        return _load_model(path, batch, allow_alias=True)
    if ":" in text:
        if not _BUILDER.fullmatch(text):
            raise ModelError(f"model {text!r} is not of the form package.module:function")
        return ModelSpec(name=text, builder=text, batch=batch or 1, source="command line")
    names = config_names()
    if text not in names:
        raise ModelError(
            f"model {text!r} is unknown{_nearest(text, names)}; valid: {', '.join(names)}, "
            "a path to a .toml or .onnx file, or package.module:function"
        )
    return _load_model(configs_dir() / f"{text}.toml", batch, allow_alias=True)


def _onnx_model(text: str, batch: int | None) -> ModelSpec:
    """A file of ONNX; arguments beside its path are extents of its dimensions."""
    path = Path(text).expanduser()
    if not path.is_file():
        raise ModelError(f"model {text!r}: there is no such file")
    dims = () if batch is None else (("batch", batch),)
    args = (*dims, ("path", str(path)))
    return ModelSpec(path.stem, "tunegrad.frontend.onnx:model", args=args, source=str(path))


def import_builder(spec: ModelSpec, search_path: Iterable[str] = ()) -> Callable[..., Any]:
    """The function that ``spec.builder`` names, imported; the directories of ``search_path`` are
    looked in last.

    Raises ModelError naming the module or attribute that is not there, or what importing the module
    raised.
    """
    module_name, _, attribute = spec.builder.partition(":")
    extra = [entry for entry in search_path if entry not in sys.path]
    sys.path.extend(extra)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == module_name or module_name.startswith(f"{error.name}."):
            raise ModelError(
                f"model {spec.name}: builder {spec.builder}: no module named {error.name}"
            ) from error
        raise _raised(spec, f"importing {module_name}", error) from error
    except Exception as error:  # the user's own module may raise anything
        raise _raised(spec, f"importing {module_name}", error) from error
    finally:
        for entry in extra:
            sys.path.remove(entry)
    builder = getattr(module, attribute, None)
    if not callable(builder):
        raise ModelError(
            f"model {spec.name}: builder {spec.builder}: {module_name} has no function {attribute}"
        )
    found: Callable[..., Any] = builder
    return found


def build_model(spec: ModelSpec, search_path: Iterable[str] = ()) -> Any:
    """What the builder returns for ``spec``'s arguments.

    Raises ModelError for an argument that it does not take.
    """
    builder = import_builder(spec, search_path)
    parameters = inspect.signature(builder).parameters
    arguments: dict[str, Scalar | tuple[Scalar, ...]] = dict(spec.args)
    if "batch" in parameters or spec.batch != 1:
        arguments.setdefault("batch", spec.batch)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in arguments.keys() - parameters.keys():
            raise ModelError(
                f"model {spec.name}: builder {spec.builder} takes no argument "
                f"{name!r}{_nearest(name, parameters)}; "
                f"valid: {', '.join(parameters) or '(none)'}"
            )
    if missing := _missing(parameters.values(), arguments):
        raise ModelError(
            f"model {spec.name}: builder {spec.builder} needs {', '.join(missing)}; say it in "
            "[model.args] of a TOML file, or with --set NAME=VALUE"
        )
    try:
        return builder(**arguments)
    except UserError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise _raised(spec, "it", error) from error


def _missing(parameters: Iterable[inspect.Parameter], given: Iterable[str]) -> list[str]:
    """Parameters without a default that nothing is given for."""
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in variadic and p.name not in given
    ]


def _raised(spec: ModelSpec, doing: str, error: Exception) -> ModelCodeError:
    """What a user's own code raised, with the frames that are theirs."""
    own = str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(own)]
    lines = traceback.format_list(theirs)
    return ModelCodeError(
        f"model {spec.name}: builder {spec.builder}: {doing} raised {type(error).__name__}: "
        f"{error}",
        "".join(lines).rstrip(),
    )


def _load_model(path: Path, batch: int | None, *, allow_alias: bool) -> ModelSpec:
    """Read and check one model file; ``batch`` is not the file's."""
    document = _read_toml(path)
    _check_keys(document, ("model", "input", "tune"), str(path))
    if "model" not in document:
        raise ConfigError(f"{path}: the table [model] is missing")
    model = _convert_table(_ModelTable, document["model"], f"{path}: model")
    if model.alias is not None:
        return _follow_alias(path, document, model.alias, batch, allow_alias=allow_alias)
    if model.name is None or model.builder is None:
        raise ConfigError(f"{path}: model.{'name' if model.name is None else 'builder'} is missing")
    if not _BUILDER.fullmatch(model.builder):
        raise ConfigError(
            f"{path}: model.builder = {model.builder!r} is not of the form package.module:function"
        )
    if model.batch < 1:
        raise ConfigError(f"{path}: model.batch = {model.batch} is not a positive whole number")
    return ModelSpec(
        name=model.name,
        builder=model.builder,
        batch=model.batch if batch is None else batch,
        args=tuple(sorted(model.args.items())),
        inputs=_load_inputs(
            document.get("input", []), model.batch if batch is None else batch, str(path)
        ),
        tune=_convert_table(TuneDefaults, document.get("tune", {}), f"{path}: tune"),
        source=str(path),
    )


def _follow_alias(
    path: Path,
    document: Mapping[str, Any],
    alias: str,
    batch: int | None,
    *,
    allow_alias: bool,
) -> ModelSpec:
    """The model file beside ``path`` that ``alias`` names.

    One step only, so there are no cycles.
    """
    if document.keys() != {"model"} or document["model"].keys() != {"alias"}:
        raise ConfigError(
            f"{path}: model.alias = {alias!r} stands alone: no other key may be given"
        )
    target = path.with_name(f"{alias}.toml")
    if not allow_alias or not target.is_file():
        raise ConfigError(
            f"{path}: model.alias = {alias!r} does not name a model file beside it that is no alias"
        )
    return _load_model(target, batch, allow_alias=False)


def _load_inputs(raw: object, batch: int, place: str) -> tuple[InputSpec, ...]:
    """``[input]`` or ``[[input]]`` as specs, with "batch" replaced."""
    tables = raw if isinstance(raw, list) else [raw]
    specs = []
    for table in tables:
        given = _convert_table(_InputTable, table, f"{place}: input")
        shape = tuple(batch if extent == "batch" else extent for extent in given.shape)
        if any(extent < 0 for extent in shape):
            raise ConfigError(f"{place}: input.shape = {given.shape}: an extent is negative")
        specs.append(InputSpec(shape, given.dtype))
    return tuple(specs)


# ---- settings
# --------------------------------------------------------------------------------------------------


def resolve_settings(
    model: str | ModelSpec | Sequence[str],
    *,
    device: str | None = None,
    threads: int | None = None,
    budget: str | float | None = None,
    searcher: str | None = None,
    store: str | Path | None = None,
    seed: int | None = None,
    json: bool = False,
    log: str | Path | None = None,
    numerics: str = "contract",
    patience: int | None = None,
    target_ms: float | None = None,
    max_trials: int | None = None,
    ray: str | None = None,
    ray_kind: str | None = None,
    warm_start: bool | None = None,
    dtype: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> TuneSettings:
    """Settle every setting: an argument that is not None wins, then the model's file, then the
    default.

    Several models share their settings: where their files disagree, an argument has to decide; but
    without one, their budget is what they would have alone, together. Raises ModelError or
    ConfigError, naming the setting, the value and what would be valid.
    """
    specs = (
        (model,)
        if isinstance(model, ModelSpec)
        else _resolve_models([model] if isinstance(model, str) else model)
    )

    def settled(name: str, given: Any, default: Any = None) -> Any:
        return _first(given, _of_files(specs, name) if given is None else None, default)

    chosen_threads = settled("threads", threads)
    settings = TuneSettings(
        model=specs[0],
        device=settled("device", device, DEFAULT_DEVICE),
        threads=allowed_threads(environ) if chosen_threads is None else chosen_threads,
        budget_s=_settle_budget(budget, specs),
        searcher=check_searcher(settled("searcher", searcher, "portfolio")),
        store=default_store(environ) if store is None else Path(store).expanduser(),
        seed=settled("seed", seed, 0),
        json=json,
        log=None if log is None else Path(log).expanduser(),
        numerics=check_numerics(numerics),
        patience=settled("patience", patience),
        target_ms=settled("target_ms", target_ms),
        max_trials=settled("max_trials", max_trials),
        others=specs[1:],
        ray=ray,
        ray_kind=ray_kind,
        warm_start=settled("warm_start", warm_start, True),
        dtype=check_dtype(settled("dtype", dtype, "f32")),
    )
    check_settings(settings)
    return settings


def check_settings(settings: TuneSettings) -> None:
    """Raise ConfigError for a number that is out of its range, or a setting without the one that it
    belongs to.
    """
    if settings.ray_kind is not None and settings.ray is None:
        raise ConfigError(
            f"ray_kind {settings.ray_kind!r} chooses among the machines of a cluster; say "
            "which one with ray"
        )
    for name in ("threads", "seed", "patience", "max_trials"):
        number = getattr(settings, name)
        if number is not None and type(number) is not int:
            raise ConfigError(f"{name} {number!r} is not a whole number")
    if settings.threads < 1:
        raise ConfigError(f"threads {settings.threads} is not a positive whole number")
    if settings.seed < 0:
        raise ConfigError(f"seed {settings.seed} is negative; valid: 0, 1, 2 ...")
    patience, target_ms, max_trials = settings.patience, settings.target_ms, settings.max_trials
    if patience is not None and patience < 0:
        raise ConfigError(
            f"patience {patience} is negative; valid: 0 (never stop early), 1, 2 ... candidates"
        )
    if target_ms is not None and not 0.0 < target_ms < math.inf:
        raise ConfigError(f"target_ms {target_ms} is not a positive time in milliseconds")
    if max_trials is not None and max_trials < 1:
        raise ConfigError(f"max_trials {max_trials} is not a positive whole number")
    if target_ms is not None and settings.others:
        names = ", ".join(m.name for m in settings.models)
        raise ConfigError(
            f"target_ms {target_ms:g} is of one model, and {len(settings.models)} are: {names}"
        )


def _resolve_models(texts: Sequence[str]) -> tuple[ModelSpec, ...]:
    """The models of these names, each once."""
    if not texts:
        raise ModelError("no model is named")
    specs = tuple(resolve_model(text) for text in texts)
    for i, spec in enumerate(specs):
        if spec in specs[:i]:
            raise ModelError(
                f"model {texts[i]!r} is named twice; each model is tuned once in a session"
            )
    return specs


def _of_files(specs: Sequence[ModelSpec], name: str) -> Any:
    """What the models' files set; None where all are silent. ConfigError where they disagree."""
    said = [(spec, value) for spec in specs if (value := getattr(spec.tune, name)) is not None]
    for spec, value in said[1:]:
        first, first_value = said[0]
        if value != first_value:
            raise ConfigError(
                f"{name}: {first.source} says {first_value!r}, {spec.source} says {value!r}; "
                "models that are tuned together share it, so say which"
            )
    return said[0][1] if said else None


def check_numerics(numerics: str) -> Numerics:
    """The setting of that name. Raises ConfigError for a word that is none."""
    for known in get_args(Numerics):
        if numerics == known:
            found: Numerics = known
            return found
    raise ConfigError(f"numerics {numerics!r} is unknown; valid: {', '.join(get_args(Numerics))}")


def check_dtype(dtype: str) -> ModelDtype:
    """What a model is stored in, of that name. Raises ConfigError for a word that is none."""
    for known in get_args(ModelDtype):
        if dtype == known:
            found: ModelDtype = known
            return found
    raise ConfigError(f"dtype {dtype!r} is unknown; valid: {', '.join(get_args(ModelDtype))}")


def labelled(name: str, dtype: ModelDtype) -> str:
    """A model's name in reports and in the store: ``resnet18``, or ``resnet18 bf16``."""
    return name if dtype == "f32" else f"{name} {dtype}"


def _first(*choices: Any) -> Any:
    """The first choice that is not None, or None."""
    return next((choice for choice in choices if choice is not None), None)


def _settle_budget(given: str | float | None, specs: Sequence[ModelSpec]) -> float:
    """What is given; else what every model would have alone, together."""
    if given is not None:
        return parse_budget(given)
    said = [(spec.source, spec.tune.budget) for spec in specs]
    return sum(
        DEFAULT_BUDGET_S if b is None else parse_budget(b, f"{place}: tune.budget")
        for place, b in said
    )


def check_searcher(name: str) -> Searcher:
    """The searcher of that name. Raises ConfigError for a name that is none."""
    valid: tuple[Searcher, ...] = get_args(Searcher)
    for searcher in valid:
        if searcher == name:
            return searcher
    raise ConfigError(
        f"searcher {name!r} is unknown{_nearest(name, valid)}; valid: {', '.join(valid)}"
    )


# ---- reading TOML
# --------------------------------------------------------------------------------------------------


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: can not be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _convert_table(cls: type[T], table: object, place: str) -> T:
    """``table`` as an instance of the dataclass ``cls``; every key is known and has the declared
    type.
    """
    import msgspec

    if not isinstance(table, dict):
        raise ConfigError(f"{place} = {table!r} is not a table")
    hints = get_type_hints(cls)
    names = tuple(f.name for f in fields(cls))  # type: ignore[arg-type]  # every caller passes a dataclass
    _check_keys(table, names, place)
    values = {}
    for key, value in table.items():
        try:
            values[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{place}.{key} = {value!r}: {error}") from error
    for f in fields(cls):  # type: ignore[arg-type]
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{place}.{f.name} is missing")
    return cls(**values)


def _check_keys(table: Mapping[str, Any], valid: Iterable[str], place: str) -> None:
    valid = tuple(valid)
    for key in table:
        if key not in valid:
            raise ConfigError(
                f"{place}: unknown key {key!r}{_nearest(key, valid)}; valid: {', '.join(valid)}"
            )


def _nearest(text: str, valid: Iterable[str]) -> str:
    """``, did you mean 'x'?`` where one of ``valid`` is close to ``text``."""
    from difflib import get_close_matches

    close = get_close_matches(text, tuple(valid), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
