"""tunegrad as a backend of ONNX's own interface (``onnx.backend.base``).

    prepare(model)   -->  operators are checked
    run(inputs)      -->  a program for their shapes and lengths, kept for the next inputs like them
                          inputs that shapes depend on become constants of it

Sequences are lists of arrays, optional values arrays or None. This module needs the package onnx
when it is imported.
"""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from tunegrad import devices
from tunegrad.errors import DeviceError, ModelError
from tunegrad.ir.dtypes import BF16, U64, DType

from ..model import InputSpec, Model
from ..nodes.arrays import bf16_values
from ..random import draws_from
from ..tensor import Tensor
from .building import (
    check_structure,
    draws_unseeded,
    evaluated,
    initialisers,
    missing_operators,
)
from .importer import DRAWS, dtype_of_onnx
from .node import Coded, NotKnownError, TensorList, Value, array_of, codes_of, kind_of_array

Array = NDArray[Any]
Given = Array | list[Array] | None
"""Of an input: a tensor, a sequence of them, or an optional value that is empty."""

_PROGRAMS = 16
"""Programs of one model: by shapes, and by the inputs that are constants."""


class TunegradRep(BackendRep):
    """A model that is prepared: ``run`` as often as there are inputs.

    ``constants`` are the inputs that were constants of the program in the last run, since shapes,
    positions or conditions depend on them; ``kernels`` counts the kernels that it ran.
    """

    def __init__(self, proto: Any, device: str, threads: int | None, store: Any) -> None:
        self._proto, self._name = proto, proto.graph.name or "model"
        self._load = {"device": device, "threads": threads, "store": store}
        held = initialisers(proto.graph)
        self._inputs = [i for i in proto.graph.input if i.name not in held]
        self._programs: OrderedDict[object, _Program] = OrderedDict()
        self._fixed: dict[object, frozenset[str]] = {}
        self.constants: frozenset[str] = frozenset()
        self.kernels = 0

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs for inputs in the model's order, or by name.

        Raises ModelError for other inputs than the model's, and as loading a model does.
        """
        values = self._taken(inputs)
        shapes = tuple(_signature(v) for v in values.values())
        fixed = self._fixed.get(shapes, frozenset(i for i, v in values.items() if _text(v)))
        while True:
            try:
                program = self._program(values, shapes, fixed)
                break
            except NotKnownError as error:
                owners = {e: name for name, v in values.items() for e in _elements(name, v)}
                more = {owners[i] for i in error.inputs} - fixed
                if not more:
                    raise
                fixed |= more
        self._fixed[shapes] = self.constants = fixed
        self.kernels = program.kernels
        return program(values)

    def _taken(self, inputs: Any) -> dict[str, Given]:
        """Inputs by name, as arrays, lists of them, and None."""
        names = [i.name for i in self._inputs]
        if isinstance(inputs, Mapping):
            given = list(inputs.items())
        else:
            listed = inputs if isinstance(inputs, list | tuple) else [inputs]
            given = [*zip(names, listed, strict=False), *(("", v) for v in listed[len(names) :])]
        if sorted(name for name, _ in given) != sorted(names):
            said = ", ".join(names) or "none"
            raise ModelError(f"model {self._name} takes the inputs {said}; {len(given)} are given")
        values = dict(given)
        return {i.name: _array_or_list(values[i.name], i.type) for i in self._inputs}

    def _program(
        self, values: Mapping[str, Given], shapes: object, fixed: frozenset[str]
    ) -> _Program:
        """The program for inputs of these shapes, and of these values of ``fixed``."""
        key = shapes, tuple(_content(values[name]) for name in sorted(fixed))
        found = self._programs.get(key)
        if found is None:
            found = self._built(values, fixed)
            self._programs[key] = found
            while len(self._programs) > _PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return found

    def _built(self, values: Mapping[str, Given], fixed: frozenset[str]) -> _Program:
        specs: list[InputSpec] = []

        def symbol(name: str, array: Array) -> Tensor | Coded:
            dtype = dtype_of_onnx(
                self._name, f"input {name}", helper.np_dtype_to_tensor_dtype(array.dtype)
            )
            specs.append(InputSpec(name, array.shape, dtype))
            held, kind = Tensor.input(name, array.shape, dtype), kind_of_array(array)
            return held if kind is None else Coded(held, kind)

        symbols: dict[str, Value] = {}
        for name, value in values.items():
            made: list[Tensor | Coded | Array] = [
                a if name in fixed else symbol(e, a) for e, a in _elements(name, value).items()
            ]
            symbols[name] = made[0] if made else None
            if isinstance(value, list):
                symbols[name] = TensorList(v for v in made if not isinstance(v, Coded))
                if any(isinstance(v, Coded) for v in made):
                    raise ModelError(f"model {self._name}: input {name} is a sequence of codes")
        start = Tensor.input(DRAWS, (), U64)
        with draws_from(start):
            outputs = evaluated(self._proto, self._name, symbols)
        if draws_unseeded(self._proto.graph):
            specs.append(InputSpec(DRAWS, (), U64))
        flat = tuple(t for v in outputs for t in _tensors(v))
        names = tuple(s.name for s in specs)
        if not flat:
            return _Program(None, names, tuple(outputs), 0)
        # inference stands above the front end, and is the only place where stages are composed
        load = importlib.import_module("tunegrad.inference").load
        loaded = load(Model(self._name, lambda: lambda *_: flat, tuple(specs)), **self._load)
        kernels = sum(row.uses for row in loaded.report())
        return _Program(loaded, names, tuple(outputs), kernels)


@dataclass(frozen=True, slots=True)
class _Program:
    """A model for inputs of one kind; ``outputs`` holds tensors where ``loaded`` computes."""

    loaded: Callable[..., Any] | None
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    kernels: int

    def __call__(self, values: Mapping[str, Given]) -> tuple[Any, ...]:
        given = {e: a for name, v in values.items() for e, a in _elements(name, v).items()}
        found: Any = ()
        if self.loaded is not None:
            given.setdefault(DRAWS, np.frombuffer(os.urandom(8), np.uint64)[0])
            found = self.loaded(*(codes_of(given[name]) for name in self.inputs))
        arrays = iter(found if isinstance(found, tuple) else (found,))
        return tuple(self._output(v, arrays) for v in self.outputs)

    def _output(self, value: Value, arrays: Any) -> Any:
        if isinstance(value, TensorList):
            return [self._output(v, arrays) for v in value]
        if isinstance(value, Coded):
            return array_of(next(arrays), value.kind)
        return _values(next(arrays), value.dtype) if isinstance(value, Tensor) else value


def _tensors(value: Value) -> Sequence[Tensor]:
    listed = value if isinstance(value, TensorList) else (value,)
    held = [v.codes if isinstance(v, Coded) else v for v in listed]
    return [v for v in held if isinstance(v, Tensor)]


def _array_or_list(value: Any, said: Any) -> Given:
    """An input as its type says: an array, a list of arrays, or None."""
    if said.HasField("optional_type"):
        return None if value is None else _array_or_list(value, said.optional_type.elem_type)
    if said.HasField("sequence_type"):
        return [_array(v) for v in value]
    return _array(value)


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _elements(name: str, value: Given) -> dict[str, Array]:
    """The arrays of an input by the names that they have in the program."""
    if isinstance(value, list):
        return {f"{name}[{i}]": v for i, v in enumerate(value)}
    return {} if value is None else {name: value}


def _text(value: Given) -> bool:
    """True if it holds strings, which are known when a program is built or not there."""
    listed = value if isinstance(value, list) else [value]
    return any(v is not None and v.dtype.kind in "OUS" for v in listed)


def _signature(value: Given) -> object:
    if isinstance(value, list):
        return tuple(map(_signature, value))
    return None if value is None else (value.dtype.name, value.shape)


def _content(value: Given) -> object:
    if isinstance(value, list):
        return tuple(map(_content, value))
    if value is None:
        return None
    return repr(value.tolist()) if _text(value) else value.tobytes()


def _values(array: Array, dtype: DType) -> Array:
    """An output in numpy's type; bf16 in the one that onnx uses."""
    if dtype != BF16:
        return array
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    return array.view(kind) if kind.itemsize == array.itemsize else bf16_values(array)


