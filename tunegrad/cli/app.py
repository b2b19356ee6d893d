"""The root command: finds subcommands without importing all, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from errno import EBADF, EDQUOT, EIO, ENOSPC

import click

from tunegrad.cli.options import CommandGroup
from tunegrad.cli.output import OutputError, note, say, stdout_of_results
from tunegrad.errors import ModelCodeError, UserError

# Also the order in which `tunegrad --help` lists them: the main job first.
COMMANDS = (
    "tune",
    "run",
    "show",
    "explain",
    "time",
    "report",
    "watch",
    "regress",
    "compare",
    "store",
    "models",
    "cache",
    "doctor",
)

_FILES = {
    "cache": "installation", "compare": "regress", "doctor": "installation",
    "models": "installation", "watch": "report",
}  # fmt: skip
"""The modules of commands that share one; others have the command's name."""

EXIT_USER_ERROR = 1
EXIT_MISMATCH = 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it

_LEAST_BYTES = 1 << 30
"""Addresses (``ulimit -v``) below which LLVM may fail to load, by an error of any kind."""


class LazyGroup(CommandGroup):
    """Commands stand in modules of this package, under their own names, imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Every command's name, in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        """The command, imported; None for a name that is none."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tunegrad.cli.{_FILES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"tunegrad {version('tunegrad')}")
    except PackageNotFoundError:
        click.echo("tunegrad (not installed)")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  tunegrad tune resnet18",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.option("-v", "--verbose", count=True, help="Log more on stderr; twice: everything.")
@click.option("-q", "--quiet", is_flag=True, help="Log errors alone.")
def root(verbose: int, quiet: bool) -> None:
    """Search for the fastest correct way to run your model on this machine, and remember it."""
    if verbose or quiet:
        import logging

        level = logging.ERROR if quiet else logging.DEBUG if verbose > 1 else logging.INFO
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("tunegrad").setLevel(level)


def run(argv: Sequence[str], command: click.Command = root, name: str = "tunegrad") -> int:
    """Run the command line ``argv`` (without the program's name); returns the exit code. Benchmarks
    of a checkout run commands of their own by it, each under its ``name``.

    An internal error is not caught: it leaves with its traceback.
    """
    try:
        return _exit_code(argv, command, name)
    except BrokenPipeError:
        # The reader of our stdout left. What is still buffered must not fail again when Python
        # exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_USER_ERROR
    except OSError as error:
        if error.filename is not None or error.errno not in (ENOSPC, EDQUOT, EIO, EBADF):
            raise
        note(f"error: stdout: can not be written: {error.strerror}")  # by click: a help text
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_USER_ERROR


def _exit_code(argv: Sequence[str], command: click.Command, name: str) -> int:
    as_json = "--json" in argv
    try:
        helps = not {"-h", "--help"}.isdisjoint(argv)
        with stdout_of_results() if as_json and not helps else nullcontext():
            result = command.main(args=list(argv), prog_name=name, standalone_mode=False)
        if sys.stdout is not None:
            say("")
    except click.ClickException as error:
        if as_json:
            _say_error("UsageError", error.format_message())
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as stop:
        if isinstance(stop.__cause__, EOFError):  # click takes the end of any file for a user's
            raise stop.__cause__ from None
        if as_json:
            _say_error("Interrupted", "interrupted")
        note("interrupted")
        return EXIT_INTERRUPTED
    except (MemoryError, OSError, ImportError) as error:
        if not isinstance(error, MemoryError) and not _is_short_of_addresses():
            raise
        said = f"no memory: {error}" if str(error) else "no memory"
        if as_json:
            _say_error("MemoryError", said)
        note(f"error: {said}")
        return EXIT_USER_ERROR
    except UserError as error:
        said = " ".join(str(error).split())
        if as_json and not isinstance(error, OutputError):
            _say_error(type(error).__name__, said)
        note(f"error: {said}")
        if frames := _frames(error):
            note(frames)
        return EXIT_USER_ERROR
    return result if isinstance(result, int) else 0


def _is_short_of_addresses() -> bool:
    from tunegrad.config import machine_bytes

    return machine_bytes() < _LEAST_BYTES


def _frames(error: UserError) -> str:
    """Lines of the user's own files that an error came through: of a model that is traced, too."""
    if isinstance(error, ModelCodeError):
        return error.frames
    from tunegrad.config import users_frames

    return users_frames(error)


def _say_error(kind: str, message: str) -> None:
    """Print an error as an object on stdout, for a command with ``--json``."""
    try:
        say(json.dumps({"error": {"kind": kind, "message": " ".join(message.split())}}) + "\n")
    except OutputError as lost:
        note(f"error: {lost}")
