"""Blocks of docs/CLI.md: every command's ``--help``, at a fixed width."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from tunegrad.cli.app import root

__all__ = ["BLOCKS", "help_texts"]


def _commands() -> str:
    return "\n".join(f"## {name}\n\n```text\n{text}\n```\n" for name, text in help_texts())


def help_texts() -> Iterator[tuple[str, str]]:
    """(path, help text) of the root command and of every command under it, at a fixed width."""
    yield from _helps(root, "tunegrad", None)


def _helps(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[str, str]]:
    ctx = click.Context(
        command, info_name=name, parent=parent, terminal_width=100, **command.context_settings
    )
    yield ctx.command_path, "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines())
    if isinstance(command, click.Group):
        for child in command.list_commands(ctx):
            found = command.get_command(ctx, child)
            if found is not None:
                yield from _helps(found, child, ctx)


BLOCKS: dict[str, Callable[[], str]] = {"commands": _commands}
