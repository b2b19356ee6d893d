"""``tunegrad store diff|why``: how two stores differ, and why a kernel finds what it finds."""

from __future__ import annotations

from pathlib import Path

import click

from tunegrad.cli.app import EXIT_MISMATCH
from tunegrad.cli.files import store_path
from tunegrad.cli.options import (
    device_option,
    example,
    json_option,
    numerics_option,
    store_option,
    threads_option,
)
from tunegrad.cli.output import emit, note

__all__ = ["diff", "why"]


@click.command(epilog=example("tunegrad store diff monday.db tuesday.db"))
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--all", "all_machines", is_flag=True, help="Compare winners of different machines too."
)
@json_option
@click.pass_context
def diff(ctx: click.Context, a: str, b: str, all_machines: bool, as_json: bool) -> None:
    """Show how store B differs from store A: kernels that one lacks, other winners, other
    decisions.

    Winners and decisions are compared on the same machine and space version. Exits with 3 when the
    stores differ; the newest latencies of models are shown side by side, and are no difference.
    """
    from tunegrad.cli.tables import diff_text
    from tunegrad.db import diff_stores

    found = diff_stores(Path(a).expanduser(), Path(b).expanduser(), all_machines=all_machines)
    emit(found, diff_text(found, a, b), as_json=as_json)
    if found.only_a or found.only_b or found.changes or found.decisions:
        ctx.exit(EXIT_MISMATCH)


@click.command(
    epilog=example(
        "tunegrad store why b3e5f756 --store tuned.db",
        'tunegrad store why "matmul 10x512" --store tuned.db',
    )
)
@click.argument("kernel", metavar="KERNEL")
@store_option
@device_option
@threads_option
@numerics_option
@json_option
def why(
    kernel: str,
    store: str | None,
    device: str | None,
    threads: int | None,
    numerics: str,
    as_json: bool,
) -> None:
    """Explain why KERNEL hits, nearly hits or misses on this machine, and why its winner won.

    KERNEL is a name as `tunegrad show` prints it, a key or the first digits of one, or the kernel's
    text. Every field of the key is shown as it is stored and as it is here.
    """
    from tunegrad import devices
    from tunegrad.cli.tables import why_text
    from tunegrad.db import read_contents
    from tunegrad.db import why as explain
    from tunegrad.opts import SPACE_VERSION

    path = store_path(store)
    contents, problems = read_contents(path)
    for problem in problems:
        note(f"{path}: left out: {problem}")
    found = explain(
        contents,
        kernel,
        devices.open(device or devices.DEFAULT, threads).fingerprint(numerics),
        SPACE_VERSION,
    )
    emit(found, why_text(found), as_json=as_json)
