"""Tensors of PyTorch as numpy arrays and back, without copies on the CPU.

bf16 goes as bit patterns in ``uint16``, as everywhere here.

An FX graph of ATen operators, run on tensors of ours.

An operator's result is compared with PyTorch's description of it (``node.meta["val"]``): it is cast
to that dtype, and another shape is an error.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import DTypeError, ModelError
from tunegrad.ir.dtypes import DType, dtype_of

from ..ops.indexing import within
from ..tensor import Tensor
from .aten import COMPLEX, TABLE, Complex, as_complex, lifted
from .aten.movement import strided, strided_scatter

_NAMES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "bfloat16": "bf16", "float16": "f16",
    "float32": "f32", "float64": "f64",
}  # fmt: skip


@functools.cache
def load_torch() -> Any:
    """PyTorch.

    Raises:
        ModelError: it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ModelError(
            f"models of PyTorch need it: pip install 'tunegrad[torch]' ({error})"
        ) from None


@functools.cache
def _dtypes() -> dict[Any, DType]:
    torch = load_torch()
    return {getattr(torch, theirs): dtype_of(ours) for theirs, ours in _NAMES.items()}


@functools.cache
def _theirs() -> dict[str, Any]:
    return {ours.name: theirs for theirs, ours in _dtypes().items()}


def dtype_from(theirs: Any) -> DType:
    """Our type for one of PyTorch's.

    Raises:
        DTypeError: there is none.
    """
    found = _dtypes().get(theirs)
    if found is None:
        raise DTypeError(f"{theirs} of PyTorch is not supported; valid: {', '.join(_NAMES)}")
    return found


def torch_dtype(ours: DType) -> Any:
    """PyTorch's type for one of ours."""
    return _theirs()[ours.name]


def array_of(tensor: Any) -> NDArray[np.generic]:
    """The memory of a tensor on the CPU as an array; complex numbers as pairs."""
    if tensor.dtype is load_torch().bfloat16:
        return array_of(tensor.detach().view(load_torch().int16)).view(np.uint16)
    if tensor.is_complex():
        return array_of(load_torch().view_as_real(tensor.detach().resolve_conj()))
    return tensor.numpy(force=True)  # type: ignore[no-any-return]


def tensor_of(array: NDArray[np.generic], dtype: Any) -> Any:
    """An array that nothing else refers to as a tensor of a dtype of PyTorch."""
    torch = load_torch()
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    found = torch.from_numpy(array)
    return torch.view_as_complex(found) if dtype.is_complex else found


def constant_of(tensor: Any, name: str = "") -> Tensor:
    """A tensor of PyTorch as a constant, which shares its memory where that is contiguous.

    Raises:
        DTypeError: of a type that is not there, or not a plain array on the CPU.
    """
    kind = dtype_from(tensor.dtype)
    return Tensor.constant(shared(tensor), kind, name)


def value_of(tensor: Any, name: str = "") -> Tensor | Complex:
    """A tensor of PyTorch as a constant, or as two where its numbers are complex.

    Raises:
        DTypeError: as ``constant_of``.
    """
    if not tensor.is_complex():
        return constant_of(tensor, name)
    plain = tensor.detach().resolve_conj()
    return Complex(constant_of(plain.real, name), constant_of(plain.imag, name))


def shared(tensor: Any) -> NDArray[np.generic]:
    """A view of a tensor's memory that can not be written to."""
    torch = load_torch()
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise DTypeError(
            f"a tensor on {tensor.device} of layout {tensor.layout} is not a plain array on the CPU"
        )
    array = array_of(tensor).view()
    array.flags.writeable = False
    return array


_DROPPED = frozenset(
    ["device", "layout", "pin_memory", "memory_format", "requires_grad", "non_blocking", "implicit",
     "cudnn_enable", "cudnn_enabled", "sparse_grad", "sparse", "scale_grad_by_freq", "path",
     "compute_mode", "unroll_dim", "out_int32", "assume_unique"]
)  # fmt: skip
"""Arguments that say where and how memory lies, how PyTorch computes, or what gradients are."""

