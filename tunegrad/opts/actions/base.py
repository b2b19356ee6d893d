"""Actions: small frozen values that print as text and rewrite a loop tree.

    text  := action*                     action := name "(" arg ("," arg)* ")"
    arg   := [field "="] value           value  := int | name | "(" [name ("," name)*] ")"

``print_actions`` and ``parse_actions`` are inverse. Parsing reads data only: no name is looked up
but an action's.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import cache
from typing import ClassVar

from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopTree
from tunegrad.lazy import dataclass

ACTIONS: dict[str, type[Action]] = {}


@dataclass(frozen=True, slots=True)
class Action(ABC):
    """One step of a schedule.

    ``apply`` is pure; it raises IllegalAction when the step's rule is broken.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        # dataclass(slots=True) makes the class twice; both times the name points at the newest one
        if cls.name:
            ACTIONS[cls.name] = cls

    @abstractmethod
    def apply(self, tree: LoopTree) -> LoopTree:
        """The rewritten tree; IllegalAction when the action is not legal. ``tree`` stays."""

    @classmethod
    @abstractmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        """Legal and sensible instances for this tree, in a fixed order."""

    @staticmethod
    def legal(tree: LoopTree, actions: Iterable[Action]) -> Iterator[Action]:
        """Those of ``actions`` that are legal on ``tree``, in order."""
        for action in actions:
            try:
                action.check(tree)
            except IllegalAction:
                continue
            yield action

    def check(self, tree: LoopTree) -> None:
        """Raises IllegalAction when ``apply`` would."""
        self.apply(tree)

    def fail(self, tree: LoopTree, rule: str) -> IllegalAction:
        """The error that this action breaks ``rule`` on ``tree``'s kernel."""
        return IllegalAction(f"{self}: {rule} (kernel {tree.kernel.name})")

    def __str__(self) -> str:
        shown = [f"{name}={_show(getattr(self, name))}" for name in _arguments(type(self))]
        return f"{self.name}({', '.join(shown)})"


@cache
def _arguments(cls: type[Action]) -> tuple[str, ...]:
    """The names of an action's arguments, in order."""
    return tuple(f.name for f in fields(cls))


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_show, value))})"
    return str(value)


def action_names() -> tuple[str, ...]:
    """The names that an action text may use."""
    return tuple(sorted(ACTIONS))


def print_actions(actions: Iterable[Action]) -> str:
    """The text of a schedule, one line."""
    return " ".join(map(str, actions))


def apply_actions(
    tree: LoopTree, actions: Iterable[Action], observe: ActionObserver | None = None
) -> LoopTree:
    """The tree after every action in turn; ``observe`` is told of each: the action, the tree
    before it and the tree after it.

    Raises IllegalAction, which names the action, at the first illegal one.
    """
    for a in actions:
        before = tree
        try:
            tree = a.apply(tree)
        except IllegalAction as error:
            rule = str(error)
            raise IllegalAction(rule if rule.startswith(f"{a.name}(") else f"{a}: {rule}") from None
        if observe is not None:
            observe(a, before, tree)
    return tree


ActionObserver = Callable[[Action, LoopTree, LoopTree], None]
"""Is told an action that was applied, the tree before it and the tree after it."""


_TOKEN = re.compile(r"\s*(?:([0-9]{1,18})|([A-Za-z_][A-Za-z_0-9.]*)|([(),=]))")


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        m = _TOKEN.match(text, at)
        if m is None:
            raise IllegalAction(f"actions: unexpected {text[at : at + 10]!r} at position {at}")
        found.append(m.group().strip())
        at = m.end()
    return found


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise IllegalAction(
                f"actions: expected {expected or 'a value'!r}, found {token or 'the end'!r}"
            )
        self.at += 1
        return token

    def value(self) -> object:
        token = self.take()
        if token == "(":
            return self.names()
        if token in "),=":
            raise IllegalAction(f"actions: expected a value, found {token!r}")
        return int(token) if token[0].isdigit() else token

    def names(self) -> tuple[str, ...]:
        items = []
        while self.peek() != ")":
            token = self.take()
            if not (token[0].isalpha() or token[0] == "_"):
                raise IllegalAction(
                    f"actions: expected a name between the parentheses, found {token!r}"
                )
            items.append(token)
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        return tuple(items)


def parse_actions(text: str) -> tuple[Action, ...]:
    """The actions that print as ``text`` (positional arguments are accepted too).

    IllegalAction when it does not parse.
    """
    reader = _Reader(_tokens(text))
    actions = []
    while reader.peek():
        actions.append(_action(reader))
    return tuple(actions)


def _action(reader: _Reader) -> Action:
    name = reader.take()
    cls = ACTIONS.get(name)
    if cls is None:
        raise IllegalAction(f"actions: no action {name!r}; valid: {', '.join(action_names())}")
    reader.take("(")
    names = [f.name for f in fields(cls)]
    args: dict[str, object] = {}
    position = 0
    while reader.peek() != ")":
        if reader.peek(1) == "=":
            field = reader.take()
            reader.take("=")
        elif position < len(names):
            field = names[position]
            position += 1
        else:
            raise IllegalAction(
                f"actions: {name} takes {len(names)} arguments ({', '.join(names)})"
            )
        if field not in names or field in args:
            raise IllegalAction(
                f"actions: {name} has no argument {field!r} left; it takes {', '.join(names)}"
            )
        args[field] = reader.value()
        if reader.peek() != ")":
            reader.take(",")
    reader.take(")")
    return _build(cls, args)


def _build(cls: type[Action], args: dict[str, object]) -> Action:
    for f in fields(cls):
        kind = str(f.type)
        if f.name not in args:
            continue
        value = args[f.name]
        good = (
            isinstance(value, int) if kind == "int" else isinstance(value,
                str) if kind == "str" else
            isinstance(value, tuple) and all(isinstance(v, str) for v in value)
        )  # fmt: skip
        if kind == "str" and value == ():
            args[f.name], good = "", True
        if not good:
            raise IllegalAction(f"actions: {cls.name}({f.name}={_show(value)}): expected {kind}")
    try:
        return cls(**args)
    except TypeError as error:
        raise IllegalAction(f"actions: {cls.name}: {error}") from None
