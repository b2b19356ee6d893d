"""Action lists print as text that parses back to the same list; text that is none is one clear
error.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegrad.errors import IllegalAction, UserError
from tunegrad.opts import Action, action_names, parse_actions, print_actions
from tunegrad.opts.actions import ACTIONS, Reorder, Stage, Thread, Tile, Upcast

NAME = st.from_regex(
    r"[A-Za-z_][A-Za-z_0-9.]{0,8}", fullmatch=True, alphabet=st.characters(max_codepoint=127)
)
FIELD = {
    "int": st.integers(0, 10**17), "str": NAME,
    "tuple[str, ...]": st.lists(NAME, max_size=4).map(tuple),
}  # fmt: skip


def instances() -> st.SearchStrategy[Action]:
    return st.sampled_from(sorted(ACTIONS)).flatmap(
        lambda name: st.builds(
            ACTIONS[name], **{f.name: FIELD[str(f.type)] for f in dataclasses.fields(ACTIONS[name])}
        )
    )


@given(st.lists(instances(), max_size=5))
def test_actions_printed_parse_back_to_themselves(actions):
    assert parse_actions(print_actions(actions)) == tuple(actions)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_actions_any_other_text_is_an_illegal_action(text):
    try:
        actions = parse_actions(text)
    except IllegalAction:
        return
    assert parse_actions(print_actions(actions)) == actions


@given(
    instances(),
    st.integers(0, 60),
    st.sampled_from(["", "(", ")", ",", "=", " ", "x", "7", "-", "'"]),
)
def test_actions_damaged_text_is_an_illegal_action_or_another_list(action, at, put):
    text = str(action)
    damaged = text[:at] + put + text[at + 1 :]
    try:
        actions = parse_actions(damaged)
    except IllegalAction:
        return
    assert parse_actions(print_actions(actions)) == actions


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("", ()),
        ("  \n ", ()),
        ("tile(m, 4)", (Tile("m", 4),)),
        ("tile(size=4, axis=m)upcast(m1)", (Tile("m", 4), Upcast("m1"))),
        ("tile ( axis = m , size = 4 )", (Tile("m", 4),)),
        ("thread(axis=m)", (Thread("m", 0),)),
        ("reorder(order=(b, a))", (Reorder(("b", "a")),)),
        ("reorder((b))", (Reorder(("b",)),)),
        ("stage(param=B, at=(), layout=())", (Stage("B", "", ()),)),
        ("stage(B, load)", (Stage("B", "load", ()),)),
    ],
)
def test_actions_text_may_be_short(text, actions):
    assert parse_actions(text) == actions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("melt(axis=m)", f"no action 'melt'; valid: {', '.join(action_names())}"),
        ("Tile(axis=m, size=4)", "no action 'Tile'; valid: epilogue, fuse"),
        ("tile(axis=m)", "missing 1 required positional argument: 'size'"),
        ("tile()", "missing 2 required positional arguments"),
        ("tile(axis=m, size=4, axis=n)", "tile has no argument 'axis' left; it takes axis, size"),
        ("tile(axis=m, by=4)", "tile has no argument 'by' left; it takes axis, size"),
        ("tile(m, 4, 5)", r"tile takes 2 arguments \(axis, size\)"),
        ("tile(axis=m, size=four)", r"tile\(size=four\): expected int"),
        ("tile(axis=3, size=4)", r"tile\(axis=3\): expected str"),
        ("reorder(order=m)", r"reorder\(order=m\): expected tuple"),
        ("tile(axis=(a, b), size=4)", r"tile\(axis=\(a, b\)\): expected str"),
        ("reorder(order=(a, 3))", "expected a name between the parentheses, found '3'"),
        ("reorder(order=(a, (b)))", r"expected a name between the parentheses, found '\('"),
        ("tile(axis=m, size=4", "expected ',', found 'the end'"),
        ("tile(axis=m size=4)", "expected ',', found 'size'"),
        ("tile axis=m", r"expected '\(', found 'axis'"),
        ("tile(axis=, size=4)", "expected a value, found ','"),
        ("tile(axis=m, size=-4)", r"unexpected '-4\)' at position 18"),
        ("tile(axis='m', size=4)", "unexpected \"'m', size=\" at position 10"),
        ("tile(axis=m, size=4); upcast(axis=m1)", "unexpected '; upcast\\(a' at position 20"),
        (")", "no action '\\)'"),
        ("tile(axis=m, size=" + "9" * 5000 + ")", "expected ',', found '9{18}'"),
        ("reorder(order=" + "(" * 50_000, r"expected a name between the parentheses, found '\('"),
    ],
)
def test_actions_text_that_is_none_says_what_was_expected(text, message):
    with pytest.raises(IllegalAction, match=message) as caught:
        parse_actions(text)
    assert isinstance(caught.value, UserError)
    assert str(caught.value).startswith("actions: ")


def test_actions_are_frozen_values():
    assert Tile("m", 4) == Tile("m", 4)
    assert len({Tile("m", 4), Tile("m", 4), Tile("m", 8)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Tile("m", 4).size = 8
