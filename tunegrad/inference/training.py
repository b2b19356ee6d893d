"""A step of training that is ready to run: a batch in, the loss out; the state is kept inside."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad.config import Numerics, check_names, resolve_model
from tunegrad.errors import IndexOutOfRange, ModelError, WeightsError
from tunegrad.frontend import (
    InputSpec,
    Model,
    StepModel,
    Tensor,
    Training,
    Weights,
    model_of_spec,
    nn,
)
from tunegrad.inference.choosing import OnMiss
from tunegrad.inference.loaded import LoadedModel
from tunegrad.inference.loading import (
    LoadOptions,
    LoadSettings,
    StorePath,
    load_model,
    warn_of_misses,
)

if TYPE_CHECKING:
    from tunegrad.devices import dlpack

Array = NDArray[Any]
_LINE = 64
_KIND = "tunegrad training state 1"


class StepOptions(TypedDict, total=False):
    """Options of a ``TrainStep``: of an update, and those of ``load``."""

    clip_norm: float | None
    clip_value: float | None
    accumulate: int
    loss_scale: float | nn.optim.LossScale | None
    device: str
    threads: int | None
    store: StorePath
    on_miss: OnMiss
    numerics: Numerics


class TrainStep:
    """Forward, loss, backward and update of a model as one compiled program.

    ``step(*batch)`` trains on a batch, and gives its loss as a number of numpy's. Batches of other
    shapes or dtypes are other programs, compiled when they come first. Not for several threads.
    """

    def __init__(
        self,
        model: nn.Module | Model | str,
        loss: Callable[..., Tensor] | None,
        optimizer: nn.optim.Optimizer,
        *,
        inputs: int = 1,
        weights: Weights | str | None = None,
        seed: int = 0,
        **options: Unpack[StepOptions],
    ) -> None:
        """Make the state before the first step.

        ``model``: a Module (in ``train()`` while it is traced), a Model of one, or a model's name.
        ``loss``: a function of the model's output and the rest of the batch that gives a float of
        shape (); None where the model gives the loss itself. ``inputs``: how many arrays of a batch
        the model takes. ``clip_norm`` and ``clip_value`` are of gradients, ``accumulate`` batches
        make one update by the mean of their gradients, and ``loss_scale`` is a number or a
        ``LossScale``: with it a step whose gradients are not finite changes no parameter.

        ``weights``: arrays by name or a ``.safetensors`` file; those that the module has, or drawn
        from ``seed``, from which dropout draws, too. All else is as in ``load``.

        Raises UserError (ModelError, ConfigError, WeightsError).
        """
        named = model_of_spec(resolve_model(model)) if isinstance(model, str) else model
        check_names(options, StepOptions.__optional_keys__)
        of_load = {n: v for n, v in options.items() if n in LoadOptions.__optional_keys__}
        of_update: dict[str, Any] = {n: v for n, v in options.items() if n not in of_load}
        self.training = Training(named, loss, optimizer, inputs, **of_update)
        first = self.training.weights(weights, seed)
        state = self.training.initial(first, seed)
        self._state = {name: _aligned(value) for name, value in state.items()}
        self._rows: Mapping[str, tuple[str, ...]] = {}
        self._whole: dict[str, Array] = {}
        self._there: dict[
            int, tuple[Array, dlpack.Imported]
        ] = {}  # by id: old arrays, their new values
        self._defined = True
        self._programs: dict[Any, tuple[StepModel, LoadedModel]] = {}
        self._batch: tuple[InputSpec, ...] = ()
        self._how = LoadSettings(**cast(LoadOptions, of_load))

    def __call__(self, *batch: ArrayLike | Tensor) -> np.floating[Any]:
        """Train on a batch; the loss is that before the update.

        Raises ShapeError or DTypeError for a batch that the model or the loss does not take, and
        changes nothing then. IndexOutOfRange for a label that is none: it is found before the
        state changes. Of an index that depends on the new state it is not: the state is undefined
        then, and every call, ``save`` and ``weights`` raise ModelError until one is loaded.
        """
        self._check_defined()
        arrays = [_array(value) for value in batch]
        made, program = self._program(arrays)
        given: list[Any] = list(arrays)
        if program.inputs[len(batch)].name == "lr":
            given.append(np.array(self.learning_rate, np.float32))
        held = self._held(made)
        try:
            if program.uses_arrays:
                outputs = program(*given, *held)
            else:
                outputs = program.run_resident([*given, *self._resident(program, held)])
        except IndexOutOfRange:
            self._defined = program.checks_first
            raise
        return outputs[0][()]  # type: ignore[no-any-return]

    @property
    def updates(self) -> int:
        """Updates so far, those included that a loss scale skipped."""
        return int(self._state["calls"]) // self.training.accumulate

    @property
    def learning_rate(self) -> float:
        """The rate of the next update."""
        return self.training.optimizer.rate(self.updates)

    def program(self, *batch: ArrayLike | Tensor) -> LoadedModel:
        """The compiled program for batches like this one, without running it."""
        return self._program([_array(value) for value in batch])[1]

    def step_model(self, *batch: ArrayLike | Tensor) -> Model:
        """The model of a step for batches like this one, for ``tg.tune``: the winners of a store
        count in a ``TrainStep`` that reads it.
        """
        inputs = self.training.batch_of([_array(value) for value in batch])
        return self.training.step(inputs).model

    def _program(self, arrays: Sequence[Array]) -> tuple[StepModel, LoadedModel]:
        phase = self.training.phase(int(self._state["calls"]) % self.training.accumulate)
        key = phase, *((a.shape, a.dtype) for a in arrays)
        found = self._programs.get(key)
        if found is None:
            batch = self.training.batch_of(arrays)
            made = self.training.step(batch, phase)
            found = self._programs[key] = made, self._loaded(made.model)
            self._batch = batch
        return found

    def _held(self, made: StepModel) -> list[Array]:
        """The arrays of states that a step reads, in order; those that it has in a row lie so."""
        if made.rows and made.rows is not self._rows:
            if made.rows != self._rows:
                self._fetch()
                self._lay(made.rows)
            self._rows = made.rows
        return [self._whole[n] if n in made.rows else self._state[n] for n in made.reads]

    def _resident(
        self, program: LoadedModel, held: Sequence[Array]
    ) -> list[Array | dlpack.Imported]:
        """States as they lie on a device with memory of its own, where they stay between steps;
        single numbers lie here.
        """
        there = self._there
        new = [a for a in held if a.ndim and id(a) not in there]
        if any(np.may_share_memory(a, other) for a in new for other, _ in there.values()):
            self._fetch()
        first, found = len(program.inputs) - len(held), list[Any](held)
        for at, array in enumerate(held):
            if array.ndim:
                if id(array) not in there:
                    there[id(array)] = array, program.resident(first + at, array)
                found[at] = there[id(array)][1]
        return found

    def _fetch(self) -> None:
        """Copy what lies on the device to its arrays, which are the state from then on."""
        for array, there in self._there.values():
            array[...] = there.memory.read(there.dtype)[: array.size].reshape(array.shape)
        self._there.clear()

    def _lay(self, rows: Mapping[str, tuple[str, ...]]) -> None:
        """Put states in rows: each is a view of an array of all of a row."""
        self._whole = {}
        for row, names in rows.items():
            parts = [self._state[n] for n in names]
            self._whole[row] = whole = _aligned(np.concatenate([a.reshape(-1) for a in parts]))
            ends = [*accumulate(a.size for a in parts)]
            for name, part, end in zip(names, parts, ends, strict=True):
                self._state[name] = whole[end - part.size : end].reshape(part.shape)

    def _loaded(self, model: Model) -> LoadedModel:
        program = load_model(model, self._how)
        if self._how.store:
            warn_of_misses(program, os.fspath(self._how.store))
        return program

    # ---- state

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for a copy that goes on by itself: states lie here, each in its own array."""
        self._fetch()
        apart = {name: _aligned(value) for name, value in self._state.items()}
        return {**vars(self), "_state": apart, "_rows": {}, "_whole": {}, "_there": {}}

    def weights(self) -> dict[str, Array]:
        """The model's parameters and buffers by each of its own names, as they are now."""
        self._check_defined()
        self._fetch()
        same = self.training.same
        names = self.training.module.specs()
        return {name: self._state[f"model.{same.get(name, name)}"].copy() for name in names}

    def state_dict(self) -> dict[str, Array]:
        """All that a step changes, by name: ``model.*``, ``optimizer.*``, and what else there is.

        ``calls`` counts batches, ``step`` updates, ``draws`` is where random numbers go on.
        """
        self._check_defined()
        self._fetch()
        return {name: value.copy() for name, value in self._state.items()}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Go on from a state of an equal model and optimiser.

        Raises WeightsError for other names, shapes or dtypes; nothing is changed then.
        """
        wanted = self._state
        problems = [
            *(f"{n} is missing" for n in wanted if n not in state),
            *(f"{n} is unexpected" for n in state if n not in wanted),
            *(
                f"{n} is {state[n].dtype}{list(state[n].shape)}, must be {w.dtype}{list(w.shape)}"
                for n, w in wanted.items()
                if n in state and (state[n].shape, state[n].dtype) != (w.shape, w.dtype)
            ),
        ]
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise WeightsError(
                f"state of {self.training.name} in training: {'; '.join(problems[:3])}{more}"
            )
        self._there.clear()
        for name, value in wanted.items():
            value[...] = state[name]
        self._defined = True

    def save(self, path: str | os.PathLike[str], more: Mapping[str, Any] | None = None) -> None:
        """Write the state to a ``.safetensors`` file, which is replaced at the end or not at all.

        ``more``: what belongs to the same moment, such as ``{"loader": loader.state()}``, as JSON
        has it; ``load`` gives it back. Raises WeightsError where it can not be written, and
        TypeError for what JSON has not.
        """
        from tunegrad.runtime import mapped

        self._check_defined()
        self._fetch()
        about = {"kind": _KIND, **self._made(), "more": json.dumps(dict(more or {}))}
        try:
            mapped.write_arrays(Path(path), self._state, about)
        except OSError as error:
            raise WeightsError(f"state file {path}: {error.strerror or error}") from None

    def load(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Go on from a file of ``save``, and return the ``more`` that it was given: every step is
        then equal, to the bit, to that of a process that never stopped, with as many threads and
        the same kernels.

        Raises WeightsError for a file that is none, is damaged, or is of another model, kind of
        optimiser or ``accumulate``.
        """
        from tunegrad.runtime import mapped

        try:
            arrays, about, _ = mapped.map_arrays(Path(path))
            if about.get("kind") != _KIND:
                raise WeightsError(
                    f"state file {path}: it is no state of training; weights go to TrainStep(..., "
                    "weights=)"
                )
            mapped.check_digest(Path(path))
            more: dict[str, Any] = json.loads(about.get("more", "{}"))
        except OSError as error:
            raise WeightsError(f"state file {path}: {error.strerror or error}") from None
        except (json.JSONDecodeError, RecursionError) as error:
            raise WeightsError(f"state file {path}: its more is no JSON: {error}") from None
        except mapped.MappedFileError as error:
            raise WeightsError(f"state file {path}: {error}") from None
        for name, mine in self._made().items():
            if about.get(name) != mine:
                raise WeightsError(
                    f"state file {path}: it is of a step with {name} {about.get(name)}, this one "
                    f"has {mine}"
                )
        self.load_state_dict(arrays)
        return more

    def _made(self) -> dict[str, str]:
        """The options that give the numbers of a state their meaning, beside their names."""
        return {
            "optimizer": type(self.training.optimizer).__name__,
            "accumulate": str(self.training.accumulate),
        }

    def _check_defined(self) -> None:
        if not self._defined:
            raise ModelError(
                f"{self.training.name} in training: an index was out of range in an earlier step, "
                "so its state is undefined; load() one that was saved"
            )

    def model(self) -> Model:
        """The model for inference, with the weights of now, for ``tg.load``; its inputs are those
        of the last new batch. A Module of the user's has these weights then, too.

        Raises ModelError before the first batch, where no inputs are known.
        """
        return self.training.trained_model(self.weights(), self._batch)


def _aligned(value: Array) -> Array:
    """A copy at a multiple of a cache line, so that no vector of it lies across two."""
    whole = np.empty(value.nbytes + _LINE, np.uint8)
    copy = np.ndarray(
        value.shape, value.dtype, whole, -whole.__array_interface__["data"][0] % _LINE
    )
    copy[...] = value
    return copy


def _array(value: ArrayLike | Tensor) -> Array:
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if isinstance(value, list | tuple | float) and array.dtype == np.float64:
        array = array.astype(np.float32)
    return array
