"""An FX graph of ATen operators, run on tensors of ours.

An operator's result is compared with PyTorch's description of it (``node.meta["val"]``): it is cast
to that dtype, and another shape is an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunegrad.errors import ModelError

from ..tensor import Tensor
from .aten import COMPLEX, TABLE, Complex, lifted
from .aten.movement import strided
from .values import dtype_from, load_torch, value_of

__all__ = ["missing_operators", "name_of", "run_graph"]

_DROPPED = frozenset(["device", "layout", "pin_memory", "memory_format", "requires_grad"])
"""Arguments that say where and how memory lies."""

_CHECKS = frozenset(
    [
        "aten._assert_scalar.default", "aten._assert_async.msg", "aten._assert_async.default",
        "aten._assert_tensor_metadata.default", "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    ]
)  # fmt: skip
"""Nodes that give nothing: what they say of shapes was checked when the graph was made."""

_SIZES: dict[str, Callable[..., Any]] = {
    "aten.sym_size.int": lambda x, dim: x.shape[dim],
    "aten.sym_numel.default": lambda x: math.prod(x.shape),
}


def name_of(target: Any) -> str:
    """``aten.add.Tensor``, or what it is called otherwise."""
    text = str(target) if hasattr(target, "overloadpacket") else getattr(target, "__name__", "")
    return text or str(target)


def missing_operators(graph: Any) -> tuple[str, ...]:
    """The operators of an FX graph that are not there, in their order, each once."""
    names = (
        name_of(n.target)
        for n in graph.nodes
        if n.op in ("call_function", "call_method", "call_module") and _function(n) is None
    )
    return tuple(dict.fromkeys(names))


def run_graph(
    graph_module: Any, inputs: Sequence[Any], attributes: Mapping[str, Any] | None = None
) -> Any:
    """Run the graph for these values of its placeholders; return what it returns: tensors, numbers,
    None.

    ``attributes``: tensors of PyTorch by the names that ``get_attr`` asks for; those of the module
    unless given.

    Raises:
        ModelError: an operator that is not there, or that gave another shape than PyTorch's;
            ShapeError, DTypeError as the operators of tensors.
    """
    given = iter(inputs)
    values: dict[Any, Any] = {}
    found: Any = None
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "get_attr":
            values[node] = _attribute(graph_module, node.target, attributes)
        elif node.op == "output":
            found = _mapped(node.args[0], values)
        else:
            values[node] = _called(node, values)
    return found


def _function(node: Any) -> Callable[..., Any] | None:
    """The function that a node calls here; None for one that is not there."""
    target = node.target
    if node.op != "call_function":
        return None
    name = name_of(target)
    if name in _CHECKS:
        return _nothing
    if name in _SIZES:
        return _SIZES[name]
    if name.startswith(("aten.", "prims.")):
        return strided if name == _STRIDED else TABLE.get(name.removeprefix("aten."))
    home = getattr(target, "__module__", "")
    if home in ("_operator", "operator", "math", "builtins") or target is operator.getitem:
        return target  # type: ignore[no-any-return]  # sizes are numbers, results are tuples
    if name in ("sym_max", "sym_min", "sym_not", "sym_float", "sym_int"):
        return target  # type: ignore[no-any-return]
    return None


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _called(node: Any, values: Mapping[Any, Any]) -> Any:
    function = _function(node)
    if function is None:
        raise ModelError(f"{name_of(node.target)} is not supported")
    args = [_mapped(a, values) for a in node.args]
    kwargs = {k: _mapped(a, values) for k, a in node.kwargs.items() if k not in _DROPPED}
    if name_of(node.target) == _STRIDED:
        args = _with_memory(node.args[0].meta.get("val"), *args)
    elif any(_is_complex(a) for a in args) and function is not operator.getitem:
        name = name_of(node.target).removeprefix("aten.")
        function = COMPLEX.get(name) or lifted(function, name)
    try:
        result = function(*args, **kwargs)
    except TypeError as error:  # an argument of the schema that the table does not take
        raise ModelError(f"{name_of(node.target)}: {error}") from error
    return _as_said(node, result, node.meta.get("val"))


_STRIDED = "aten.as_strided.default"


def _with_memory(
    said: Any, x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> list[Any]:
    """The arguments of ``strided``: where PyTorch says that the elements of ``x`` lie."""
    if said is None:
        raise ModelError(f"{_STRIDED}: where the elements of its input lie is not known")
    held, first = [*said.stride()], said.storage_offset()
    if not all(isinstance(n, int) for n in (*held, first, *size, *stride)):
        raise ModelError(
            f"{_STRIDED}: strides that are not known before the call are not supported"
        )
    return [x, held, size, stride, 0 if offset is None else offset - first]


def _is_complex(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_complex, value))
    return isinstance(value, Complex | complex)


def _as_said(node: Any, result: Any, said: Any) -> Any:
    """The result in the dtype that PyTorch gives it.

    Raises ModelError for another shape.
    """
    if isinstance(said, list | tuple) and isinstance(result, list | tuple):
        return tuple(_as_said(node, r, s) for r, s in zip(result, said, strict=False))
    if not isinstance(result, Tensor) or not hasattr(said, "dtype"):
        return result
    shape = tuple(said.shape)
    known = all(isinstance(n, int) for n in shape)
    if (known and shape != result.shape) or len(shape) != result.ndim:
        raise ModelError(
            f"{name_of(node.target)}: gave shape {result.shape}, PyTorch gives {shape}"
        )
    kind = dtype_from(said.dtype)
    return result if result.dtype == kind else result.cast(kind)


def _mapped(value: Any, values: Mapping[Any, Any]) -> Any:
    """An argument with nodes as their values, and PyTorch's types as ours."""
    torch = load_torch()
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, torch.dtype):
        return dtype_from(value)
    if isinstance(value, list | tuple):
        return [_mapped(v, values) for v in value]
    return value


def _attribute(module: Any, path: str, attributes: Mapping[str, Any] | None) -> Tensor | Complex:
    if attributes is not None and path in attributes:
        tensor = attributes[path]
    else:
        tensor = module
        for part in path.split("."):
            tensor = getattr(tensor, part)
    if not hasattr(tensor, "dtype"):
        raise ModelError(f"attribute {path} of the graph is a {type(tensor).__name__}")
    return value_of(tensor, path)
