"""Every setting of a session, resolved: an argument over the model's file over the default. Spans
of time are as people write them: ``90``, ``30s``, ``1h30m``, ``2d``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar, Unpack, get_args

from tunegrad.errors import ConfigError, ModelError

from .environment import DEFAULT_DEVICE, MOST_THREADS, allowed_threads, default_store
from .tables import nearest
from .values import AskedDtype, ModelDtype, ModelSpec, Numerics, Searcher, TuneOptions, TuneSettings

_SPAN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhdw])")

_SECONDS = re.compile(r"\d+(\.\d*)?|\.\d+")

_Word = TypeVar("_Word", bound=str)
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def parse_duration(value: str | int | float) -> float | None:
    """Seconds of ``90``, ``30s``, ``5m``, ``1h30m``, ``2d`` or ``8w``; None for anything else."""
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


DEFAULT_BUDGET_S = 300.0


def resolve_settings(
    model: str | ModelSpec | Sequence[str],
    *,
    json: bool = False,
    log: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    **given: Unpack[TuneOptions],
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

    check_names(given)

    def settled(name: str, default: Any = None) -> Any:
        said = given.get(name)
        return _first(said, _of_files(specs, name) if said is None else None, default)

    threads, store, numerics = settled("threads"), given.get("store"), given.get("numerics")
    place = default_store(environ) if store is None else _path_of(store)
    dtype = settled("dtype", "f32")
    if dtype == "int8":
        from .models import calibrated_model

        specs, dtype = tuple(calibrated_model(spec, place) for spec in specs), "f32"
    settings = TuneSettings(
        model=specs[0],
        device=settled("device", DEFAULT_DEVICE),
        threads=allowed_threads(environ) if threads is None else threads,
        budget_s=_settle_budget(given.get("budget_s"), specs),
        searcher=check_searcher(settled("searcher", "portfolio")),
        store=place,
        seed=settled("seed", 0),
        json=json,
        log=None if log is None else Path(log).expanduser(),
        numerics=check_numerics("contract" if numerics is None else numerics),
        patience=settled("patience"),
        target_ms=settled("target_ms"),
        max_trials=settled("max_trials"),
        others=specs[1:],
        ray=given.get("ray"),
        ray_kind=given.get("ray_kind"),
        warm_start=settled("warm_start", True),
        dtype=check_dtype(dtype),
    )
    check_settings(settings)
    return settings


def _path_of(store: object) -> Path:
    if not isinstance(store, str | os.PathLike) or not os.fspath(store):
        raise ConfigError(f"store {store!r} is not a path; leave it out for the default one")
    return Path(store).expanduser()


def check_names(
    given: Mapping[str, object], valid: Set[str] = TuneOptions.__optional_keys__
) -> None:
    """Raise TypeError for a name that is no setting, as Python does for an unknown argument."""
    for name in given:
        if name not in valid:
            raise TypeError(
                f"setting {name!r} is unknown{nearest(name, sorted(valid))}; valid: "
                f"{', '.join(sorted(valid))}"
            )


def check_settings(settings: TuneSettings) -> None:
    """Raise ConfigError for a number out of its range, or a setting without its counterpart."""
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
    if settings.threads > MOST_THREADS:
        raise ConfigError(f"threads {settings.threads}: at most {MOST_THREADS}")
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
    from .models import resolve_model

    specs = tuple(resolve_model(text) for text in texts)
    for i, spec in enumerate(specs):
        if spec in specs[:i]:
            raise ModelError(
                f"model {texts[i]!r} is named twice; each model is tuned once in a session"
            )
    return specs


def _of_files(specs: Sequence[ModelSpec], name: str) -> Any:
    """The value that the models' files set, None where all are silent; else ConfigError."""
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
    return _one_of("numerics", numerics, get_args(Numerics))


def check_dtype(dtype: str) -> ModelDtype:
    """The storage dtype of that name. Raises ConfigError for a word that is none."""
    found: AskedDtype = _one_of("dtype", dtype, get_args(AskedDtype))
    if found == "int8":
        raise ConfigError("dtype 'int8': tg.quantize(model, batches) makes a model in bytes")
    return found


def _first(*choices: Any) -> Any:
    """The first choice that is not None, or None."""
    return next((choice for choice in choices if choice is not None), None)


def _settle_budget(given: str | float | None, specs: Sequence[ModelSpec]) -> float:
    """The budget that is given; else what every model would have alone, together."""
    if given is not None:
        return parse_budget(given)
    said = [(spec.source, spec.tune.budget) for spec in specs]
    return sum(
        DEFAULT_BUDGET_S if b is None else parse_budget(b, f"{place}: tune.budget")
        for place, b in said
    )


def check_searcher(name: str) -> Searcher:
    """The searcher of that name. Raises ConfigError for a name that is none."""
    valid = get_args(Searcher)
    return _one_of("searcher", name, valid, nearest(name, valid))


def _one_of(what: str, said: str, valid: tuple[_Word, ...], hint: str = "") -> _Word:
    """The word that was said, of those that ``what`` may be. Raises ConfigError for any other."""
    for word in valid:
        if said == word:
            return word
    raise ConfigError(f"{what} {said!r} is unknown{hint}; valid: {', '.join(valid)}")
