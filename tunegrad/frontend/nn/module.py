"""Layers: small modules that hold named parameters and build graphs.

Parameter names are torch's: attributes joined by dots, list positions as numbers
(``layer1.0.conv1.weight``). A module has no weights until ``load``; then they are CONST nodes. A
module is the one mutable thing in the front end: a name of it is bound to another tensor, for one
call (``functional_call``) or by a layer that counts statistics (``Buffer.update``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from tunegrad.errors import ModelError, WeightsError
from tunegrad.ir.dtypes import F32, DType

from ..aliasing import write
from ..handle import TensorLike
from ..nodes import tracing
from ..nodes.tracing import built_model
from ..tensor import Tensor, lift
from ..weights import Array, ParameterSpec, Weights, load_weights

__all__ = [
    "Buffer", "Identity", "Layer", "Module", "ModuleDict", "ModuleList", "Parameter",
    "ParameterList", "Sequential", "functional_call", "stateful_call",
]  # fmt: skip


class Parameter:
    """A place for one array: its spec, named when loaded, and then its tensor, whose methods and
    operators it has: ``x @ self.w``, ``self.scale.exp() * x``.
    """

    __slots__ = ("_requires_grad", "_tensor", "spec")

    def __init__(
        self,
        *shape: int,
        mean: float = 0.0,
        spread: float = 1.0,
        law: Literal["normal", "uniform"] = "normal",
        dtype: DType = F32,
    ) -> None:
        self.spec = ParameterSpec("", shape, dtype, mean, spread, law)
        self._tensor: Tensor | None = None
        self._requires_grad: bool | None = None

    @property
    def requires_grad(self) -> bool | None:
        """True if its tensor requires a gradient; None: nothing was said, and it does not."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self._requires_grad = flag
        if self._tensor is not None:
            self._tensor.requires_grad_(flag)

    @property
    def trainable(self) -> bool:
        """True of floats that are no buffer."""
        return self.spec.dtype.is_float and not isinstance(self, Buffer)

    @property
    def tensor(self) -> Tensor:
        """The loaded constant.

        Raises:
            WeightsError: nothing was loaded.
        """
        if self._tensor is None:
            raise WeightsError(
                f"a parameter of shape {self.spec.shape} has no value yet; call load() on its "
                "module"
            )
        return self._tensor

    def fill(self, tensor: Tensor) -> None:
        """Give it its value."""
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copy and pickle look for
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.tensor, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The values of its tensor, as the tensor's."""
        return self.tensor.__array__(dtype, copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """``array * parameter`` is a tensor."""
        given = (x.tensor if isinstance(x, Parameter) else x for x in inputs)
        return getattr(ufunc, method)(*given, **options)


def _of_tensor(operator: str) -> Callable[..., Any]:
    return lambda self, *others: getattr(self.tensor, operator)(*others)


_OPERATORS = (
    "abs", "add", "floordiv", "ge", "getitem", "gt", "le", "lt", "matmul", "mod", "mul", "neg",
    "pow", "radd", "rfloordiv", "rmatmul", "rmod", "rmul", "rpow", "rsub", "rtruediv", "sub",
    "truediv",
)  # fmt: skip

for _operator in _OPERATORS:
    setattr(Parameter, f"__{_operator}__", _of_tensor(f"__{_operator}__"))


class Buffer(Parameter):
    """A place for an array that is not trained, such as running statistics."""

    __slots__ = ()

    def update(self, tensor: Tensor) -> None:
        """Bind it to its next value, which no gradient flows through.

        Raises ModelError inside a function that is compiled, where the value would be lost: unless
        ``stateful_call`` or ``functional_call`` lent this buffer its value.
        """
        if (model := built_model()) and self not in _lent:
            raise ModelError(
                f"model {model} is compiled with a layer in train() whose statistics change: they "
                "would be lost; use tg.TrainStep, nn.stateful_call, or eval()"
            )
        node = tracing.without_identities((tensor.node,))[0]
        if self in _lent:
            self.fill(Tensor.of(node, tensor.bindings))
        else:
            write(self.tensor, node, tensor)


def value_of(p: Parameter | None) -> Tensor | None:
    """The loaded constant of a parameter that a layer may have."""
    return None if p is None else p.tensor


class Module:
    """Base of all layers.

    Parameters and modules in attributes, lists and tuples are found by name. ``training``: set by
    ``train`` and ``eval``; unlike PyTorch's, a fresh module is in ``eval``.
    """

    forward: Callable[..., Any]
    training: bool = False

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Run it: what ``forward`` gives; a subclass defines either of the two."""
        return self.forward(*inputs, **options)

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name, in the order of definition."""
        for name, value in vars(self).items():
            yield from _named(f"{prefix}{name}", value)

    def specs(self) -> dict[str, ParameterSpec]:
        """Names, shapes and dtypes of all that ``load`` needs, by name."""
        return {name: replace(p.spec, name=name) for name, p in self.named()}

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The name and the tensor of every parameter that is trained, each once.

        They require gradients from then on, or from ``train()`` on, unless
        ``requires_grad_(False)`` was called: before that a module is for inference, and its weights
        are constants.
        """
        self.requires_grad_(None)
        seen: set[int] = set()
        for name, p in self.named():
            if p.trainable and id(p) not in seen:
                seen.add(id(p))
                yield name, p.tensor

    def parameters(self) -> Iterator[Tensor]:
        """The tensors of ``named_parameters``: ``p -= lr * p.grad`` changes the module."""
        return (p for _, p in self.named_parameters())

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """Let gradients arrive at its parameters, or no longer; None: unless they were frozen."""
        for _, p in self.named():
            if p.trainable and (requires_grad is not None or p.requires_grad is None):
                p.requires_grad = requires_grad is not False
        return self

    def zero_grad(self) -> None:
        """Set the gradients of its parameters to None."""
        for p in self.parameters():
            p.grad = None

    def load(self, weights: Weights | str | Path | None = None, seed: int = 0) -> None:
        """Take all parameters from a dict or ``.safetensors`` file, or draw them from the seed.

        Raises:
            WeightsError: missing, unexpected or misshapen ones; nothing is loaded then.
        """
        arrays = load_weights(tuple(self.specs().values()), weights, seed, type(self).__name__)
        for name, p in self.named():
            new = Tensor.constant(arrays[name], p.spec.dtype, name)
            if p._tensor is not None and p._tensor.requires_grad:
                with tracing.no_grad():
                    p._tensor.assign(new)  # those who hold it go on
            else:
                p.fill(new.requires_grad_(p.requires_grad is True))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """``load`` of a dict of arrays or of PyTorch's tensors, such as ``module.state_dict()``."""
        self.load({name: _array(value) for name, value in state_dict.items()})

    def state_dict(self) -> dict[str, Array]:
        """The loaded arrays by name."""
        return {name: p.tensor.numpy() for name, p in self.named()}

    def modules(self) -> Iterator[Module]:
        """It and all modules inside it."""
        yield self
        for value in vars(self).values():
            yield from _modules(value)

    def buffers(self) -> dict[str, ParameterSpec]:
        """Those of ``specs`` that are not trained."""
        return {n: replace(p.spec, name=n) for n, p in self.named() if isinstance(p, Buffer)}

    def train(self, mode: bool = True) -> Self:
        """Itself, with all modules inside it, in training: batch norm takes the batch's statistics
        and counts running ones, dropout drops, parameters require gradients.
        """
        for module in self.modules():
            module.training = mode
        return self.requires_grad_(None) if mode else self

    def eval(self) -> Self:
        """Itself, with all modules inside it, in inference."""
        return self.train(False)


def functional_call(
    module: Module, parameters: Mapping[str, TensorLike], args: Any, kwargs: Any = None
) -> Any:
    """``module(*args, **kwargs)`` with these values of its parameters, as ``torch.func``'s: a
    function of them, which ``grad`` differentiates.

    ``parameters``: by name; others keep the value that was loaded. ``args``: a tuple, or one
    argument. Calls in several threads wait for each other.

    Raises WeightsError for a name that the module does not have, or another shape.
    """
    return _called(module, parameters, args, kwargs, "functional_call")[0]


def stateful_call(
    module: Module, values: Mapping[str, TensorLike], args: Any, kwargs: Any = None
) -> tuple[Any, dict[str, Tensor]]:
    """``functional_call``, and beside it the new values of the buffers among ``values``, by name:
    running statistics of layers in ``train()``.
    """
    return _called(module, values, args, kwargs, "stateful_call")


def _called(
    module: Module, values: Mapping[str, TensorLike], args: Any, kwargs: Any, what: str
) -> tuple[Any, dict[str, Tensor]]:
    named = dict(module.named())
    given = {name: lift(value, what) for name, value in values.items()}
    for name, value in given.items():
        if name not in named or named[name].spec.shape != value.shape:
            wanted = named[name].spec.shape if name in named else "no such parameter"
            raise WeightsError(f"{what}: {name} of shape {value.shape}: {wanted}")
    buffers = {n: p for n, p in named.items() if n in given and isinstance(p, Buffer)}
    with _LENT:
        held = {name: named[name]._tensor for name in given}
        fresh = set(buffers.values()) - _lent
        _lent.update(fresh)
        try:
            for name, value in given.items():
                named[name].fill(value)
            out = module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
            return out, {name: p.tensor for name, p in buffers.items()}
        finally:
            _lent.difference_update(fresh)
            for name, kept in held.items():
                named[name]._tensor = kept


_LENT = threading.RLock()
"""Held while parameters have the values of one call."""
_lent: set[Buffer] = set()
"""Buffers that have such a value."""


Layer = Module
"""Another name of ``Module``."""


def _array(value: Any) -> Array:
    """An array, or a tensor of another library on the CPU."""
    detached = value.detach() if hasattr(value, "detach") else value
    return np.asarray(detached)


def _modules(value: object) -> Iterator[Module]:
    if isinstance(value, Module):
        yield from value.modules()
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _modules(item)


def _named(name: str, value: object) -> Iterator[tuple[str, Parameter]]:
    if isinstance(value, Parameter):
        yield name, value
    elif isinstance(value, Module):
        yield from value.named(f"{name}.")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _named(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _named(f"{name}.{i}", item)


def kaiming(fan_in: int, gain: float) -> float:
    """Standard deviation that keeps the mean square of activations at ``gain`` times the input's
    (He et al.

    2015).
    """
    return float((gain / max(1, fan_in)) ** 0.5)


class Identity(Module):
    """Returns its input; arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs

    def forward(self, x: Tensor) -> Tensor:
        """Its input."""
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.items_: dict[str, Module] = dict(modules or {})

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name."""
        for name, module in self.items_.items():
            yield from module.named(f"{prefix}{name}.")

    def __getitem__(self, name: str) -> Any:
        return self.items_[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.items_[name] = module

    def __len__(self) -> int:
        return len(self.items_)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def items(self) -> Any:
        """Names and modules."""
        return self.items_.items()

    def keys(self) -> Any:
        """Names."""
        return self.items_.keys()

    def values(self) -> Any:
        """Modules."""
        return self.items_.values()


class ModuleList(Module):
    """Modules in a list."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        self.list_: list[Module] = list(modules)

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name: the place in the list, then the module's own."""
        for i, module in enumerate(self.list_):
            yield from module.named(f"{prefix}{i}.")

    def append(self, module: Module) -> None:
        """One more at the end."""
        self.list_.append(module)

    def extend(self, modules: Sequence[Module]) -> None:
        """Several more at the end."""
        self.list_.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        return self.list_[index]

    def __len__(self) -> int:
        return len(self.list_)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.list_)


class ParameterList(Module):
    """Parameters in a list."""

    def __init__(self, values: Sequence[Parameter] = ()) -> None:
        self.list_ = list(values)

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its place."""
        return ((f"{prefix}{i}", p) for i, p in enumerate(self.list_))

    def append(self, value: Parameter) -> None:
        """One more at the end."""
        self.list_.append(value)

    def __getitem__(self, index: int) -> Parameter:
        return self.list_[index]

    def __len__(self) -> int:
        return len(self.list_)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.list_)


class Sequential(Module):
    """Modules one after the other: several arguments, or a dict of them by name."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        first = modules[0] if len(modules) == 1 else None
        named = first if isinstance(first, Mapping) else {str(i): m for i, m in enumerate(modules)}
        self.steps: dict[str, Any] = dict(named)

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name: the module's place or name, then its own."""
        for name, module in self.steps.items():
            yield from module.named(f"{prefix}{name}.")

    def forward(self, x: Any) -> Any:
        """The last module's output."""
        for module in self.steps.values():
            x = module(x)
        return x

    def __getitem__(self, index: int | slice) -> Any:
        listed = list(self.steps.values())[index]
        return Sequential(*listed) if isinstance(listed, list) else listed

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.steps.values())
