"""The model that a text means: a name, a file, or a function. A model's TOML file:

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

A file with ``[model] alias = "resnet50"`` alone is another name for that one. A file is data: its
builder is a function of ``tunegrad.models``, or of a package that ``$TUNEGRAD_BUILDERS`` lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from tunegrad.errors import ConfigError, ModelError
from tunegrad.lazy import dataclass

from .environment import builder_packages
from .tables import check_keys, convert_table, nearest, read_toml
from .values import LOSSES, OPTIMIZERS, DtypeName, InputSpec, ModelSpec, Scalar, TuneDefaults

ONNX_BUILDER = "tunegrad.frontend.onnx:model"
"""It reads a file, which is data."""

CALIBRATED = ".int8.json"
"""The end of the name of a calibration of a model in bytes, which is data, too."""
_CALIBRATED_BUILDER = "tunegrad.frontend.calibrated:model"

_BUILDER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


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


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model by its name: ``arguments`` are those of ``name[...]`` with their defaults, ``inputs``
    names, dtypes and shapes; ``same_as`` is the name that this one is another one of.
    """

    name: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...]
    same_as: str = ""


def named_models() -> tuple[NamedModel, ...]:
    """The models of ``configs/``, by name."""
    found = []
    for name in config_names():
        spec = resolve_model(name)
        values = (("batch", spec.batch), *spec.args)
        arguments = (
            f"{n}=[{','.join(map(str, v))}]" if isinstance(v, tuple) else f"{n}={v}"
            for n, v in values
        )
        inputs = (f"{i.dtype}[{','.join(map(str, i.shape))}]" for i in spec.inputs)
        same = spec.name if spec.name != name else ""
        found.append(NamedModel(name, tuple(arguments), tuple(inputs), same))
    return tuple(found)


def is_builder(text: str) -> bool:
    """True for a text of the form ``package.module:function``."""
    return _BUILDER.fullmatch(text) is not None


def load_model(path: Path, batch: int | None, *, allow_alias: bool) -> ModelSpec:
    """Read and check one model file; ``batch`` is not the file's."""
    document = read_toml(path)
    check_keys(document, ("model", "input", "tune"), str(path))
    if "model" not in document:
        raise ConfigError(f"{path}: the table [model] is missing")
    model = convert_table(_ModelTable, document["model"], f"{path}: model")
    if model.alias is not None:
        return _follow_alias(path, document, model.alias, batch, allow_alias=allow_alias)
    if model.name is None or model.builder is None:
        raise ConfigError(f"{path}: model.{'name' if model.name is None else 'builder'} is missing")
    if not is_builder(model.builder):
        raise ConfigError(
            f"{path}: model.builder = {model.builder!r} is not of the form package.module:function"
        )
    check_package(model.builder, path)
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
        tune=convert_table(TuneDefaults, document.get("tune", {}), f"{path}: tune"),
        source=str(path),
    )


def check_package(text: str, path: str | Path) -> None:
    """ConfigError if a model's name is a builder that files may not name (``builder_packages``)."""
    builder = text.partition("[")[0]
    module = builder.partition(":")[0]
    packages = builder_packages()
    if builder == ONNX_BUILDER or not is_builder(builder):
        return
    if not any(f"{module}.".startswith(f"{package}.") for package in packages):
        raise ConfigError(
            f"{path}: model.builder = {builder!r} is code outside of {', '.join(packages)}; if you "
            f"trust this file, set TUNEGRAD_BUILDERS={module.partition('.')[0]}, or give {builder} "
            "itself as the model"
        )


def _follow_alias(
    path: Path, document: Mapping[str, Any], alias: str, batch: int | None, *, allow_alias: bool
) -> ModelSpec:
    """The model file beside ``path`` that ``alias`` names.

    One step only, so there are no cycles.
    """
    if document.keys() != {"model"} or document["model"].keys() != {"alias"}:
        raise ConfigError(
            f"{path}: model.alias = {alias!r} stands alone: no other key may be given"
        )
    target = None
    with suppress(ModelError, ValueError):  # no such file; a name with a folder in it
        target = _file(str(path.with_name(f"{alias}.toml"))) if allow_alias else None
    if target is None:
        raise ConfigError(
            f"{path}: model.alias = {alias!r:.200} must name a model file beside it, not an alias"
        )
    return load_model(target, batch, allow_alias=False)


