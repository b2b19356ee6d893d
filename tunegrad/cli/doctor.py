"""``tunegrad doctor``: what this machine is, what is installed, and what it can do at best."""

from __future__ import annotations

import click

from tunegrad.cli.options import example, json_option
from tunegrad.cli.output import emit

__all__ = ["doctor"]


@click.command(epilog=example("tunegrad doctor"))
@json_option
def doctor(as_json: bool) -> None:
    """List devices, compilers, versions; measure the machine's peaks.

    Peaks are of f32 FMA and of memory bandwidth, with one thread and with all. Isolation is what
    keeps a candidate from harming anything outside its process; docs/ISOLATION.md says what each
    part stops.
    """
    from tunegrad.cli.tables import doctor_text
    from tunegrad.tune import doctor as examine

    report = examine()
    emit(report, doctor_text(report), as_json=as_json)
