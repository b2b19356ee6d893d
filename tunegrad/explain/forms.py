"""Every form of kernels under their schedules, as files to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tunegrad.compiling import build
from tunegrad.devices import Device
from tunegrad.errors import ConfigError
from tunegrad.opts import Schedule, dump_to_folder
from tunegrad.reports import ExplainRow
from tunegrad.tuning import KernelUse

__all__ = ["dump_forms"]


def dump_forms(
    uses: Sequence[KernelUse],
    rows: Sequence[ExplainRow],
    device: Device,
    folder: Path | None,
) -> None:
    """Write what every pass makes of each kernel under the actions of its row.

    A kernel has a folder named by the first 12 digits of its key; None writes nothing. Raises
    ConfigError where it can not be written, IllegalAction for a schedule that is not legal on the
    device.
    """
    if folder is None:
        return
    for use, row in zip(uses, rows, strict=True):
        own = folder / use.kernel.key[:12]
        try:
            observe = dump_to_folder(own)
            title = f"# {use.kernel.name}\n{row.actions}".rstrip()
            (own / "actions.txt").write_text(f"{title}\n", encoding="utf-8")
            build(use.kernel, Schedule.parse(row.actions), device, observe)
        except OSError as error:
            raise ConfigError(f"dump {own}: {error.strerror or error}") from error
