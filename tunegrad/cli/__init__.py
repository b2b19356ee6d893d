"""The command line: a file for each command, or for some about one thing, each a thin shell that
parses, makes one library call, and formats.

Data goes to stdout, all else to stderr. Exit codes:

    0    ok
    1    user error: one line, ``error: ...``
    2    usage: an unknown command or option, or a missing argument
    3    a regression or mismatch was found (``store verify`` on a damaged store)
    130  interrupted by Ctrl-C, SIGTERM or SIGHUP; ``tune`` has kept the best so far and printed its
         table

With --json an error, a usage error and an interrupt are also an object on stdout: ``{"error":
{"kind": ..., "message": ...}}``.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The ``tunegrad`` command. Exits the process with one of the codes above."""
    import sys

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    try:
        import signal

        for asked in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(asked) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(asked, stop)
        from tunegrad.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before ``run`` had begun
        if "--json" in sys.argv:
            sys.stdout.write('{"error": {"kind": "Interrupted", "message": "interrupted"}}\n')
        sys.stderr.write("interrupted\n")
        code = 130
    import gc

    gc.freeze()  # the interpreter's last collections free nothing that the system would not
    sys.exit(code)
