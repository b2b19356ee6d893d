"""Values of an untrusted file: each checked for type, range and size before anything is made of it.

Exports of stores and recorded spaces are read with these rules. A msgspec Struct says what a file
may hold; the constraints below say its ranges and lengths. One that is broken is a FieldFault,
which names the field, the value (shortened, and with nothing in it that a terminal would act on)
and the rule. Plain data only: nothing here evaluates, imports or opens what it is given.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from tunegrad.errors import StoreError

_SHOWN = 60
_LARGEST_S = 1e12
"""No time, and no moment since the epoch, is beyond this many seconds."""

T = TypeVar("T")

_REFUSALS = msgspec.ValidationError, OverflowError, UnicodeEncodeError
"""Of msgspec: a broken rule, an integer that no float holds, text that is no Unicode."""


class FieldFault(StoreError):
    """A value of a file that breaks its rule: field, value and rule in one line.

    The reader of the file says where, or leaves the row out.
    """

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field or 'it'} is {shortened(value)}: {rule}")
        self.field, self.value, self.rule = field, shortened(value), rule


def shortened(value: object) -> str:
    """The value as an error message shows it: one line of ASCII of bounded length."""
    if isinstance(value, str | bytes) and len(value) > _SHOWN:
        return (
            f"{value[:_SHOWN]!a}... [{len(value)} "
            f"{'characters' if isinstance(value, str) else 'bytes'}]"
        )
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    shown = (
        ascii(value) if not isinstance(value, int) or abs(value) < 10**_SHOWN else "a huge integer"
    )
    return shown if len(shown) <= 4 * _SHOWN else shown[:_SHOWN] + "..."


# ---- rules

_LINE_ENDS = r"\x09\x0a\x0d"
_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
# Spaces but the usual one; format characters; line ends, surrogates, private use: what
# str.isprintable refuses, less what no Unicode knows. A test compares the two.
_UNSEEN = (
    r"\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f"
    r"\u2028-\u202f\u205f-\u206f\u3000\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    r"\U000e0020-\U000e007f\U000f0000-\U0010ffff"
)


def printable(limit: int, *, lines: bool = False) -> Meta:
    """Of a string: at most ``limit`` valid characters, printable (or line ends and tabs)."""
    refused = _CONTROLS + _UNSEEN + ("" if lines else _LINE_ENDS)
    return Meta(
        max_length=limit,
        pattern=rf"\A[^{refused}]*\Z",
        description=f"must be printable text of at most {limit} characters",
    )


def free_text(limit: int) -> Meta:
    """Of a string: at most ``limit`` characters, valid Unicode; printing makes it printable."""
    return Meta(
        max_length=limit,
        pattern=r"\A[^\ud800-\udfff]*\Z",
        description=f"must be valid Unicode of at most {limit} characters",
    )


def between(low: float, high: float) -> Meta:
    """Of a number: finite, from ``low`` to ``high``."""
    return Meta(ge=low, le=high, description=f"must be a finite number from {low:g} to {high:g}")


def whole(low: int, high: int) -> Meta:
    """Of an integer: from ``low`` to ``high``."""
    return Meta(ge=low, le=high, description=f"must be from {low} to {high}")


def at_most(limit: int, low: int = 0) -> Meta:
    """Of a list or an object: at most ``limit`` items, and no fewer than ``low``."""
    return Meta(
        min_length=low,
        max_length=limit,
        description=f"must have {f'{low} to' if low else 'at most'} {limit} items",
    )


Time = Annotated[float, between(0.0, _LARGEST_S)]
"""Seconds."""


# ---- values


def converted(kind: type[T], value: object, field: str = "") -> T:
    """The value as an instance of ``kind``, by the rules that the type says. Raises FieldFault."""
    try:
        return msgspec.convert(value, kind)
    except _REFUSALS:
        raise _fault(kind, value, field) from None
    except RecursionError:
        raise FieldFault(field, value, "must not be nested so deeply") from None


def _fault(kind: Any, value: Any, field: str) -> FieldFault:
    """The innermost value that breaks a rule; msgspec's own message has no value or field."""
    kind = _meant(kind, value)
    if isinstance(value, dict) and _is_struct(kind):
        fields = msgspec.structs.fields(kind)
        if missing := sorted(f.name for f in fields if f.required and f.name not in value):
            return FieldFault(field, value, f"must have {', '.join(missing)}")
        names = [f.name for f in fields]
        unknown = sorted(value.keys() - set(names))
        if unknown and kind.__struct_config__.forbid_unknown_fields:
            return FieldFault(field, unknown[0], f"no such field; valid: {', '.join(names)}")
    for name, part, rule in _parts(kind, value):
        try:
            msgspec.convert(part, rule)
        except _REFUSALS:
            return _fault(rule, part, f"{field}{name}" if field else name.removeprefix("."))
    return FieldFault(field, value, _rule(kind, value))


