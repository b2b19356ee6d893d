"""The command line: one file per command, each a thin shell that parses, makes one library call,
and formats.

Data goes to stdout, all else to stderr. Exit codes:

    0    ok
    1    user error: one line, ``error: ...``
    2    usage: an unknown command or option, or a missing argument
    3    a regression or mismatch was found (``store verify`` on a damaged store)
    130  interrupted by Ctrl-C; ``tune`` has kept the best so far and printed its table
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The ``tunegrad`` command. Exits the process with one of the codes above."""
    import sys

    from tunegrad.cli.app import run

    sys.exit(run(sys.argv[1:]))
