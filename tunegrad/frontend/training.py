"""A step of training as a model like any other: inputs are a batch and the old state, outputs are
the loss and the new state.

    batch..., lr, state    -->    loss, new state

    model.NAME             parameters, and buffers such as running statistics
    optimizer.SLOT.NAME    what the optimiser keeps for a parameter
    gradient.NAME          sums of gradients, where several batches make one step
    step                   updates so far, i64; those that were skipped do not count
    calls                  batches so far, i64
    draws                  the start of the next random draws, u64
    scale, good            of a loss scale: the factor, f32, and good steps in a row, i64

The state is a dict of tensors by these names, in this order. All that a step writes is donated, so
the new state lies in the memory of the old one.

Parameters that one rule updates element by element lie one after another in a row, and so do their
moments and gradients: the update is one kernel, and layers read slices.

    model.0.weight+3       0.weight, 2.weight, 0.bias, 2.bias as one array
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from tunegrad.errors import ConfigError, ModelError, UserError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, I64, U64, dtype_of
from tunegrad.ir.expr import Op
from tunegrad.lazy import dataclass

from .functional import cross_entropy, mse_loss
from .functions import cat, where
from .gradients import value_and_grad
from .model import InputSpec, Model
from .nn import Module, optim, stateful_call
from .nodes import substitute
from .nodes.tracing import no_draws
from .random import draws_from, start_of
from .tensor import Tensor
from .weights import Array, ParameterSpec, Weights

Phase = Literal["first", "more", "last"]
"""The place of a batch among those of one update; the ``last`` one updates."""

LR = "lr"


@dataclass(frozen=True, slots=True)
class StepModel:
    """A model of one step. ``reads`` and ``writes`` name the states of its inputs behind the batch
    and the learning rate, and of its outputs behind the loss. ``rows`` are the states that lie one
    after another in one of these, in order.
    """

    model: Model
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """All that makes a step of a model.

    ``model``: a Module, or a Model of one. ``loss``: a function of the model's output and the rest
    of the batch that gives a float of shape (); None where the model gives the loss itself.
    ``inputs``: how many arrays of the batch the model takes; the others go to the loss.

    ``clip_norm``, ``clip_value``: of the gradients, in this order. ``accumulate``: batches whose
    mean gradient makes one update. ``loss_scale``: a number, or a LossScale.

    A parameter of two names is one, by the first of them. As in PyTorch, one that the loss is not
    made of is left as it is, without weight decay, and one behind a step such as ``floor`` has a
    gradient of zeros, and decays.

    Raises ModelError for a model that has nothing to train, ConfigError for another option.
    """

    model: Module | Model
    loss: Callable[..., Tensor] | None
    optimizer: optim.Optimizer
    inputs: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    loss_scale: float | optim.LossScale | None = None
    module: Module = field(init=False, repr=False, compare=False)
    trained: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Names of the parameters that are trained: floats that are no buffers, and were not frozen by
    ``requires_grad_(False)`` when this was made.
    """

    def __post_init__(self) -> None:
        self._check_options()
        if isinstance(self.model, Model) and self.model.rewrite is not None:
            raise ModelError(f"training: model {self.name} is in bytes, which have no gradients")
        made = self.model.make() if isinstance(self.model, Model) else self.model
        if not isinstance(made, Module):
            kind = f"{type(made).__module__}.{type(made).__qualname__}"
            raise ModelError(
                f"training: the model is a {kind}; only the parameters of a tg.nn.Module, a Model "
                "of one or tg.from_torch(module, x) can be trained"
            )
        object.__setattr__(self, "module", made)
        named, specs = made.named(), self.specs
        free = (n for n, p in named if n in specs and p.trainable and p.requires_grad is not False)
        object.__setattr__(self, "trained", tuple(free))
        if not self.trained:
            raise ModelError(
                f"training: model {self.name} has no parameters of floats that are not frozen"
            )

    def _check_options(self) -> None:
        if not isinstance(self.optimizer, optim.Optimizer):
            raise ConfigError(
                f"training: optimizer={_short(self.optimizer)} must be one of tg.nn.optim, such "
                "as optim.SGD(0.1)"
            )
        if self.loss is not None and not callable(self.loss):
            raise ConfigError(
                f"training: loss={self.loss!r} must be a function, such as "
                "tg.nn.functional.cross_entropy, or None"
            )
        for name in ("inputs", "accumulate"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"training: {name}={value!r} must be an integer of at least 1")
        for name in ("clip_norm", "clip_value", "loss_scale"):
            value = getattr(self, name)
            if value is None or isinstance(value, optim.LossScale):
                continue
            if not optim.is_number(value) or value <= 0:
                raise ConfigError(f"training: {name}={value!r} must be a number above 0")

    @property
    def name(self) -> str:
        """The model's name."""
        model = self.model
        return model.name if isinstance(model, Model) else type(model).__name__

    @cached_property
    def specs(self) -> dict[str, ParameterSpec]:
        """The model's parameters and buffers, each once, by its first name."""
        every, same = self.module.specs(), self.same
        return {name: spec for name, spec in every.items() if name not in same}

    @cached_property
    def same(self) -> dict[str, str]:
        """Further names of parameters that have several, with the first name of each."""
        first: dict[int, str] = {}
        named = ((name, first.setdefault(id(p), name)) for name, p in self.module.named())
        return {name: kept for name, kept in named if name != kept}

    @property
    def scaling(self) -> optim.LossScale | None:
        """The law of the loss scale, if there is one."""
        scale = self.loss_scale
        if scale is None or isinstance(scale, optim.LossScale):
            return scale
        return optim.LossScale.static(scale)

    def phase(self, at: int) -> Phase:
        """The place of batch ``at``, counted from 0, among those of one update."""
        if at == self.accumulate - 1:
            return "last"
        return "more" if at else "first"

    def weights(self, source: Weights | str | None, seed: int) -> dict[str, Array]:
        """The model's weights: given ones, those that it has, or drawn from the seed."""
        if isinstance(self.model, Model):
            return self.model.weights(source, seed)
        if source is not None or any(p._tensor is None for _, p in self.module.named()):
            self.module.load(source, seed)
        return self.module.state_dict()

    def initial(self, weights: Weights, seed: int) -> dict[str, Array]:
        """The state before the first step, with the arrays of ``weights`` as they are."""
        state: dict[str, Array] = {f"model.{n}": np.asarray(weights[n]) for n in self.specs}
        slots = self.optimizer.moments(self._inputs(self.trained, "model."))
        for name, t in slots.items():
            state[f"optimizer.{name}"] = np.zeros(t.shape, t.dtype.numpy)
        if self.accumulate > 1:
            for name in self.trained:
                state[f"gradient.{name}"] = np.zeros(weights[name].shape, weights[name].dtype)
        state["step"], state["calls"] = np.array(0, np.int64), np.array(0, np.int64)
        state["draws"] = np.array(start_of(seed), np.uint64)
        if self.scaling is not None:
            state["scale"] = np.array(self.scaling.initial, np.float32)
            state["good"] = np.array(0, np.int64)
        return state

    def output(self) -> Tensor:
        """The model's output for its own inputs, as a graph.

        Raises ModelError for several tensors.
        """
        given = tuple(Tensor.input(i.name, i.shape, i.dtype) for i in self.model_inputs)
        with no_draws(self.name):
            out, _ = stateful_call(self.module, self._inputs(self.specs, "model."), given)
        out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
        if not isinstance(out, Tensor):
            raise ModelError(
                f"training: model {self.name} gives {type(out).__name__}; a loss by name needs one "
                "tensor"
            )
        return out

    @property
    def model_inputs(self) -> tuple[InputSpec, ...]:
        """The inputs of a Model; none of a Module."""
        return self.model.inputs if isinstance(self.model, Model) else ()

    def batch_of(self, arrays: Sequence[Array]) -> tuple[InputSpec, ...]:
        """The inputs of batches like these arrays."""
        names = [i.name for i in self.model_inputs]
        names = names[: self.inputs] + [f"x{i}" for i in range(len(names), self.inputs)]
        names += [f"target{i}" for i in range(len(arrays) - len(names))]
        return tuple(
            InputSpec(n, a.shape, dtype_of(a.dtype)) for n, a in zip(names, arrays, strict=False)
        )

    def trained_model(self, weights: Weights, batch: Sequence[InputSpec]) -> Model:
        """The model for inference with these weights, and inputs as in ``batch``."""
        if isinstance(self.model, Model):
            return replace(self.model, own=weights, first_call=None)
        if not batch:
            raise ModelError(f"training: model {self.name} has seen no batch, so it has no inputs")
        self.module.load(weights)
        made = Model.of(self.name, partial(_same, self.module.eval()), batch[: self.inputs])
        return replace(made, own=weights)

    def step(self, batch: Sequence[InputSpec], phase: Phase = "last") -> StepModel:
        """The model of one step for batches like these.

        Raises UserError for a model or a loss that does not take them, DTypeError for an operation
        that has no gradient.
        """
        name = f"{self.name} in training"
        if len(batch) < self.inputs:
            raise ModelError(
                f"{name}: a batch of {len(batch)} arrays, of which the model takes {self.inputs}"
            )
        given = {i.name: Tensor.input(i.name, i.shape, i.dtype) for i in batch}
        if len(given) < len(batch):
            raise ModelError(f"{name}: input names {[i.name for i in batch]} are not distinct")
        lr = Tensor.input(LR, (), F32)
        state = self._state(phase)
        with no_draws(name), _in_training(self.module), draws_from(state["draws"]) as draws:
            loss, after, gradients = self._differentiated(tuple(given.values()), state)
            if not gradients:
                raise ModelError(
                    f"{name}: no gradient of the loss reaches a parameter: it is made of none, or "
                    "through detach(), integers or truths"
                )
            before, rows = state, _Rows()
            if phase == "last":
                rows = _Rows.of(self.optimizer, gradients, state, self._alone(gradients))
                state, gradients = rows.state(state), rows.gradients(gradients)
            new = {f"model.{n}": t for n, t in after.items()}
            summed = self._summed(gradients, state, phase)
            new |= self._updated(summed, state, lr) if phase == "last" else summed
            new |= {"calls": state["calls"] + 1, "draws": draws.rest()}
        changed = [n for n, old in state.items() if n in new and new[n].node is not old.node]
        outputs = rows.inside((loss, *(new[n] for n in changed)))
        named = {str(t.node.arg): t for t in state.values()}
        writes = tuple(str(state[n].node.arg) for n in changed)
        used = {n.arg for n in graph.topological(tuple(t.node for t in outputs))} | set(writes)
        read = {n: t for n, t in named.items() if n in used}
        inputs = (
            *batch,
            *([InputSpec(LR, (), F32, 0.01, 0.0)] if phase == "last" else []),
            *(self._drawn(n, t, before, rows.members.get(n, ())) for n, t in read.items()),
        )
        model = Model(name, partial(_given, outputs), inputs, donated=writes)
        return StepModel(model, tuple(read), writes, rows.members)

    def _alone(self, gradients: Mapping[str, Tensor]) -> Set[str]:
        """Parameters that are updated where their gradients are computed, which are then never
        stored: large matrices of few products each, where a rule reads a gradient once.
        """
        if self.clip_norm is not None or self.scaling is not None:
            return frozenset()
        large = {n for n, g in gradients.items() if g.ndim == 2 and _is_short_product(g.node)}
        return {n for n in large if self.optimizer.reads_once(n)}

    def _state(self, phase: Phase) -> dict[str, Tensor]:
        """Inputs for the states that a phase reads, in the order of all."""
        state = self._inputs(self.specs, "model.", "model.")
        if phase == "last":
            slots = self.optimizer.moments(self._inputs(self.trained, "model."))
            state |= {
                f"optimizer.{n}": Tensor.input(f"optimizer.{n}", t.shape, t.dtype)
                for n, t in slots.items()
            }
        if self.accumulate > 1:
            state |= self._inputs(self.trained, "gradient.", "gradient.")
        state |= {n: Tensor.input(n, (), I64) for n in ("step", "calls")}
        state["draws"] = Tensor.input("draws", (), U64)
        if self.scaling is not None:
            state["scale"] = Tensor.input("scale", (), F32)
            state["good"] = Tensor.input("good", (), I64)
        return state

    def _drawn(
        self, name: str, t: Tensor, state: Mapping[str, Tensor], members: Sequence[str] = ()
    ) -> InputSpec:
        """The input of a state, or of several in a row; drawn numbers are such as occur."""
        if members:
            parts = tuple(self._drawn(n, state[n], state) for n in members)
            return InputSpec(name, t.shape, t.dtype, parts=parts)
        kind, _, rest = name.partition(".")
        if kind == "model":
            p = self.specs[rest]
            return InputSpec(name, t.shape, t.dtype, p.mean, p.spread, p.mean > 0)
        if kind == "optimizer" and rest.startswith("square."):  # of gradients of about 0.01
            return InputSpec(name, t.shape, t.dtype, 2e-4, 5e-5, True)
        if kind in ("optimizer", "gradient"):
            return InputSpec(name, t.shape, t.dtype, 0.0, 0.01)
        return InputSpec(name, t.shape, t.dtype, 1024.0, 0.0, name == "scale")

    def _inputs(
        self, names: Sequence[str] | Mapping[str, Any], prefix: str, key: str = ""
    ) -> dict[str, Tensor]:
        specs = self.specs
        return {key + n: Tensor.input(prefix + n, specs[n].shape, specs[n].dtype) for n in names}

    def _differentiated(
        self, batch: tuple[Tensor, ...], state: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The loss, new values of buffers, and gradients of what is trained."""
        trained = {n: state[f"model.{n}"] for n in self.trained}
        others = {n: state[f"model.{n}"] for n in self.specs if n not in trained}

        def scaled(parameters: Mapping[str, Tensor]) -> Any:
            values = {**others, **parameters}
            try:
                out, after = stateful_call(self.module, values, batch[: self.inputs])
            except UserError as error:
                _name_layer(self.module, error)
                raise
            out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
            loss = out if self.loss is None else self.loss(out, *batch[self.inputs :])
            if not isinstance(loss, Tensor) or loss.shape:
                said = loss.describe() if isinstance(loss, Tensor) else type(loss).__name__
                raise ModelError(
                    f"{self.name} in training: the loss is {said}; it must be one float"
                )
            of = loss / self.accumulate if self.accumulate > 1 else loss
            of = of if self.scaling is None else of * state["scale"].cast(of.dtype)
            return of, (loss, after)

        both = value_and_grad(scaled, has_aux=True, allow_unused=True)
        (_, (loss, after)), gradients = both(trained)
        return loss, after, {n: g for n, g in gradients.items() if g is not None}

    def _summed(
        self, gradients: Mapping[str, Tensor], state: Mapping[str, Tensor], phase: Phase
    ) -> dict[str, Tensor]:
        """Gradients of all batches of this update so far, by the names of their states."""
        named = {f"gradient.{n}": g for n, g in gradients.items()}
        if phase == "first" or self.accumulate == 1:
            return named
        return {n: state[n] + g for n, g in named.items()}

    def _updated(
        self, summed: Mapping[str, Tensor], state: Mapping[str, Tensor], lr: Tensor
    ) -> dict[str, Tensor]:
        """The states after an update; as they were where a gradient is not finite."""
        gradients = {n.removeprefix("gradient."): g for n, g in summed.items()}
        scaling, whole = self.scaling, None
        if scaling is not None:
            whole = optim.finite(gradients)
            one = 1.0 / state["scale"]
            gradients = {n: g * one.cast(g.dtype) for n, g in gradients.items()}
        if self.clip_norm is not None:
            gradients, _ = optim.clip_grad_norm(gradients, self.clip_norm)
        if self.clip_value is not None:
            gradients = optim.clip_grad_value(gradients, self.clip_value)
        parameters = {n: state[f"model.{n}"] for n in gradients}
        moments = {n: state[f"optimizer.{n}"] for n in self.optimizer.moments(parameters)}
        step = state["step"] + 1
        after, kept = self.optimizer.update(parameters, gradients, moments, lr, step)
        new = {f"model.{n}": t for n, t in after.items()}
        new |= {f"optimizer.{n}": t for n, t in kept.items()}
        new["step"] = step
        if scaling is None or whole is None:
            return new
        new = {n: where(whole, t, state[n]) for n, t in new.items()}
        new["scale"], new["good"] = scaling.after(state["scale"], state["good"], whole)
        return new


@dataclass(frozen=True, slots=True)
class _Rows:
    """Parameters that are updated as one array each time: by one rule, element by element.

    ``groups``: their names, in the order in which they lie. A row goes by the name of its first
    parameter where an optimiser reads names. ``members``: by the name of an input, the states that
    it is made of. ``whole``: by state, the input that is in its place, None where that is another
    one's. ``slices``: nodes of parameters, and what they are of their rows.
    """

    groups: tuple[tuple[str, ...], ...] = ()
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: dict[str, Tensor | None] = field(default_factory=dict)
    slices: dict[graph.Node, graph.Node] = field(default_factory=dict)

    @staticmethod
    def of(
        optimizer: optim.Optimizer, gradients: Mapping[str, Tensor], state: Mapping[str, Tensor],
        alone: Set[str] = frozenset(),
    ) -> _Rows:  # fmt: skip
        """The rows of parameters that have gradients: one for each dtype and group of options.
        Those of ``alone`` are in none.
        """
        if not optimizer.is_elementwise:
            return _Rows()
        alike: dict[object, list[str]] = {}
        for name in (n for n, g in gradients.items() if g.numel() and n not in alone):
            key = state[f"model.{name}"].dtype, optimizer.place(name)
            alike.setdefault(key, []).append(name)
        rows = _Rows(tuple(_in_lines(n, state) for n in alike.values() if len(n) > 1))
        kinds = ("model.", *(f"optimizer.{slot}." for slot in optimizer.kept()), "gradient.")
        for names in rows.groups:
            for kind in (k for k in kinds if k + names[0] in state):
                rows._lay(kind, names, state)
        return rows

    def _lay(self, kind: str, names: tuple[str, ...], state: Mapping[str, Tensor]) -> None:
        parts = [state[kind + n] for n in names]
        size = sum(t.numel() for t in parts)
        whole = Tensor.input(f"{kind}{names[0]}+{len(names) - 1}", (size,), parts[0].dtype)
        self.members[str(whole.node.arg)] = tuple(kind + n for n in names)
        self.whole.update(dict.fromkeys((kind + n for n in names), None))
        self.whole[kind + names[0]] = whole
        start = 0
        for t in parts if kind == "model." else ():
            part = whole[start : start + t.numel()].reshape(t.shape)
            self.slices[t.node] = part.contiguous([*range(t.ndim)]).node
            start += t.numel()

    def state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """States with rows in the places of their first ones."""
        found = {n: self.whole.get(n, t) for n, t in state.items()}
        return {n: t for n, t in found.items() if t is not None}

    def gradients(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of rows by the names of their first parameters, and those of the others."""
        joined = {n for names in self.groups for n in names}
        made = {
            names[0]: cat([gradients[n].reshape(-1).contiguous() for n in names], 0).contiguous()
            for names in self.groups
        }
        return {**made, **{n: g for n, g in gradients.items() if n not in joined}}

    def inside(self, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Outputs that read slices of rows in the place of parameters."""
        return tuple(map(Tensor.of, substitute(tuple(t.node for t in outputs), self.slices)))


_ALONE = 1 << 14
"""Numbers of a parameter that is updated in its gradient's kernel, at the least."""
_TERMS = 256
"""Products of each of them, at the most: longer sums pass through memory in parts. A step of an MLP
of batch 128, whose gradients are 2.7 MB, is 1.07 times as fast so (two cores of a Xeon).
"""


def _is_short_product(n: graph.Node) -> bool:
    while n.op in graph.MOVEMENT:
        (n,) = n.srcs
    if n.op is not graph.GraphOp.REDUCE or n.size < _ALONE:
        return False
    (terms,) = n.srcs
    return terms.arg is Op.MUL and terms.size <= _TERMS * n.size


_LINE = 64


def _in_lines(names: Sequence[str], state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Parameters of whole cache lines before the others, so that all of these begin at one."""
    sizes = {n: state[f"model.{n}"].numel() * state[f"model.{n}"].dtype.itemsize for n in names}
    return tuple(sorted(names, key=lambda n: sizes[n] % _LINE != 0))


_BY_NAME: Mapping[str, optim.Optimizer] = {
    "sgd": optim.SGD(0.01, momentum=0.9), "adam": optim.Adam(), "adamw": optim.AdamW(),
    "lamb": optim.LAMB(), "rmsprop": optim.RMSprop(),
}  # fmt: skip


def step_of(model: Model, optimizer: str, loss: str = "") -> Model:
    """The model of a step of a model's training, for batches as its inputs are, by names: of an
    optimiser with PyTorch's options (momentum 0.9), and of ``cross_entropy`` with integer targets
    or ``mse``; without a name by what the model gives, which is (N, classes) or numbers.

    Raises ModelError for a model that has nothing to train, or gives several tensors.
    """
    training = Training(model, None, _BY_NAME[optimizer], len(model.inputs))
    out = training.output()
    loss = loss or ("cross_entropy" if out.ndim == 2 else "mse")
    target = InputSpec("target", out.shape, out.dtype)
    found: Callable[..., Tensor] = mse_loss
    if loss == "cross_entropy":
        found, target = cross_entropy, InputSpec("target", (out.shape[0], *out.shape[2:]), I64)
    return replace(training, loss=found).step((*model.inputs, target)).model


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"<{type(value).__module__}.{type(value).__name__}>"


def _same(module: Module) -> Module:
    return module


def _name_layer(module: Module, error: UserError) -> None:
    """Put the innermost layer that raised an error before its message."""
    layer, at = module, error.__traceback__
    while at is not None:
        here = at.tb_frame.f_locals.get("self")
        layer = here if isinstance(here, Module) else layer
        at = at.tb_next
    if layer is module:
        return
    first = next(layer.named(), None)
    names = {id(p): name for name, p in module.named()}
    path = "" if first is None else names.get(id(first[1]), "").removesuffix(first[0]).rstrip(".")
    where = f"{path} ({type(layer).__name__})" if path else type(layer).__name__
    error.args = (f"layer {where}: {error}", *error.args[1:])


def _given(outputs: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """A function whose graph was made from inputs of the same names."""
    return lambda *_: outputs


@contextmanager
def _in_training(module: Module) -> Iterator[None]:
    before = [(m, m.training) for m in module.modules()]
    module.train()
    try:
        yield
    finally:
        for m, mode in before:
            m.training = mode
