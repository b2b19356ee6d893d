"""``from_torch``: a ``torch.nn.Module`` with its examples as a Model, by ``torch.export``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Literal

from tunegrad.errors import ModelError, TunegradError
from tunegrad.trees import mapped

from ..model import InputSpec, Model
from ..nn.module import Buffer, Module, Parameter
from ..tensor import Tensor
from ..weights import Array, ParameterSpec
from .aten import TABLE, Complex
from .checking import FirstCall, check_choice
from .graph import dtype_from, load_torch, missing_operators, run_graph, shared, value_of

_SHOWN = 300
"""Letters of PyTorch's own errors."""

_NAMED = 3
"""Layers that an error names."""


def from_torch(
    module: Any, *examples: Any, check: Literal["error", "warn", False] = "error",
    **example_kwargs: Any,
) -> Model:  # fmt: skip
    """The Model of a ``torch.nn.Module`` in inference, for inputs like these examples.

    Examples are tensors of PyTorch, arrays, or nests of them; each tensor is an input of the Model.
    Those that are no tensors (numbers, bools, None) stay as they are. Parameters and buffers have
    their names in the module and its values, which are shared, not copied; ``tg.load(model,
    weights=...)`` takes others. Outputs come flat.

    The first call of the loaded model is compared with PyTorch: where they differ by more than
    rounding, ``check="error"`` raises MismatchError, ``"warn"`` gives PyTorch's results, and False
    does not compare.

    Raises:
        ModelError: no PyTorch, no module or no examples; a module in train mode whose layers draw
            random numbers or write statistics; one that ``torch.export`` can not take, or that
            writes to its buffers or inputs; operators that are not there, all of them in one line.
        ConfigError: another ``check``.
    """
    torch = load_torch()
    check_choice("from_torch", check)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"from_torch takes a torch.nn.Module, not a {type(module).__name__}")
    name = type(module).__name__
    if not examples and not example_kwargs:
        raise ModelError(f"from_torch: module {name} needs an example of each input")
    _refuse_training(torch, module, name)
    program = _program(torch, module, name, examples, example_kwargs)
    missing = missing_operators(program.graph)
    if missing:
        raise ModelError(
            f"module {name}: {len(missing)} operators are not supported: {', '.join(missing)}"
        )
    graph = _Graph(name, program)
    inputs = tuple(graph.inputs.values())
    parameters = tuple(p.spec for p in graph.places.values())
    first = FirstCall(program, graph.sources, check) if check else None
    model = Model(name, partial(_Graph, name, program), inputs, parameters, graph.own, first)
    try:
        model.build(graph.own)
    except TunegradError as error:
        raise _failure(error)(f"module {name}: {error}") from error
    return model


def _refuse_training(torch: Any, module: Any, name: str) -> None:
    """Raise ModelError for layers that do something else in train mode than a model can."""
    nn = torch.nn
    found = []
    for path, m in module.named_modules():
        if not m.training:
            continue
        random = isinstance(m, nn.modules.dropout._DropoutNd) and m.p
        random = random or (isinstance(m, nn.RNNBase | nn.MultiheadAttention) and m.dropout)
        written = isinstance(m, nn.modules.batchnorm._NormBase) and m.track_running_stats
        if random or written:
            does = "draws random numbers" if random else "writes its running statistics"
            found.append(f"{path or 'it'} ({type(m).__name__}) {does}")
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise ModelError(
            f"module {name} is in train mode: {'; '.join(found[:_NAMED])}{more}; call its eval() "
            "for inference"
        )


def _program(torch: Any, module: Any, name: str, examples: Any, named: Any) -> Any:
    """The exported program in ATen operators, those of the table as they are."""
    seen = {id(t) for t in (*module.parameters(), *module.buffers())}
    args, kwargs = mapped((examples, named), partial(_tensor, torch, seen))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch's own parts among themselves
            exported = torch.export.export(module, tuple(args), kwargs, strict=False)
            kept = torch.export.default_decompositions()
            for operator in list(kept):
                if str(operator).removeprefix("aten.") in TABLE:
                    kept.pop(operator)
            return exported.run_decompositions(kept)
    except Exception as error:
        text = " ".join(str(error).split())
        if isinstance(error, torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode):
            text = f"a shape or a branch depends on values, which a model can not have: {text}"
        raise _failure(error)(f"module {name}: torch.export: {text[:_SHOWN]}") from error


