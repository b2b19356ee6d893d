"""Records as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath

__all__ = ["Json", "to_json"]

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def to_json(value: object) -> Json:
    """``value`` as JSON data: records become objects of their fields and properties, infinities and
    NaN become null.
    """
    match value:
        case Enum():
            return to_json(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case PurePath():
            return str(value)
        case Mapping():
            return {str(to_json(k)): to_json(v) for k, v in value.items()}
        case Iterable():
            return [to_json(v) for v in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [f.name for f in fields(value)]
            names += [n for n, member in vars(type(value)).items() if isinstance(member, property)]
            return {name: to_json(getattr(value, name)) for name in names}
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")
