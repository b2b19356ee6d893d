"""``tunegrad cache``: compiled kernels on disk, which can be made again."""

from __future__ import annotations

import click

from tunegrad.cli.options import example, json_option
from tunegrad.cli.output import emit

__all__ = ["cache"]


@click.command(epilog=example("tunegrad cache", "tunegrad cache --clear"))
@click.option("--clear", is_flag=True, help="Remove all of it; a later run compiles anew.")
@json_option
def cache(clear: bool, as_json: bool) -> None:
    """Show where compiled kernels are kept, how many, and how large they are together.

    Past its limit the least recently used ones go by themselves. No measurement is in it: those are
    in stores.
    """
    from tunegrad.config import cache_dir
    from tunegrad.object_cache import ObjectCache

    kept = ObjectCache(cache_dir() / "objects")
    removed = kept.clear() if clear else 0
    objects, nbytes = kept.usage()
    found = {
        "directory": str(kept.directory), "objects": objects, "bytes": nbytes,
        "limit_bytes": kept.limit_bytes, "removed": removed,
    }  # fmt: skip
    text = (
        f"{kept.directory}: {objects} objects, {nbytes / 1e6:.1f} MB of at most "
        f"{kept.limit_bytes / 1e6:.0f}{f'; {removed} removed' if clear else ''}"
    )
    emit(found, text, as_json=as_json)