def _failure(error: Exception) -> type[ModelError]:
    """A ModelError that is also an error of the kind that PyTorch raises."""
    kinds = (IndexError, RuntimeError, TypeError, ValueError)
    found = next((k for k in kinds if isinstance(error, k)), None)
    return ModelError if found is None else _as_both(found)


@cache
def _as_both(kind: type[Exception]) -> type[ModelError]:
    return type("ModelError", (ModelError, kind), {})


def _tensor(torch: Any, seen: set[int], value: Any) -> Any:
    """An array or a tensor of ours as PyTorch's.

    ``torch.export`` knows tensors by identity: one that was ``seen`` is copied, so that it is an
    input of its own.
    """
    if isinstance(value, Tensor):
        value = value.numpy()
    if hasattr(value, "__array_interface__"):
        return torch.from_numpy(value.copy())
    if isinstance(value, torch.Tensor):
        value = value.detach().clone() if id(value) in seen else value
        seen.add(id(value))
    return value


class _Graph(Module):
    """The module of an exported program: its parameters by their names in PyTorch."""

    def __init__(self, name: str, program: Any) -> None:
        self._name, self._program = name, program
        self._signature = signature = program.graph_signature
        self.places: dict[str, Parameter] = {}
        self.own: dict[str, Array] = {}
        self.inputs: dict[str, InputSpec] = {}
        self.sources: list[tuple[str, Any]] = []
        nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(nodes, signature.input_specs, strict=True):
            self.sources.append(self._source(node, spec))
        changed = [s.target for s in signature.output_specs if "MUTATION" in s.kind.name]
        if changed:
            raise ModelError(
                f"module {name} writes to {', '.join(map(str, changed))}: give it as an input, and "
                "return the new value"
            )

    def _source(self, node: Any, spec: Any) -> tuple[str, Any]:
        """Source of a placeholder's value."""
        kind, said = spec.kind.name, node.meta.get("val")
        if kind == "USER_INPUT":
            if not hasattr(said, "dtype"):
                return "value", getattr(spec.arg, "value", said)
            self.inputs[node.name] = InputSpec(
                node.name, tuple(int(n) for n in said.shape), dtype_from(said.dtype)
            )
            return "input", node.name
        tensor = self._tensor(spec)
        if tensor is None:
            return "value", None
        own = kind == "PARAMETER" or (kind == "BUFFER" and spec.persistent)
        own = own and not tensor.is_complex()
        if not own or spec.target.endswith("num_batches_tracked"):
            return ("value", None) if not node.users else ("constant", (tensor, spec.target))
        if spec.target not in self.places:
            made = Parameter if kind == "PARAMETER" else Buffer
            place = made(*tensor.shape, dtype=dtype_from(tensor.dtype))
            place.spec = ParameterSpec(spec.target, tuple(tensor.shape), dtype_from(tensor.dtype))
            self.places[spec.target] = place
            self.own[spec.target] = shared(tensor)
        return "parameter", spec.target

    def _tensor(self, spec: Any) -> Any:
        for held in (self._program.state_dict, self._program.constants):
            if spec.target in held:
                return held[spec.target]
        return None

    def named(self, prefix: str = "") -> Any:
        """Every parameter and its name in PyTorch."""
        for name, place in self.places.items():
            yield f"{prefix}{name}", place

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs that the user's module returns, flat."""
        given = dict(zip(self.inputs, inputs, strict=True))
        values = [self._value(kind, what, given) for kind, what in self.sources]
        found = run_graph(self._program.graph_module, values)
        specs = self._signature.output_specs
        outputs = [v for v, s in zip(found, specs, strict=True) if s.kind.name == "USER_OUTPUT"]
        if any(isinstance(v, Complex) for v in outputs):
            raise ModelError("an output is complex; let it return torch.view_as_real of that")
        return tuple(v for v in outputs if isinstance(v, Tensor))

    def _value(self, kind: str, what: Any, given: Mapping[str, Tensor]) -> Any:
        if kind == "input":
            return given[what]
        if kind == "parameter":
            return self.places[what].tensor
        if kind == "constant":
            return value_of(*what)
        return what
