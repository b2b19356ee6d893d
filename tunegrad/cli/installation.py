"""An installation: ``tunegrad models``, those that have names; ``tunegrad cache``, compiled kernels
on disk; ``tunegrad doctor``, what is installed, and what this machine is and can do at best.
"""

from __future__ import annotations

import click

from tunegrad.cli.options import example, json_option
from tunegrad.cli.output import emit


@click.command(epilog=example("tunegrad models"))
@json_option
def models(as_json: bool) -> None:
    """List the models that have names, their arguments, and their inputs.

    Other models are a TOML file like those of configs/, an ONNX file, and package.module:function,
    which gives a model, a torch.nn.Module with its examples, or a function of tensors.
    """
    from tunegrad.cli.tables import Table, words
    from tunegrad.config import named_models

    found = named_models()
    table = Table.of(
        found,
        words("model", lambda m: m.name),
        words("inputs", lambda m: " ".join(m.inputs)),
        words("arguments", lambda m: f"as {m.same_as}" if m.same_as else ",".join(m.arguments)),
    )
    emit(found, table.text(), as_json=as_json)


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
