"""``torch.compile(module, backend="tunegrad")``: inference of PyTorch's modules by our kernels.

    dynamo        Python's code as FX graphs, at breaks more than one
    aot_autograd  each as a graph of ATen operators without writes in place
    run_graph     that one as a graph of tensors, when it is first called with these shapes
    load          kernels, with the winners of the store

Parameters and buffers become constants of the program, which share the module's memory until
kernels pack them. Tensors on a GPU stay there. What can not be taken runs in PyTorch, and one
warning says why. The backend's name is registered by an entry point, and by importing this module.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tunegrad.devices import known
from tunegrad.devices.dlpack import ALIGN, place_of
from tunegrad.errors import (
    ConfigError,
    DeviceError,
    MissError,
    ModelError,
    StoreError,
    TunegradError,
)
from tunegrad.frontend import InputSpec, Model, Tensor
from tunegrad.frontend.torch import from_torch
from tunegrad.frontend.torch.aten import TABLE
from tunegrad.frontend.torch.graph import missing_operators, run_graph
from tunegrad.frontend.torch.values import (
    array_of,
    constant_of,
    dtype_from,
    load_torch,
    tensor_of,
    torch_dtype,
)
from tunegrad.inference import LoadedModel, load

__all__ = ["backend", "from_torch", "register"]

_OPTIONS = ("device", "dtype", "numerics", "on_miss", "store", "threads")
_KEPT = 16
"""Programs of one graph: by shapes, and by the modules whose parameters it is called with."""

_log = logging.getLogger(__name__)
_QUIET: dict[str, Any] = {"store": None, "on_miss": "default"}


def backend(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What ``torch.compile`` calls for each graph.

    ``options`` are those of ``tg.load``: store, on_miss, threads, device, numerics, dtype.

    Raises:
        ConfigError: an option, or a mode, that is not there.
    """
    settings = _settings(options, mode)
    load_torch()
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    names = _names(graph_module, example_inputs)

    def inference(graph: Any, _: Sequence[Any]) -> Any:
        missing = missing_operators(graph.graph)
        if missing:
            _log.warning(
                "torch.compile: %d operators are not there, this graph runs in PyTorch: %s",
                len(missing), ", ".join(missing),
            )  # fmt: skip
            return make_boxed_func(graph.forward)
        return make_boxed_func(_Compiled(graph, names, settings))

    def training(graph: Any, _: Sequence[Any]) -> Any:
        return make_boxed_func(graph.forward)

    def forward(graph: Any, _: Sequence[Any]) -> Any:
        _log.warning(
            "torch.compile: gradients are recorded, this graph runs in PyTorch; "
            "call the module under torch.inference_mode() or torch.no_grad()"
        )
        return make_boxed_func(graph.forward)

    compiler = aot_autograd(
        fw_compiler=forward,
        bw_compiler=training,
        inference_compiler=inference,
        decompositions=_decompositions(),
    )
    compiled: Callable[..., Any] = compiler(graph_module, example_inputs)
    return compiled


def register() -> None:
    """Tell ``torch.compile`` of the backend, where no entry point did."""
    load_torch()
    from torch._dynamo.backends import registry

    if "tunegrad" not in registry.list_backends():
        registry.register_backend(backend, name="tunegrad")


def _settings(options: Mapping[str, Any] | None, mode: str | None) -> dict[str, Any]:
    if mode not in (None, "default"):
        raise ConfigError(f"torch.compile: mode {mode!r} is not there; valid: 'default'")
    given = dict(options or {})
    wrong = [name for name in given if name not in _OPTIONS]
    if wrong:
        raise ConfigError(
            f"torch.compile: options {', '.join(wrong)} are unknown; valid: {', '.join(_OPTIONS)}"
        )
    return {**_QUIET, **given}


def _decompositions() -> dict[Any, Any]:
    """PyTorch's, but for operators that the table has."""
    from torch._decomp import core_aten_decompositions

    every: dict[Any, Any] = dict(core_aten_decompositions())
    return {
        operator: made
        for operator, made in every.items()
        if str(operator).removeprefix("aten.") not in TABLE
    }


