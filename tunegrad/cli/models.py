"""``tunegrad models``: the models that have names, with the arguments that ``--set`` changes."""

from __future__ import annotations

import click

from tunegrad.cli.options import example, json_option
from tunegrad.cli.output import emit

__all__ = ["models"]


@click.command(epilog=example("tunegrad models"))
@json_option
def models(as_json: bool) -> None:
    """List the models that have names, their arguments, and their inputs.

    Other models are a TOML file like those of configs/, an ONNX file, and package.module:function,
    which gives a model, a torch.nn.Module with its examples, or a function of tensors.
    """
    from tunegrad.cli.tables import Table
    from tunegrad.config import named_models

    found = named_models()
    header = ("model", "inputs", "arguments")
    rows = tuple(
        (m.name, " ".join(m.inputs), f"as {m.same_as}" if m.same_as else ",".join(m.arguments))
        for m in found
    )
    emit(found, Table(header, rows, left=header).text(), as_json=as_json)