def _load_inputs(raw: object, batch: int, place: str) -> tuple[InputSpec, ...]:
    """``[input]`` or ``[[input]]`` as specs, with "batch" replaced."""
    tables = raw if isinstance(raw, list) else [raw]
    specs = []
    for table in tables:
        given = convert_table(_InputTable, table, f"{place}: input")
        shape = tuple(batch if extent == "batch" else extent for extent in given.shape)
        if any(extent < 0 for extent in shape):
            raise ConfigError(f"{place}: input.shape = {given.shape}: an extent is negative")
        specs.append(InputSpec(shape, given.dtype))
    return tuple(specs)


def configs_dir() -> Path:
    """The directory of the named model files: in the installed package, or atop a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def config_names() -> tuple[str, ...]:
    """The names that stand for a model, sorted: of files in which ``[model]`` stands.

    Another one says what a sweep times.
    """
    found = (p for p in configs_dir().glob("*.toml") if "[model]" in p.read_text(encoding="utf-8"))
    return tuple(sorted(path.stem for path in found))


def resolve_model(text: str) -> ModelSpec:
    """The model that ``text`` means: a name in ``configs/``, a path to a TOML file, or
    ``package.module:function``, and after it the batch and arguments of the builder that are not
    the file's: ``resnet18[batch=8,image=128]``. With ``train=sgd`` or another optimiser, and
    ``loss=mse`` where it is not the one that fits, it is a step of its training. Of an ONNX file
    they are extents, shapes and values of inputs, under any name: ``model.onnx["a, b"=8,x.1=3]``.

    Raises ModelError for an unknown name or file, ConfigError for a file, or an argument, that
    breaks a rule.
    """
    base, bracket, said = text.removesuffix("]").partition("[")
    if ".onnx[" in text and text.endswith("]"):  # its folders may have brackets in their names
        base, bracket, said = text[:-1].rpartition(".onnx[")
        base = f"{base}.onnx"
    if not (bracket and text.endswith("]")):
        return _resolved(text, None)
    free = base.endswith(".onnx")
    given = {
        name: _argument_value(text, name, value) for name, value in _arguments(text, said, free)
    }
    batch = given.pop("batch", None)
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ConfigError(f"model {text!r}: batch = {batch!r} is not a positive whole number")
    spec = _resolved(base, batch)
    train, loss = ("", "") if free else _taken(text, given)
    return replace(
        spec,
        train=train,
        loss=loss,
        name=f"{spec.name}[{said}]",
        args=tuple(sorted({**dict(spec.args), **given}.items())),
        inputs=() if given else spec.inputs,
    )


def _taken(text: str, given: dict[str, Any]) -> tuple[str, str]:
    """The optimiser and the loss of a step of training, out of the arguments; empty for neither.

    Raises ConfigError for one that is none.
    """
    if "train" not in given:
        return "", ""
    train, loss = str(given.pop("train")), str(given.pop("loss", ""))
    for name, value, valid in (("train", train, OPTIMIZERS), ("loss", loss, LOSSES)):
        if value and value not in valid:
            raise ConfigError(
                f"model {text!r}: {name} = {value!r} is unknown; valid: {', '.join(valid)}"
            )
    return train, loss


def _arguments(text: str, said: str, free: bool) -> list[tuple[str, str]]:
    """``NAME=VALUE`` of each argument: what is between commas outside of brackets and quotes.

    Of a ``free`` one the name is anything, in quotes where it has a comma, an equals sign or a
    bracket; else it is an identifier.
    """
    parts, depth, quote = [""], 0, ""
    for c in said:
        begins = not parts[-1].strip() or parts[-1].rstrip().endswith("=")
        if c == quote or (c in "\"'" and not quote and begins):
            quote = "" if quote else c
        depth += 0 if quote else (c == "[") - (c == "]")
        if c == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += c
    return [_argument(text, part.strip(), free) for part in parts]


def _argument(text: str, part: str, free: bool) -> tuple[str, str]:
    quoted = re.fullmatch(r"""(["'])(.*)\1\s*=(.*)""", part) if free else None
    if quoted is not None:
        name, value = quoted[2], quoted[3]
    else:
        name, _, value = part.partition("=")
    name, value = name.strip(), value.strip()
    if not (value and (name.isidentifier() or (free and name))):
        raise ConfigError(f"model {text!r}: {part!r} is not of the form NAME=VALUE")
    return name, value


def _argument_value(text: str, name: str, value: str) -> Scalar | tuple[Scalar, ...]:
    """A value as TOML has it; a bare word is a text."""
    import tomllib

    try:
        found = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return value
    except (ValueError, RecursionError):  # over 4,300 digits, or over some hundred brackets
        raise ConfigError(f"model {text!r:.80}: {name} = {value:.40}... is too long") from None
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(x, bool | int | float | str) for x in listed):
        raise ConfigError(f"model {text!r}: {name} = {value} is neither a plain value nor a list")
    return tuple(found) if isinstance(found, list) else found


