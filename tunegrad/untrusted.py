"""Values of an untrusted file: each checked for type, range and size before anything is made of it.

Exports of stores and recorded spaces are read with these rules. One that is broken is a FieldFault,
which names the field, the value (shortened, and with nothing in it that a terminal would act on)
and the rule. Plain data only: nothing here evaluates, imports or opens what it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tunegrad.errors import StoreError

__all__ = [
    "Fault",
    "FieldFault",
    "anything",
    "exact",
    "flag",
    "free_text",
    "integer",
    "json_object",
    "json_value",
    "listing",
    "number",
    "record",
    "shortened",
    "text",
    "word",
]

_SHOWN = 60
_LARGEST_S = 1e12
"""No time, and no moment since the epoch, is beyond this many seconds."""

Rule = Callable[[str, Any], Any]


class Fault(StoreError):
    """Something in a file that breaks a rule.

    Whoever reads the file says where, or leaves the row out.
    """


class FieldFault(Fault):
    """A value of a file that breaks its rule: field, value and rule in one line."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field} is {shortened(value)}: {rule}")
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


def text(limit: int, *, lines: bool = False) -> Rule:
    """A string of at most ``limit`` characters that is valid Unicode and, but for line ends and
    tabs, printable.
    """

    def rule(field: str, value: Any) -> str:
        if not isinstance(value, str):
            raise FieldFault(field, value, "must be a string")
        if len(value) > limit:
            raise FieldFault(field, value, f"must have at most {limit} characters")
        allowed = value.translate({9: "", 10: "", 13: ""}) if lines else value
        if not allowed.isprintable():
            raise FieldFault(field, value, "must be printable text")
        return value

    return rule


def free_text(limit: int) -> Rule:
    """A string of at most ``limit`` characters that is valid Unicode: whoever prints it makes it
    printable.
    """

    def rule(field: str, value: Any) -> str:
        if not isinstance(value, str):
            raise FieldFault(field, value, "must be a string")
        if len(value) > limit:
            raise FieldFault(field, value, f"must have at most {limit} characters")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise FieldFault(field, value, "must be valid Unicode")
        return value

    return rule


def word(length: int) -> Rule:
    """Exactly ``length`` lower-case hexadecimal digits."""

    def rule(field: str, value: Any) -> str:
        if (
            not isinstance(value, str)
            or len(value) != length
            or set(value) - set("0123456789abcdef")
        ):
            raise FieldFault(field, value, f"must be {length} lower-case hexadecimal digits")
        return value

    return rule


def exact(*choices: str) -> Rule:
    """One of the given strings."""

    def rule(field: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise FieldFault(field, value, f"must be one of {', '.join(choices)}")
        return value

    return rule


def number(low: float = 0.0, high: float = _LARGEST_S) -> Rule:
    """A finite number from ``low`` to ``high``."""

    def rule(field: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldFault(field, value, "must be a number")
        if not low <= value <= high:
            raise FieldFault(field, value, f"must be a finite number from {low:g} to {high:g}")
        return float(value)

    return rule


def integer(low: int, high: int) -> Rule:
    """An integer from ``low`` to ``high``."""

    def rule(field: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FieldFault(field, value, "must be an integer")
        if not low <= value <= high:
            raise FieldFault(field, value, f"must be from {low} to {high}")
        return value

    return rule


def flag(field: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise FieldFault(field, value, "must be true or false")
    return value


def anything(_field: str, value: Any) -> Any:
    """Any value, as it is: what it is part of looks at it."""
    return value


def listing(limit: int, item: Rule) -> Rule:
    """A list of at most ``limit`` items."""

    def rule(field: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise FieldFault(field, value, "must be a list")
        if len(value) > limit:
            raise FieldFault(field, value, f"must have at most {limit} items")
        return tuple(item(f"{field}[{i}]", v) for i, v in enumerate(value))

    return rule


def record(rules: Mapping[str, Rule]) -> Rule:
    """An object with exactly these fields."""

    def rule(field: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise FieldFault(field, value, "must be an object")
        if missing := sorted(rules.keys() - value.keys()):
            raise FieldFault(field, value, f"must have {', '.join(missing)}")
        if unknown := sorted(value.keys() - rules.keys()):
            raise FieldFault(field, unknown[0], f"no such field; valid: {', '.join(rules)}")
        prefix = f"{field}." if field else ""
        return {name: rules[name](f"{prefix}{name}", v) for name, v in value.items()}

    return rule


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
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FieldFault("line", twice, "a field may be named once")
    return value


def _no_constant(name: str) -> NoReturn:
    raise FieldFault("line", name, "numbers must be finite")
