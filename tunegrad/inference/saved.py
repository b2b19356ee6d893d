"""A model from a file ``NAME.plan``, which a loaded model's ``save`` wrote."""

from __future__ import annotations

import logging
from pathlib import Path

from tunegrad import devices
from tunegrad.compiling import code_of, open_model
from tunegrad.config import ModelDtype
from tunegrad.errors import CandidateFailure, ConfigError, DeviceError, ModelError
from tunegrad.inference.choosing import Choice
from tunegrad.inference.loaded import LoadedModel
from tunegrad.inference.process import engine_of
from tunegrad.ir.fusion import VALIDATION
from tunegrad.runtime import Code, Constants

_log = logging.getLogger(__name__)


def opened_model(
    path: Path,
    device: str,
    threads: int | None,
    weights: object,
    dtype: ModelDtype | None,
) -> LoadedModel:
    """A saved model. Raises ModelError, ConfigError or DeviceError."""
    saved, arch, features = open_model(path)
    asked: dict[str, tuple[object, object]] = {
        "device": (None if device == devices.DEFAULT else device, saved.device),
        "threads": (threads, saved.threads),
        "dtype": (dtype, saved.dtype),
        "weights": (weights, "its own"),
    }
    for name, (value, has) in asked.items():
        if value not in (None, has):
            raise ConfigError(f"{name} {value!r}: model file {path} was saved with {has}")
    opened = devices.open(saved.device, saved.threads)
    missing = sorted(features - set(opened.target.features))
    if missing or (not features and arch != opened.target.arch):
        lacks = f" without {', '.join(missing[:4])}" if missing else ""
        raise DeviceError(
            f"model file {path} is for {arch}; this machine is {opened.target.arch}{lacks}: load "
            "the model here, and save it again"
        )
    if saved.validated != VALIDATION:
        how = f"by rules {saved.validated}, not {VALIDATION}" if saved.validated else "not at all"
        _log.warning(
            "model file %s: its plan was not compared with its graph as this tunegrad does it "
            "(%s); load the model itself, and save it again", path, how,
        )  # fmt: skip
    engine = engine_of(opened)
    constants = Constants(engine, untouched=True)
    for buffer, pack, values in saved.constants:
        constants.give(saved.plan.buffers[buffer], pack, values)
    chosen: dict[str, tuple[Choice, Code]] = {}
    for key, k in saved.kernels.items():
        lowered = k.program.lowered
        try:
            loaded = engine.load(lowered, k.image)
        except CandidateFailure as error:
            raise ModelError(f"model file {path}: its code does not load here: {error}") from error
        choice = Choice(k.kernel, k.outcome, k.actions, None, k.differs)
        chosen[key] = choice, code_of(lowered, loaded)
    return LoadedModel(
        saved.name, saved.inputs, saved.plan, chosen, engine, str(path), saved.dtype,
        constants=constants, guards=saved.guards, validated=saved.validated,
    )  # fmt: skip