def _resolved(text: str, batch: int | None) -> ModelSpec:
    if text.endswith(".onnx"):
        return _onnx_model(text, batch)
    if text.endswith(CALIBRATED):
        return _calibration(text)
    if text.endswith(".toml") or "/" in text:
        return load_model(_file(text), batch, allow_alias=True)
    if "[" in text and not text.endswith("]"):
        raise ModelError(f"model {text!r}: the bracket of its arguments is not closed")
    if ":" in text:
        if not is_builder(text):
            raise ModelError(f"model {text!r} is not of the form package.module:function")
        return ModelSpec(name=text, builder=text, batch=batch or 1, source="command line")
    names = config_names()
    if text not in names:
        hint = nearest(text, names)
        if text.endswith(".py"):
            hint = f"; a function of that file is {text.removesuffix('.py')}:function"
        elif text.endswith((".pt", ".pth", ".pt2")):
            hint = "; a function package.module:function may load it, and give its torch.nn.Module"
        raise ModelError(
            f"model {text!r} is unknown{hint}; valid: {', '.join(names)}, "
            "a path to a .toml or .onnx file, or package.module:function"
        )
    return load_model(configs_dir() / f"{text}.toml", batch, allow_alias=True)


def _file(text: str) -> Path:
    """The file of this name. Raises ModelError where there is none."""
    with suppress(OSError, RuntimeError):  # a name that is too long; the home of an unknown user
        path = Path(text).expanduser()
        if path.is_file():
            return path
    raise ModelError(f"model {text!r:.300}: there is no such file")


def _onnx_model(text: str, batch: int | None) -> ModelSpec:
    """A file of ONNX; arguments beside its path are extents of its dimensions."""
    path = _file(text)
    dims = () if batch is None else (("batch", batch),)
    args = (*dims, ("path", str(path)))
    return ModelSpec(path.stem, ONNX_BUILDER, args=args, source=str(path))


def _calibration(text: str) -> ModelSpec:
    """A model in bytes; its file says of which model."""
    path = _file(text)
    name = f"{path.name.removesuffix(CALIBRATED)} int8"
    return ModelSpec(name, _CALIBRATED_BUILDER, args=(("path", str(path)),), source=str(path))


def calibration_file(name: str, store: Path) -> Path:
    """The file of a named model's calibration, beside a store: letters, digits and ``._-`` of the
    name, and underscores for the others.
    """
    return store.expanduser().with_name(re.sub(r"[^\w.-]+", "_", name).strip("_") + CALIBRATED)


def calibrated_model(spec: ModelSpec, store: Path) -> ModelSpec:
    """A named model in bytes, by its calibration beside a store; one that is in bytes already.

    Raises ConfigError where there is none, or the model has no name to find it by.
    """
    if spec.builder == _CALIBRATED_BUILDER:
        return spec
    if not spec.builder:
        raise ConfigError(f"model {spec.name} in int8: tg.quantize(model, batches) makes it")
    path = calibration_file(spec.name, store)
    if not path.is_file():
        raise ConfigError(
            f"model {spec.name} in int8: it is not calibrated, since there is no {path}; make it: "
            f"tunegrad tune MODEL --dtype int8 --calibrate DATA"
        )
    tune = replace(spec.tune, dtype=None)
    return replace(_calibration(str(path)), name=f"{spec.name} int8", tune=tune)