class TunegradBackend(Backend):
    """``onnx.backend.base.Backend`` by tunegrad.

    ``threads`` and ``store`` of ``prepare`` are those of ``tunegrad.load``; other arguments are the
    suite's, and mean nothing here.
    """

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **_: Any) -> bool:
        """True if every operator of the model is there."""
        return not missing_operators(model.graph) and cls.supports_device(device)

    @classmethod
    def prepare(
        cls,
        model: Any,
        device: str = "CPU",
        *,
        threads: int | None = None,
        store: Any = None,
        **_: Any,
    ) -> TunegradRep:
        """A model to run.

        Raises ModelError where it is damaged, or where operators are not there, naming all of them.
        """
        try:
            onnx.checker.check_model(model)
        except (onnx.checker.ValidationError, ValueError) as error:
            said = " ".join(str(error).split())[:200]
            raise ModelError(f"model {model.graph.name}: {said}") from None
        return cls._rep(model, device, threads, store)

    @classmethod
    def _rep(cls, model: Any, device: str, threads: int | None, store: Any) -> TunegradRep:
        check_structure(model, model.graph.name or "model")
        return TunegradRep(model, _device(device), threads, store)

    @classmethod
    def run_node(  # type: ignore[override]  # any keyword, as the suite calls it
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        *,
        threads: int | None = None,
        store: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; a list of arrays among the inputs is a sequence.

        ``opset_version`` is the newest unless given. Raises ModelError.
        """
        try:
            super().run_node(node, inputs, device, outputs_info, **kwargs)
        except onnx.checker.ValidationError as error:
            raise ModelError(f"node {node.op_type}: {' '.join(str(error).split())[:200]}") from None
        names = [i for i in node.input if i]
        if len(names) != len(inputs):
            raise ModelError(f"node {node.op_type} takes {len(names)} inputs, not {len(inputs)}")
        given = dict(zip(names, inputs, strict=True))
        graph = helper.make_graph(
            [node],
            node.op_type,
            [_info(name, value) for name, value in given.items()],
            [helper.make_empty_tensor_value_info(o) for o in node.output if o],
        )
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        model: ModelProto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", int(opset))]
        )
        return cls._rep(model, device, threads, store).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True if a device of ONNX's (``CPU``, ``CUDA:0``) is one that runs here."""
        try:
            devices.running(_device(device))
        except DeviceError:
            return False
        return True


def _info(name: str, value: Any) -> Any:
    """An input of a node, as its value says."""
    if isinstance(value, list | tuple) and not (value and np.isscalar(value[0])):
        return helper.make_tensor_sequence_value_info(name, TensorProto.UNDEFINED, None)
    if value is None:
        tensor = helper.make_tensor_type_proto(TensorProto.UNDEFINED, None)
        return helper.make_value_info(name, helper.make_optional_type_proto(tensor))
    return helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)


def _device(name: str) -> str:
    """ONNX's name of a device as ours: the CPU is one, whatever its number."""
    family, _, part = name.lower().partition(":")
    return family if not part or family == devices.DEFAULT else f"{family}:{part}"
