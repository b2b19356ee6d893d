"""Groups of commands: in the order in which they were added; a name that is nearly right gets a
hint.
"""

from __future__ import annotations

from difflib import get_close_matches

import click

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """A group that lists its commands in their order: looking first, or the main job."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Every command's name."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; the error of a name that is none names the nearest one and all others."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = self.list_commands(ctx)
            near = get_close_matches(args[0], names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            message = f"{error.message.rstrip('.')}.{hint} Commands: {', '.join(names)}."
            raise click.UsageError(message, ctx) from error