_CHECKS = frozenset(
    [
        "aten._assert_scalar.default", "aten._assert_async.msg", "aten._assert_async.default",
        "aten._assert_tensor_metadata.default", "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    ]
)  # fmt: skip
"""Nodes that give nothing: what they say of shapes was checked when the graph was made. What
``_assert_async`` says of values is held to where it is of positions (``_positions_held``).
"""

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


def run_graph(graph_module: Any, inputs: Sequence[Any]) -> Any:
    """Run the graph for these values of its placeholders; return what it returns: tensors, numbers,
    None.

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
            values[node] = _attribute(graph_module, node.target)
        elif node.op == "output":
            found = _mapped(node.args[0], values)
        else:
            values[node] = _called(node, values)
            if name_of(node.target) == "aten._assert_async.msg":
                _positions_held(node, values)
    return found


def _positions_held(node: Any, values: dict[Any, Any]) -> None:
    """Hold positions to the bounds that PyTorch asserts them to have, from here on.

    _assert_async(all(x >= 0), "one_hot: ..")      x = within(x, 0, 4)
    _assert_async(all(x < 4), "one_hot: ..")  -->
    """
    condition, message = node.args
    compared = condition.args[0] if name_of(condition.target) == "aten.all.default" else None
    if compared is None or name_of(compared.target) != "aten.lt.Scalar":
        return
    x, bound = compared.args
    if not isinstance(values[x], Tensor) or not values[x].dtype.is_int or type(bound) is not int:
        return
    if any(name_of(u.target) == "aten.ge.Scalar" and u.args[1] == 0 for u in x.users):
        values[x] = within(values[x], message.partition(":")[0], 0, bound)


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
    if name == "aten._local_scalar_dense.default":
        return _guarded(node.meta.get("val"))
    if name.startswith(("aten.", "prims.")):
        return _BY_MEMORY.get(name) or TABLE.get(name.removeprefix("aten."))
    home = getattr(target, "__module__", "")
    if home in ("_operator", "operator", "math", "builtins") or target is operator.getitem:
        return target  # type: ignore[no-any-return]  # sizes are numbers, results are tuples
    if name in ("sym_max", "sym_min", "sym_not", "sym_float", "sym_int"):
        return target  # type: ignore[no-any-return]
    return None


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _guarded(number: Any) -> Callable[..., Any] | None:
    """The function that gives the value that dynamo has made sure of; None where it has not."""
    expr = getattr(getattr(number, "node", None), "expr", None)
    if expr is None or not expr.is_number:
        return None
    value = int(expr) if isinstance(number, load_torch().SymInt) else float(expr)
    return lambda _: value


def _called(node: Any, values: Mapping[Any, Any]) -> Any:
    function = _function(node)
    if function is None:
        raise ModelError(f"{name_of(node.target)} is not supported")
    wide = node.kwargs.get("dtype")
    if getattr(wide, "is_complex", False):  # of real numbers, or a conversion of complex ones
        part = dtype_from(wide.to_real())
        if name_of(node.target) == "aten._to_copy.default":
            return as_complex(_mapped(node.args[0], values), part)
        args = [_mapped(a, values) for a in node.args]
        return as_complex(function(*args, dtype=part), part)
    schema = getattr(node.target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else [""] * len(node.args)
    given = zip(names, node.args, strict=False)
    args = [_mapped(a, values) for name, a in given if name not in _DROPPED]
    kwargs = {k: _mapped(a, values) for k, a in node.kwargs.items() if k not in _DROPPED}
    if kwargs.get("dtype", 0) is None:
        kwargs.pop("dtype")
    name = name_of(node.target)
    if name in _BY_MEMORY:
        args = _with_memory(name, node.args[0].meta.get("val"), args)
    elif any(_is_complex(a) for a in args) and function is not operator.getitem:
        short = name.removeprefix("aten.")
        function = COMPLEX.get(short) or lifted(function, short)
    try:
        result = function(*args, **kwargs)
    except TypeError as error:  # an argument of the schema that the table does not take
        raise ModelError(f"{name}: {error}") from error
    if function is operator.getitem:  # a part of what is as it was said to be
        return result
    return _as_said(node, result, node.meta.get("val"))


_BY_MEMORY: dict[str, Callable[..., Any]] = {
    "aten.as_strided.default": strided, "aten.as_strided_scatter.default": strided_scatter,
}  # fmt: skip
"""Operators that say places in the memory of their first argument."""


def _with_memory(name: str, said: Any, args: Sequence[Any]) -> list[Any]:
    """The arguments of these: where PyTorch says that the elements of the first one lie."""
    if said is None:
        raise ModelError(f"{name}: where the elements of its input lie is not known")
    count = next(i for i, a in enumerate(args) if isinstance(a, list))
    tensors, (size, stride, *rest) = args[:count], args[count:]
    offset = rest[0] if rest else None
    held, first = [*said.stride()], said.storage_offset()
    if not all(isinstance(n, int) for n in (*held, first, *size, *stride)):
        raise ModelError(f"{name}: strides that are not known before the call are not supported")
    return [*tensors, held, size, stride, 0 if offset is None else offset - first]


def _is_complex(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_complex, value))
    return isinstance(value, Complex | complex)


_OF_STATISTICS = frozenset(
    ["aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.no_stats"]
)
"""Operators whose statistics are f32 beside 16-bit inputs, which PyTorch's description denies."""


def _as_said(node: Any, result: Any, said: Any) -> Any:
    """The result in the dtype that PyTorch gives it.

    Raises ModelError for another shape.
    """
    if isinstance(said, list | tuple) and isinstance(result, list | tuple):
        if name_of(node.target) in _OF_STATISTICS:
            return _as_said(node, result[0], said[0]), *result[1:]
        parts = {u.args[1] for u in node.users if u.target is operator.getitem}
        every = len(parts) < len(node.users)
        return tuple(
            _as_said(node, r, s) if every or i in parts else None
            for i, (r, s) in enumerate(zip(result, said, strict=False))
        )
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


def _attribute(module: Any, path: str) -> Tensor | Complex:
    tensor = module
    for part in path.split("."):
        tensor = getattr(tensor, part)
    if not hasattr(tensor, "dtype"):
        raise ModelError(f"attribute {path} of the graph is a {type(tensor).__name__}")
    return value_of(tensor, path)
