"""The model that a text means: a name, a file, or a function."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

from tunegrad.errors import ConfigError, ModelError

from .model_files import ONNX_BUILDER, is_builder, load_model
from .tables import nearest
from .values import ModelSpec, Scalar

__all__ = ["config_names", "configs_dir", "resolve_model"]


def configs_dir() -> Path:
    """The directory of the named model files: inside the installed package, or at the top of a
    checkout.
    """
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
    the file's: ``resnet18[batch=8,image=128]``. Of an ONNX file they are extents, shapes and values
    of inputs, under any name: ``model.onnx["a, b"=8,x.1=3]``.

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
    return replace(
        spec,
        name=f"{spec.name}[{said}]",
        args=tuple(sorted({**dict(spec.args), **given}.items())),
        inputs=() if given else spec.inputs,
    )


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
        return load_model(path, batch, allow_alias=True)
    if ":" in text:
        if not is_builder(text):
            raise ModelError(f"model {text!r} is not of the form package.module:function")
        return ModelSpec(name=text, builder=text, batch=batch or 1, source="command line")
    names = config_names()
    if text not in names:
        raise ModelError(
            f"model {text!r} is unknown{nearest(text, names)}; valid: {', '.join(names)}, "
            "a path to a .toml or .onnx file, or package.module:function"
        )
    return load_model(configs_dir() / f"{text}.toml", batch, allow_alias=True)


def _onnx_model(text: str, batch: int | None) -> ModelSpec:
    """A file of ONNX; arguments beside its path are extents of its dimensions."""
    path = Path(text).expanduser()
    if not path.is_file():
        raise ModelError(f"model {text!r}: there is no such file")
    dims = () if batch is None else (("batch", batch),)
    args = (*dims, ("path", str(path)))
    return ModelSpec(path.stem, ONNX_BUILDER, args=args, source=str(path))
