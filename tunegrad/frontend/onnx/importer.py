"""A file, or a model of onnx's, as a Model; its inputs, with what a user says of them.

    batch=8              the extent of every dimension of this name
    x.0=8                the extent of one dimension, by its input and place: of any, named or not
    x=1x3x224x224        the whole shape of an input
    sr=16000             the value of an input, which is a constant of the program then
    draws=7              the seed of nodes that draw numbers and have none, which is an input else

A name that is no name (``?``, ``-1``, a line end, nothing at all) is that of one dimension only:
files give it to extents that have nothing in common.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tunegrad.errors import ModelError
from tunegrad.ir.dtypes import U64, DType

from ..model import InputSpec, Model
from ..random import draws_from, start_of
from ..tensor import Tensor
from .building import check_structure, draws_unseeded, evaluated, initialisers
from .node import Coded, Kind, Known, TensorList, coded, type_of_number

_SHAPE = re.compile(r"\d+(x\d+)*")
_NAME = re.compile(r"[^\W\d_]")
_PLAIN = re.compile(r"[\w.:/+-]+")
"""Names that neither brackets nor a shell read as something else; a shell takes quotes away."""


@dataclass(frozen=True, slots=True)
class _Input:
    """An input of a file: its type, and of each dimension the extent or the name.

    ``dims`` is None where the file gives no shape.
    """

    name: str
    dtype: DType
    dims: tuple[int | str, ...] | None


def inputs_of_graph(
    graph: Any, name: str, given: Mapping[str, object]
) -> tuple[list[InputSpec], dict[str, Known]]:
    """The inputs that are left to a caller, and the values of those that have one.

    Raises ModelError, in one line: dimensions without an extent (all of them), an extent, shape or
    value that does not fit, a name that the file does not have.
    """
    constants = set(initialisers(graph))
    inputs = [_declared(i, name) for i in graph.input if i.name not in constants]
    names = {d for i in inputs for d in i.dims or () if isinstance(d, str)}
    places = {f"{i.name}.{at}" for i in inputs for at in range(len(i.dims or ()))}
    extra = given.keys() - names - places - {i.name for i in inputs}
    if extra:
        raise ModelError(
            f"model {name} has no dimension or input {', '.join(sorted(extra))} to give an extent, "
            f"a shape or a value to; inputs: {', '.join(i.name for i in inputs) or 'none'}; "
            f"dimensions: {', '.join(sorted(names)) or 'none'}"
        )
    found, values, unknown = list[InputSpec](), dict[str, Known](), dict[str, str]()
    for i in inputs:
        said = None if i.name in names and isinstance(given.get(i.name), int) else given.get(i.name)
        whole = said if isinstance(said, str) and _SHAPE.fullmatch(said) else None
        if said is not None and whole is None:
            own = np.asarray(said).shape
            shape = own if i.dims is None else _shape(name, i, given, {})
            values[i.name] = _value(name, i, said, shape)
            continue
        wanted = given if whole is None else _whole(name, i, whole)
        if i.dims is None and whole is None:
            key = _quoted(i.name)
            raise ModelError(
                f"model {name}: input {i.name} has no shape in the file; give it one: "
                f"--set {key}=1x8, or {name}.onnx[{key}=1x8]"
            )
        if (shape := _shape(name, i, wanted, unknown)) is not None:
            found.append(InputSpec(i.name, shape, i.dtype))
    if unknown:
        names_and_places = list(chain.from_iterable(unknown.items()))
        key = next(filter(_PLAIN.fullmatch, names_and_places), _quoted(names_and_places[0]))
        raise ModelError(
            f"model {name}: dimensions without an extent: {', '.join(unknown)}; give each one: "
            f"--set {key}=8, or {name}.onnx[{key}=8]"
        )
    return found, values


def _declared(said: Any, name: str) -> _Input:
    if not said.type.HasField("tensor_type"):
        raise ModelError(
            f"model {name}: input {said.name} is not a tensor; sequences and optional values are "
            "inputs of tunegrad.frontend.onnx.backend only"
        )
    if not said.name.isprintable():
        raise ModelError(f"model {name}: input {said.name!r} has a name that can not be printed")
    kind = said.type.tensor_type
    dtype = dtype_of_onnx(name, said.name, kind.elem_type)
    if not kind.HasField("shape"):
        return _Input(said.name, dtype, None)
    dims = list[int | str]()
    for at, d in enumerate(kind.shape.dim):
        if d.HasField("dim_value") and d.dim_value >= 0:
            dims.append(int(d.dim_value))
        else:
            named = _NAME.search(d.dim_param) and d.dim_param.isprintable()
            dims.append(d.dim_param if named else f"{said.name}.{at}")
    return _Input(said.name, dtype, tuple(dims))


def _whole(name: str, i: _Input, said: str) -> dict[str, object]:
    """A shape as extents of its places."""
    extents = [int(e) for e in said.split("x")]
    if i.dims is not None and len(i.dims) != len(extents):
        raise ModelError(
            f"model {name}: input {i.name} has {len(i.dims)} dimensions, and not the "
            f"{len(extents)} of {said}"
        )
    return {f"{i.name}.{at}": e for at, e in enumerate(extents)}


def _shape(
    name: str, i: _Input, given: Mapping[str, object], unknown: dict[str, str]
) -> tuple[int, ...] | None:
    """The shape of an input; None where extents are ``unknown``, which then names them, each with
    the place of one.
    """
    dims: Sequence[int | str] = i.dims if i.dims is not None else list(given)
    shape = list[int]()
    for at, d in enumerate(dims):
        by = next((str(k) for k in (f"{i.name}.{at}", d) if k in given), None)
        if by is None:
            if isinstance(d, int):
                shape.append(d)
            else:
                unknown[d] = f"{i.name}.{at}"
            continue
        extent = given[by]
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            raise ModelError(
                f"model {name}: dimension {by} = {extent!r} is not a positive whole number"
            )
        if isinstance(d, int) and d != extent:
            raise ModelError(f"model {name}: dimension {by} is {d} in the file, not {extent}")
        shape.append(extent)
    return tuple(shape) if len(shape) == len(dims) else None


def _quoted(key: str) -> str:
    """A name as it stands in the brackets behind a path, and in a command line."""
    return key if _PLAIN.fullmatch(key) else f'"{key}"'


def _value(name: str, i: _Input, value: object, shape: tuple[int, ...] | None) -> Known:
    """The user's value of an input, in its shape and type; one number fills it, and a list says how
    long it is where the file does not.
    """
    given, kind = np.asarray(value), i.dtype
    if shape is None and given.ndim == 1 and i.dims is not None and len(i.dims) == 1:
        shape = given.shape
    kinds = "b" if kind.is_bool else "iu" if kind.is_int else "iuf"
    fits = shape is not None and (not given.ndim or given.size == math.prod(shape))
    if shape is None or not fits or given.dtype.kind not in kinds or kind.name == "bf16":
        said = f"{kind}[{', '.join(map(str, i.dims or '?'))}]"
        raise ModelError(
            f"model {name}: input {i.name} = {value!r} is neither a shape (as 1x3) nor a value of "
            f"{said}"
        )
    if kind.is_int and not (kind.least <= given.min() and given.max() <= kind.greatest):
        raise ModelError(f"model {name}: input {i.name} = {value!r} is out of the range of {kind}")
    taken = given.reshape(shape) if given.ndim else np.broadcast_to(given, shape)
    return np.array(taken, kind.numpy)


def dtype_of_onnx(name: str, tensor: str, kind: int) -> DType:
    """The dtype of a tensor whose ``TensorProto.DataType`` is ``kind``, or of its codes.

    Raises ModelError, naming the model and the tensor, for a type that is not there.
    """
    try:
        found = type_of_number(kind)
    except Exception as error:  # noqa: BLE001  # onnx raises many kinds
        raise ModelError(
            f"model {name}: {tensor} has a type that is not supported: {error}"
        ) from None
    return found.codes if isinstance(found, Kind) else found


def model(path: str, **given: object) -> Model:
    """The model of an ONNX file; ``given`` says extents of its dimensions (``batch=8``, or
    ``**{"x.0": 8}``), shapes of inputs (``x="1x3x224x224"``), and values of inputs, which it has no
    longer then (``sr=16000``).

    Raises ModelError, in one line: a file that can not be read or is damaged, operators that are
    not there (all of them), dimensions without an extent (all of them).
    """
    try:
        import onnx
    except ImportError as error:
        raise ModelError(
            f"model {path}: ONNX files need the package onnx: pip install 'tunegrad[onnx]' "
            f"({error})"
        ) from None
    if Path(path).exists() and not Path(path).is_file():  # a pipe is never at its end
        raise ModelError(f"model {path} is no regular file")
    if Path(path).is_file() and Path(path).stat().st_size >= _MOST_BYTES:
        raise ModelError(f"model {path} is over 2 GiB; a file with external data is smaller")
    try:
        proto = onnx.load(path, load_external_data=False)
        _read_external(proto, Path(path).parent)
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001  # protobuf and onnx raise many kinds
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"model {path} is not an ONNX file that can be read: {said}") from None
    return model_of_proto(proto, Path(path).stem, given)


_MOST_BYTES = 1 << 31
"""Of a message of protobuf, which has no more by its own rules."""

_WIDEST = 16
"""Bytes of an element of the widest type."""


def _read_external(proto: Any, folder: Path) -> None:
    """Read what tensors have in other files, which are as large as the tensors need.

    Raises ModelError; onnx raises many kinds, also for a file outside of the folder.
    """
    from onnx import external_data_helper as external

    for t in filter(external.uses_external_data, external._get_all_tensors(proto)):
        info: Any = external.ExternalDataInfo(t)
        place = folder / info.location
        if place.exists() and not place.is_file():  # a pipe is never at its end
            raise ModelError(f"tensor {t.name}: {place} is no regular file")
        size = place.stat().st_size if info.length is None else info.length
        if size - (info.offset or 0) * (info.length is None) > _WIDEST * math.prod(t.dims):
            raise ModelError(
                f"tensor {t.name}: {place} has {size:,} bytes for {math.prod(t.dims):,} elements"
            )
    external.load_external_data_for_model(proto, str(folder))


def model_of_proto(proto: Any, name: str, given: Mapping[str, object] | None = None) -> Model:
    """The model of a ``ModelProto``; elements of an output that is a sequence come one by one.

    Raises as ``model`` does.
    """
    check_structure(proto, name)
    given = dict(given or {})
    draws = given.pop(DRAWS, None) if draws_unseeded(proto.graph) else 0
    if isinstance(draws, bool) or not isinstance(draws, int | None):
        raise ModelError(f"model {name}: input {DRAWS} = {draws!r} is not a whole number")
    inputs, values = inputs_of_graph(proto.graph, name, given)
    types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
    found = {i.name: type_of_number(types[i.name]) for i in inputs}
    kinds = {i: kind if isinstance(kind, Kind) else None for i, kind in found.items()}
    run = partial(_run, proto, name, kinds, values, draws)
    if draws is None:
        inputs.append(InputSpec(DRAWS, (), U64))
    return Model(name, lambda: run, tuple(inputs))


DRAWS = "draws"
"""The input that a model has beside its own where a node draws numbers without a seed."""


def _run(
    proto: Any,
    name: str,
    kinds: Mapping[str, Kind | None],
    values: Mapping[str, Known],
    draws: int | None,
    *tensors: Tensor,
) -> tuple[Tensor, ...]:
    given = zip(kinds.items(), tensors, strict=draws is not None)
    symbols = {i: t if kind is None else Coded(t, kind) for (i, kind), t in given}
    start = tensors[-1] if draws is None else Tensor(np.asarray(start_of(draws), np.uint64))
    with draws_from(start):
        made = evaluated(proto, name, {**symbols, **values})
    found = list[Tensor]()
    for said, value in zip(proto.graph.output, made, strict=True):
        if value is None:
            raise ModelError(f"model {name}: output {said.name} is an optional value that is empty")
        for v in value if isinstance(value, TensorList) else (value,):
            held = coded(v) if isinstance(v, np.ndarray) else v
            found.append(held.codes if isinstance(held, Coded) else held)
    return tuple(found)