_JSON: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "must be a string"),
    int: ((int,), "must be an integer"),
    float: ((int, float), "must be a number"),
    bool: ((bool,), "must be true or false"),
    tuple: ((list,), "must be a list"),
    dict: ((dict,), "must be an object"),
}
"""Each type in JSON: Python's types of it, and the rule."""


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _bare(kind: Any) -> Any:
    """The type without its constraints."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _shape(kind: Any) -> Any:
    """The member of ``_JSON`` that a type is."""
    bare = _bare(kind)
    shape = get_origin(bare) or bare
    return shape if shape in _JSON else dict if _is_struct(shape) else str


def _options(union: Any) -> list[Any]:
    return [k for k in get_args(union) if k is not NoneType]


def _meant(kind: Any, value: object) -> Any:
    """Of a union the type that the value looks like, if there is one."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return next((k for k in _options(kind) if type(value) in _JSON[_shape(k)][0]), kind)


def _parts(kind: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and type of each part of a value that has parts."""
    bare = _bare(kind)
    if _is_struct(bare) and isinstance(value, dict):
        for f in msgspec.structs.fields(bare):
            if f.name in value:
                yield f".{f.name}", value[f.name], f.type
    elif _shape(kind) is tuple and isinstance(value, list):
        first, *others = get_args(bare)
        rules = [first] * len(value) if others == [...] else [first, *others]
        for i, (part, rule) in enumerate(zip(value, rules, strict=False)):
            yield f"[{i}]", part, rule
    elif _shape(kind) is dict and isinstance(value, dict):
        for name, part in value.items():
            yield f".{name}", part, get_args(bare)[1]


def _rule(kind: Any, value: object) -> str:
    """The rule that a value without bad parts breaks."""
    if get_origin(kind) in (Union, UnionType):
        words = (_JSON[_shape(k)][1].removeprefix("must be ") for k in _options(kind))
        return f"must be {' or '.join(words)}"
    bare, shape = _bare(kind), _shape(kind)
    if get_origin(bare) is Literal:
        return f"must be one of {', '.join(get_args(bare))}"
    if shape is str and bare is not str:  # an enumeration
        return f"must be one of {', '.join(bare)}"
    python, named = _JSON[shape]
    described = next((m.description for m in get_args(kind)[1:] if isinstance(m, Meta)), None)
    return described if described and type(value) in python else named


# ---- JSON


def json_value(text: str | bytes) -> Any:
    """The value that a JSON text holds.

    FieldFault for all else, for names said twice, for NaN and infinity.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except FieldFault:
        raise
    except (ValueError, RecursionError) as error:
        raise FieldFault("line", text, f"must be JSON ({type(error).__name__})") from None


def json_object(line: str | bytes) -> dict[str, Any]:
    """The object that a line of JSON holds.

    FieldFault as for ``json_value``, and for what is no object.
    """
    value = json_value(line)
    if not isinstance(value, dict):
        raise FieldFault("line", value, "must be a JSON object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise FieldFault("line", twice, "a field may be named once")
    return value


def _no_constant(name: str) -> NoReturn:
    raise FieldFault("line", name, "numbers must be finite")