def _names(graph_module: Any, examples: Sequence[Any]) -> dict[int, str]:
    """Names of the parameters and buffers in the user's module, by the tensors' identity.

    ``L['self']._modules['0']._parameters['weight']`` is ``0.weight``.
    """
    places = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    names: dict[int, str] = {}
    for node, example in zip(places, examples, strict=False):
        source = getattr(node.meta.get("grapharg"), "source", None)
        if source is not None and _is_static(example):
            text = source.name() if callable(source.name) else source.name
            parts = re.findall(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", text)
            if parts:
                names[id(example)] = ".".join(parts)
    return names


def _is_static(value: Any) -> bool:
    """Whether it is a parameter or a buffer of a module, by what dynamo wrote on it."""
    torch = load_torch()
    return isinstance(value, torch.nn.Parameter) or (
        getattr(value, "_dynamo_static_input_type", None) is not None
    )


@dataclass(slots=True)
class _Program:
    """A loaded model for one set of constants; None where the graph runs in PyTorch.

    ``constants``: places, tensors, their versions and places in memory when they were read.
    ``inputs``: places of what is passed. ``outputs``: the dtype of each, or its value where that
    is no tensor. ``shared``: inputs are read where they lie, and outputs stay there.
    """

    constants: tuple[tuple[int, Any, int, int], ...]
    model: LoadedModel | None
    inputs: tuple[int, ...]
    outputs: tuple[tuple[bool, Any], ...]
    shared: bool = False

    def run(self, model: LoadedModel, args: Sequence[Any]) -> tuple[Any, ...]:
        given = [args[i] for i in self.inputs]
        run = model.on_device if self.shared else model
        found = run(*map(_lent if self.shared else array_of, given))
        tensors = iter(found if isinstance(found, tuple) else (found,))
        take = _taken if self.shared else tensor_of
        return tuple(
            take(next(tensors), value) if computed else value for computed, value in self.outputs
        )

    def holds(self, args: Sequence[Any]) -> bool:
        """Whether the constants are the same tensors as then, and were not written to."""
        return all(
            args[i] is t and t.data_ptr() == place and _version(t) == version
            for i, t, version, place in self.constants
        )

    def moved(self, args: Sequence[Any]) -> set[int]:
        """Places of constants that are the same tensors, with other values."""
        return {
            i
            for i, t, version, place in self.constants
            if args[i] is t and (t.data_ptr() != place or _version(t) != version)
        }


class _Compiled:
    """One graph: programs by the shapes of its inputs, made when they are needed."""

    def __init__(self, graph: Any, names: Mapping[int, str], settings: Mapping[str, Any]) -> None:
        self._graph, self._names, self._settings = graph, names, settings
        self._programs: OrderedDict[tuple[Any, ...], list[_Program]] = OrderedDict()
        self._written: set[int] = set()
        self._warned = False

    def __call__(self, *args: Any) -> Any:
        key = tuple(_key(a) for a in args)
        programs = self._programs.setdefault(key, [])
        program = next((p for p in programs if p.holds(args)), None)
        if program is None:
            program = self._program(args)
            programs.insert(0, program)
            del programs[_KEPT:]
            while len(self._programs) > _KEPT:
                self._programs.popitem(last=False)
        if program.model is None:
            return self._graph.forward(*args)
        return program.run(program.model, args)

    def _program(self, args: Sequence[Any]) -> _Program:
        """A program for these arguments.

        A parameter that was written to since it was a constant is an input from now on.
        """
        for programs in self._programs.values():
            for old in programs:
                self._written |= old.moved(args)
            programs[:] = [p for p in programs if not p.moved(args)]
        static = [
            i
            for i, a in enumerate(args)
            if hasattr(a, "dtype") and _is_static(a) and _is_counted(a) and i not in self._written
        ]
        constants = tuple((i, args[i], _version(args[i]), args[i].data_ptr()) for i in static)
        try:
            return self._made(args, constants)
        except (ConfigError, DeviceError, MissError, StoreError):
            raise  # the options are wrong
        except TunegradError as error:
            self._warn(error)
            return _Program(constants, None, (), ())

    def _warn(self, error: TunegradError) -> None:
        if not self._warned:
            _log.warning("torch.compile: this graph runs in PyTorch: %s", error)
        self._warned = True

    def _made(self, args: Sequence[Any], constants: Any) -> _Program:
        fixed = {i for i, *_ in constants}
        inputs = tuple(i for i, a in enumerate(args) if hasattr(a, "dtype") and i not in fixed)
        given = [args[i] for i in (*inputs, *fixed)]
        place = _place(given)
        specs = tuple(
            InputSpec(f"x{i}", tuple(args[i].shape), dtype_from(args[i].dtype)) for i in inputs
        )
        values = {
            i: constant_of(t.cpu(), self._names.get(id(t), f"constant{i}"))
            for i, t, *_ in constants
        }
        rest = {i: a for i, a in enumerate(args) if not hasattr(a, "dtype")}
        run = partial(_run, self._graph, {**rest, **values}, inputs)
        outputs = _kinds(run(*(Tensor.input(s.name, s.shape, s.dtype) for s in specs), every=True))
        if not any(computed for computed, _ in outputs):
            raise ModelError("it gives no tensor")
        model = load(Model("graph", lambda: run, specs), **{"device": place, **self._settings})
        shared = model.place is not None and all(place_of(t) == model.place for t in given)
        if not shared and place != "cpu":
            asked = self._settings.get("device", place)
            raise DeviceError(
                f"its tensors lie on {place}, and it is compiled for {asked}; "
                f'leave out "device", or say options={{"device": "{place}"}}'
            )
        return _Program(constants, model, inputs, outputs, shared)


def _place(tensors: Sequence[Any]) -> str:
    """The device that all of these lie on, by our name of it. Raises ModelError."""
    devices = {str(t.device) for t in tensors}
    if len(devices) > 1 or not {d.partition(":")[0] for d in devices} <= set(known()):
        raise ModelError(
            f"its tensors lie on {', '.join(sorted(devices))}; all must be on the CPU, or on one "
            "NVIDIA GPU"
        )
    return devices.pop() if devices else "cpu"


def _lent(tensor: Any) -> Any:
    """A tensor as kernels read it where it lies: contiguous, and aligned."""
    plain = tensor.detach().resolve_neg().contiguous()
    return plain if plain.data_ptr() % ALIGN == 0 else plain.clone()


def _taken(tensor: Any, _: Any) -> Any:
    """An output that stays on the device as a tensor of PyTorch, without a copy."""
    return load_torch().from_dlpack(tensor)


def _run(
    graph: Any, known: Mapping[int, Any], places: Sequence[int], *given: Tensor, every: bool = False
) -> tuple[Any, ...]:
    """The graph's outputs: the tensors, or all."""
    values = {**known, **dict(zip(places, given, strict=True))}
    found = run_graph(graph, [values[i] for i in range(len(values))])
    return tuple(v for v in found if every or isinstance(v, Tensor))


def _kinds(outputs: Sequence[Any]) -> tuple[tuple[bool, Any], ...]:
    return tuple(
        (True, torch_dtype(v.dtype)) if isinstance(v, Tensor) else (False, v) for v in outputs
    )


def _key(value: Any) -> Any:
    """What a program depends on: the shape of a tensor, the value of a number."""
    return tuple(value.shape) if hasattr(value, "dtype") else value


def _is_counted(tensor: Any) -> bool:
    """Whether PyTorch counts what is written to it; not where it was made in inference mode."""
    return not tensor.is_inference()


def _version(tensor: Any) -> int:
    """How often it was written to."""
    return int(tensor._version)  # noqa: SLF001 - its public name


register()
