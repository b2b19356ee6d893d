"""Values of files that nobody vouches for: what is taken, and what is said of what is not."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Literal

import pytest
from msgspec import Struct

from tunegrad.untrusted import (
    FieldFault,
    Time,
    at_most,
    converted,
    free_text,
    printable,
    shortened,
    whole,
)


class Inner(Struct, forbid_unknown_fields=True):
    kind: Literal["a", "b"]
    limit: Time | Literal["inf"] = 0.0


class Outer(Struct, forbid_unknown_fields=True):
    name: Annotated[str, printable(5)]
    count: Annotated[int, whole(1, 9)]
    on: bool
    times: Annotated[tuple[Time, ...], at_most(2)]
    said: dict[Annotated[str, printable(3)], Time | Annotated[str, printable(5)]]
    inner: tuple[Inner, ...]
    none: Time | None = None


SOUND = {"name": "x", "count": 1, "on": True, "times": [1], "said": {"a": 1, "b": "c"}}
SOUND["inner"] = [{"kind": "a", "limit": "inf"}]


def test_sound_values_come_out_as_what_the_form_says() -> None:
    found = converted(Outer, SOUND)
    assert found == Outer("x", 1, True, (1.0,), {"a": 1.0, "b": "c"}, (Inner("a", "inf"),))
    assert isinstance(found.times[0], float)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 7}, "name is 7: must be a string"),
        ({"name": "abcdef"}, "name is 'abcdef': must be printable text of at most 5 characters"),
        ({"name": "a\x1b"}, "name is 'a\\x1b': must be printable text of at most 5 characters"),
        ({"name": "a\n"}, "name is 'a\\n': must be printable text of at most 5 characters"),
        ({"count": 0}, "count is 0: must be from 1 to 9"),
        ({"count": 2**70}, "count is 1180591620717411303424: must be from 1 to 9"),
        ({"count": 1.0}, "count is 1.0: must be an integer"),
        ({"count": True}, "count is True: must be an integer"),
        ({"count": "1"}, "count is '1': must be an integer"),
        ({"on": 1}, "on is 1: must be true or false"),
        ({"times": {}}, "times is an object of 0: must be a list"),
        ({"times": [1, 2, 3]}, "times is a list of 3: must have at most 2 items"),
        ({"times": [1, -1]}, "times[1] is -1: must be a finite number from 0 to 1e+12"),
        ({"times": [True]}, "times[0] is True: must be a number"),
        ({"times": [10**400]}, "times[0] is a huge integer: must be a finite number from 0 to"),
        ({"times": [float("inf")]}, "times[0] is inf: must be a finite number from 0 to 1e+12"),
        ({"times": [float("nan")]}, "times[0] is nan: must be a finite number from 0 to 1e+12"),
        ({"said": {"a": [1]}}, "said.a is a list of 1: must be a number or a string"),
        ({"said": {"a": "123456"}}, "said.a is '123456': must be printable text of at most 5"),
        ({"inner": [{"kind": "c"}]}, "inner[0].kind is 'c': must be one of a, b"),
        ({"inner": [{"kind": "a", "limit": "x"}]}, "inner[0].limit is 'x': must be one of inf"),
        ({"inner": [{}]}, "inner[0] is an object of 0: must have kind"),
        ({"inner": [{"kind": "a", "x": 1}]}, "inner[0] is 'x': no such field; valid: kind, limit"),
        ({"inner": [3]}, "inner[0] is 3: must be an object"),
        ({"none": "x"}, "none is 'x': must be a number"),
        ({"__class__": 1}, "it is '__class__': no such field; valid: name, count, on"),
    ],
)
def test_what_breaks_a_rule_is_named_with_its_place_and_the_rule(
    change: dict[str, object], said: str
) -> None:
    with pytest.raises(FieldFault) as caught:
        converted(Outer, SOUND | change)
    assert str(caught.value).startswith(said)


def test_printable_text_is_what_python_calls_so() -> None:
    """But for code points that no Unicode knows yet, which no terminal acts on."""
    one_line, lines = (re.compile(str(printable(9, lines=x).pattern)) for x in (False, True))
    free = re.compile(str(free_text(9).pattern))
    for c in map(chr, range(0x110000)):
        if unicodedata.category(c) != "Cn":
            assert bool(one_line.search(c)) == c.isprintable(), ascii(c)
            assert bool(lines.search(c)) == (c.isprintable() or c in "\t\n\r"), ascii(c)
        assert bool(free.search(c)) == (not "\ud800" <= c <= "\udfff"), ascii(c)


def test_values_are_shown_short_and_without_what_a_terminal_acts_on() -> None:
    assert shortened("\x1b[2J") == r"'\x1b[2J'"
    assert shortened("x" * 5000) == f"'{'x' * 60}'... [5000 characters]"
    assert shortened([1] * 9) == "a list of 9"
    assert shortened(10**400) == "a huge integer"
