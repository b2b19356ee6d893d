"""TOML as checked values: every key is known, every value has its declared type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tunegrad.errors import ConfigError

T = TypeVar("T")


_MOST_BYTES = 1 << 20
"""The largest file of settings; those of people have some hundred bytes."""

_LONG_KEY = re.compile(rb"(\.[ \t]*[\w\"'-]+[ \t]*){100}")
"""A dotted key of over 100 parts: tomllib takes the square of their number of steps for it."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of at most 1 MiB as a table.

    Raises ConfigError where it can not be read, is larger, or is not TOML.
    """
    import tomllib

    if path.exists() and not path.is_file():  # a pipe is never at its end
        raise ConfigError(f"{path}: is no regular file")
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: can not be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path}: is over {_MOST_BYTES:,} bytes, the most of a settings file")
    if _LONG_KEY.search(data):
        raise ConfigError(f"{path}: is not TOML: a key has over 100 parts")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except ValueError as error:  # no TOML, no text, or a number of over 4,300 digits
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: is not TOML: its brackets are nested too deeply") from None


def convert_table(cls: type[T], table: object, place: str) -> T:
    """``table`` as an instance of the dataclass ``cls``: known keys, each of its declared type."""
    if not isinstance(table, dict):
        raise ConfigError(f"{place} = {table!r:.200} is not a table")
    hints = get_type_hints(cls)
    names = tuple(f.name for f in fields(cls))  # type: ignore[arg-type]  # every caller passes a dataclass
    check_keys(table, names, place)
    values = {}
    for key, value in table.items():
        try:
            values[key] = _as_declared(value, hints[key])
        except TypeError:
            values[key] = _converted(value, hints[key], f"{place}.{key} = {value!r:.200}")
    for f in fields(cls):  # type: ignore[arg-type]
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{place}.{f.name} is missing")
    return cls(**values)


def _as_declared(value: object, hint: Any) -> object:
    """A value that is of the declared type as it stands; lists become tuples where these are.

    Raises TypeError for others.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for one in args:
            with suppress(TypeError):
                return _as_declared(value, one)
    elif type(value) is list and (origin is list or args[1:] == (...,)):
        items = [_as_declared(x, args[0]) for x in value]
        return items if origin is list else tuple(items)
    elif type(value) is dict and origin is dict:
        return {key: _as_declared(x, args[1]) for key, x in value.items()}
    elif type(value) is hint or (origin is Literal and type(value) is str and value in args):
        return value
    raise TypeError


def _converted(value: object, hint: Any, what: str) -> object:
    import msgspec  # which most files need not

    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{what}: {error}") from error


def check_keys(table: Mapping[str, Any], valid: Iterable[str], place: str) -> None:
    """Raise ConfigError for a key that is none of ``valid``."""
    valid = tuple(valid)
    for key in table:
        if key not in valid:
            raise ConfigError(
                f"{place}: unknown key {key!r:.200}{nearest(key, valid)}; valid: {', '.join(valid)}"
            )


def nearest(text: str, valid: Iterable[str]) -> str:
    """``, did you mean 'x'?`` where one of ``valid`` is close to ``text``."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in valid}
    close = get_close_matches(text.lower(), names, n=1)
    return f", did you mean {names[close[0]]!r}?" if close else ""
