"""A model of the settings as a Model: built by its builder, with the inputs that its file says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tunegrad.errors import ModelError

from .model import Model, as_model

if TYPE_CHECKING:
    from tunegrad.config import ModelSpec

__all__ = ["model_of_spec"]


def model_of_spec(spec: ModelSpec) -> Model:
    """The model that a spec's builder makes, under the spec's name.

    Modules are also looked for where one stands. Raises ModelError for one that can not be built,
    or that has other inputs than its file says.
    """
    from tunegrad.config import build_model

    model = as_model(build_model(spec, (str(Path.cwd()),)), spec.name)
    said = [(i.shape, i.dtype) for i in spec.inputs]
    built = [(i.shape, i.dtype.name) for i in model.inputs]
    if said and said != built:
        raise ModelError(
            f"{spec.source}: [input] says {_listed(said)}, and builder {spec.builder} makes a "
            f"model of {_listed(built)}"
        )
    return replace(model, name=spec.name)


def _listed(inputs: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in inputs) or "no inputs"
