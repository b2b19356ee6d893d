"""A loaded model as a file, so that a process that serves it needs no search, no store, no weights
and no compiler.

    launches and their buffers     names, shapes, layouts, which buffer is which argument
    kernels                        text, schedule, what a launch needs, image
    runtime                        code of the threads that run them, for machines without LLVM
    constants                      as kernels read them: packed already

Numbers and names are JSON in the header of a safetensors file, everything else are its arrays,
which are mapped. A digest of the whole file is compared before anything of it is used. It shows
damage, no intent: images are machine code, and the author of a file can run code here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunegrad import devices
from tunegrad.devices import lowered as lowered_code
from tunegrad.errors import ModelError, UserError, VerifyError
from tunegrad.ir.dtypes import U32, U64, buffer_dtype
from tunegrad.ir.fusion import Buffer, BufferRole, Launch, LaunchPlan
from tunegrad.ir.graph import Bounds, ConstData
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Mod, Range, Valid, Var
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.layout import Layout, Pack, Part
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.rewrites import Guard
from tunegrad.lazy import dataclass
from tunegrad.runtime import Argument, Constants, mapped

from .artifact import ProgramFacts

if TYPE_CHECKING:
    from tunegrad.config import ModelDtype
    from tunegrad.reports import Outcome

_VERSION = 2
_FAULTS = (
    UserError, VerifyError, LookupError, ValueError, TypeError, ArithmeticError, RecursionError,
    MemoryError,
)  # fmt: skip
"""Exceptions of a header whose values make no sense."""
_ROLES = get_args(BufferRole)

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """A kernel, what it runs with and why, and its code."""

    kernel: Kernel
    outcome: Outcome
    actions: str
    differs: tuple[str, ...]
    program: ProgramFacts
    image: bytes


@dataclass(frozen=True, slots=True)
class SavedModel:
    """The contents of a file. ``plan`` has no elements of constants.

    ``constants`` are (buffer id, pack or None, array): what ``Constants.give`` takes.
    ``guards`` are of the last outputs. ``changed`` names the inputs that a call changes, whose new
    values are the outputs before the guards. ``validated`` says by what the plan was validated
    (``VALIDATION``), 0 where the file does not say it.
    """

    name: str
    dtype: ModelDtype
    inputs: tuple[Argument, ...]
    device: str
    threads: int
    plan: LaunchPlan
    kernels: Mapping[str, SavedKernel]
    constants: tuple[tuple[int, Pack | None, Array], ...]
    guards: tuple[Guard, ...] = ()
    validated: int = 0
    changed: tuple[str, ...] = ()


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    dtype: str


class _Buffer(msgspec.Struct):
    dtype: str
    shape: list[int]
    layout: list[tuple[int, int, int]]
    role: str
    name: str
    digest: str
    base: int | None = None
    start: int = 0


class _Launch(msgspec.Struct):
    kernel: str
    args: list[int]
    name: str
    origin: list[str]


class _Kernel(msgspec.Struct):
    text: str
    name: str
    outcome: str
    actions: str
    differs: list[str]
    program: str


class _Constant(msgspec.Struct):
    buffer: int
    kernel: str
    pack: str


class _Guard(msgspec.Struct):
    op: str
    low: int
    high: int
    signed: bool


class _Model(msgspec.Struct, kw_only=True):
    buffers: list[_Buffer]
    launches: list[_Launch]
    starts: list[int]
    ends: list[int]
    guards: list[_Guard]
    kernels: dict[str, _Kernel]
    version: int
    name: str
    dtype: str
    device: str
    arch: str
    features: list[str]
    threads: int
    inputs: list[_Input]
    constants: list[_Constant]
    validated: int = 0
    over: list[tuple[int, int]] = []
    changed: list[str] = []
    runtime: str = ""


class _Pack(msgspec.Struct, frozen=True):
    """A pack with its index and condition as numbers and names.

    An index is ``[constant, atom, coefficient, ...]``, an atom ``[name, lo, hi]``, or ``["//",
    index, divisor]``, or that with "%"; a condition is ``[index, lo, hi, ...]``.
    """

    name: str
    source: str
    dtype: str
    variables: list[str]
    extents: list[int]
    offset: list[Any]
    valid: list[Any]


class _File(msgspec.Struct, frozen=True):
    key: str
    hash: str
    entry: str
    params: list[lowered_code.Parameter]
    packs: list[_Pack]
    unread: list[str]
    scratch_bytes: list[int]
    geometry: lowered_code.Geometry


def save_model(path: Path, model: SavedModel, device: devices.Device) -> None:
    """Write a model. Raises ModelError where it can not be written."""
    arrays: dict[str, Array] = {}
    for key, k in model.kernels.items():
        arrays[f"image.{key}"] = np.frombuffer(k.image, np.uint8)
    places = []
    for i, (buffer, pack, values) in enumerate(model.constants):
        arrays[f"constant.{i}"] = values
        key = _packing(model, buffer, pack) if pack is not None else ""
        places.append(_Constant(buffer, key, "" if pack is None else pack.name))
    kernels = {}
    for key, k in model.kernels.items():
        program = written_program(k.program)
        if program is None:
            raise ModelError(
                f"model {model.name}: kernel {k.kernel.name} packs a constant by another one, "
                "which can not be saved"
            )
        kernels[key] = _Kernel(
            k.kernel.text, k.kernel.name, k.outcome, k.actions, [*k.differs], program.decode()
        )
    runtime, code = devices.carried_runtime(device.target)
    if runtime:
        arrays["runtime"] = np.frombuffer(code, np.uint8)
    plan = model.plan
    head = _Model(
        buffers=[_saved_buffer(b) for b in plan.buffers],
        launches=[_Launch(x.kernel.key, [*x.args], x.name, [*x.origin]) for x in plan.launches],
        starts=[*plan.inputs], ends=[*plan.outputs],
        guards=[_Guard(x.bounds.op, x.bounds.low, x.bounds.high, x.signed) for x in model.guards],
        kernels=kernels, over=[*plan.over], version=_VERSION, name=model.name, dtype=model.dtype,
        device=device.name, arch=device.target.arch, features=[*device.target.features],
        threads=model.threads,
        inputs=[_Input(i.name, [*i.shape], i.dtype.name) for i in model.inputs], constants=places,
        validated=model.validated, changed=[*model.changed], runtime=runtime,
    )  # fmt: skip
    try:
        mapped.write_arrays(path, arrays, {"tunegrad": msgspec.json.encode(head).decode()})
    except OSError as error:
        raise ModelError(f"model file {path}: {error.strerror or error}") from None


def written_program(program: ProgramFacts) -> bytes | None:
    """A program as a file; None for one that would not be read back as it is."""
    lowered = program.lowered
    if any(any(index.elements()) for p in lowered.io.packs for index in _indices(p)):
        return None
    packs = [
        _Pack(p.name, p.source, p.dtype.name, [*p.variables], [*p.extents], _of_index(p.offset),
              _of_valid(p.valid))
        for p in lowered.io.packs
    ]  # fmt: skip
    body = msgspec.json.encode(
        _File(program.key, program.hash, lowered.entry, [*lowered.io.params], packs,
              [*lowered.io.unread], [*lowered.scratch_bytes], lowered.geometry)
    )  # fmt: skip
    return body if read_program(body) == program else None


def read_program(body: bytes) -> ProgramFacts | None:
    """The program that a file holds; None for a file that holds none."""
    try:
        file = msgspec.json.decode(body, type=_File)
        packs = tuple(map(_pack, file.packs))
    except (msgspec.DecodeError, UserError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None
    io = lowered_code.KernelIO(tuple(file.params), packs, tuple(file.unread))
    lowered = lowered_code.Lowered("", file.entry, io, tuple(file.scratch_bytes), file.geometry)
    return ProgramFacts(lowered, file.key, file.hash)


def _pack(p: _Pack) -> Pack:
    return Pack(
        p.name, p.source, buffer_dtype(p.dtype), tuple(p.variables), tuple(p.extents),
        _index(p.offset), _valid(p.valid),
    )  # fmt: skip


def _indices(p: Pack) -> list[Index]:
    return [p.offset, *(r.index for r in p.valid)]


def _of_index(index: Index) -> list[Any]:
    return [index.const, *(x for atom, c in index.terms for x in (_of_atom(atom), c))]


def _of_atom(atom: Atom) -> list[Any]:
    if isinstance(atom, Var):
        return [atom.name, atom.lo, atom.hi]
    assert not isinstance(atom, Element), atom
    return ["//" if isinstance(atom, FloorDiv) else "%", _of_index(atom.num), atom.den]


def _of_valid(valid: Valid) -> list[Any]:
    if valid.never:
        return [[0], 1, 1]
    return [x for r in valid for x in (_of_index(r.index), r.lo, r.hi)]


def _index(numbers: list[Any]) -> Index:
    const, *terms = numbers
    pairs = zip(terms[::2], terms[1::2], strict=True)
    return Index(tuple((_atom(atom), int(c)) for atom, c in pairs), int(const))


def _atom(numbers: list[Any]) -> Var | FloorDiv | Mod:
    name, first, second = numbers
    if name in ("//", "%"):
        return (FloorDiv if name == "//" else Mod)(_index(first), int(second))
    return Var(str(name), int(first), int(second))


def _valid(numbers: list[Any]) -> Valid:
    parts = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return Valid(Range(_index(index), int(lo), int(hi)) for index, lo, hi in parts)


def _packing(model: SavedModel, buffer: int, pack: Pack) -> str:
    """The key of a kernel that packs a buffer so."""
    return next(
        x.kernel.key
        for x in model.plan.launches
        if buffer in x.args and pack in model.kernels[x.kernel.key].program.lowered.io.packs
    )


def _saved_buffer(b: Buffer) -> _Buffer:
    parts = [(p.dim, p.step, p.extent) for p in b.layout.parts]
    digest = "" if b.data is None else b.data.digest
    return _Buffer(b.dtype.name, [*b.shape], parts, b.role, b.name, digest, b.base, b.start)


# ---- reading


def open_model(path: Path) -> tuple[SavedModel, str, frozenset[str]]:
    """The model that a file holds, and the architecture and features that its code is for.

    Constants are mapped. Raises ModelError, in one line, for a file that holds no model, or a
    damaged one.
    """
    try:
        arrays, about, _ = mapped.map_arrays(path)
        head = msgspec.json.decode(about.get("tunegrad", ""), type=_Model)
    except OSError as error:
        raise ModelError(f"model file {path}: {error.strerror or error}") from None
    except (mapped.MappedFileError, msgspec.DecodeError, RecursionError) as error:
        raise ModelError(f"model file {path} holds no saved model: {error}") from None
    if head.version != _VERSION:
        raise ModelError(
            f"model file {path} has version {head.version}; this tunegrad reads {_VERSION}: save "
            "the model again"
        )
    try:
        mapped.check_digest(path)
    except (OSError, mapped.MappedFileError) as error:
        raise ModelError(f"model file {path}: {error}") from None
    try:
        if head.runtime:
            devices.carry(head.runtime, arrays["runtime"].tobytes())
        return _model(head, arrays), head.arch, frozenset(head.features)
    except _FAULTS as error:
        said = " ".join(str(error).split())
        raise ModelError(f"model file {path} is damaged: {said:.500}") from None


def _model(head: _Model, arrays: Mapping[str, Array]) -> SavedModel:
    from tunegrad.config import ModelDtype as Dtypes
    from tunegrad.reports import Outcome as Outcomes

    if wrong := {k.outcome for k in head.kernels.values()}.difference(get_args(Outcomes)):
        raise ValueError(f"outcome {', '.join(wrong)}")
    kernels = {key: _kernel(key, k, arrays) for key, k in head.kernels.items()}
    buffers = tuple(_buffer(i, b) for i, b in enumerate(head.buffers))
    plan = _planned(head, buffers, kernels)
    constants = tuple(
        (c.buffer, _pack_of(c, kernels), arrays[f"constant.{i}"])
        for i, c in enumerate(head.constants)
    )
    for buffer, pack, values in constants:
        b = buffers[buffer]
        size = b.layout.size if pack is None else pack.size
        if b.role != "const" or values.shape != (size,) or values.dtype != b.dtype.numpy:
            raise ValueError(f"{b} has {values.dtype} {values.shape}")
    if head.dtype not in get_args(Dtypes):
        raise ValueError(f"dtype {head.dtype}")
    inputs = tuple(Argument(i.name, tuple(i.shape), buffer_dtype(i.dtype)) for i in head.inputs)
    dtype: ModelDtype = head.dtype  # type: ignore[assignment]  # looked up above
    guards = _guards(head.guards, plan)
    return SavedModel(
        head.name, dtype, inputs, head.device, head.threads, plan, kernels, constants, guards,
        head.validated, tuple(head.changed),
    )  # fmt: skip


def _planned(
    head: _Model, buffers: tuple[Buffer, ...], kernels: Mapping[str, SavedKernel]
) -> LaunchPlan:
    launches = tuple(
        Launch(kernels[x.kernel].kernel, tuple(x.args), x.name, tuple(x.origin))
        for x in head.launches
    )
    numbers = {*head.starts, *head.ends, *chain(*head.over), *chain(*(x.args for x in launches))}
    if wrong := numbers.difference(range(len(buffers))):
        raise ValueError(f"buffers {sorted(wrong)}, and it has {len(buffers)}")
    plan = LaunchPlan(buffers, launches, tuple(head.starts), tuple(head.ends), tuple(head.over))
    plan.verify()
    read = {b.id for b in buffers if b.role == "input"}
    named = {buffers[i].name for i in read} - {i.name for i in head.inputs}
    if read != set(head.starts) or named:
        raise ValueError(f"inputs {sorted(read)} are given as {head.starts}, and none as {named}")
    for launch in launches:
        _check_code(launch, kernels[launch.kernel.key], buffers)
    return plan


def _guards(guards: Sequence[_Guard], plan: LaunchPlan) -> tuple[Guard, ...]:
    """The guards of the last outputs of a plan."""
    for i in plan.outputs[len(plan.outputs) - len(guards) :]:
        if plan.buffers[i].dtype not in (U32, U64) or plan.buffers[i].shape:
            raise ValueError(f"{plan.buffers[i]} is not a guard")
    return tuple(Guard(Bounds(x.op, x.low, x.high), x.signed) for x in guards)


def _buffer(number: int, b: _Buffer) -> Buffer:
    dtype, shape = buffer_dtype(b.dtype), tuple(b.shape)
    layout = Layout(shape, tuple(Part(*p) for p in b.layout))
    layout.verify()
    if b.role not in _ROLES:
        raise ValueError(f"role {b.role}")
    data = ConstData(b.digest, b.name, np.empty(0, dtype.numpy)) if b.role == "const" else None
    role: BufferRole = b.role  # type: ignore[assignment]  # looked up above
    return Buffer(number, dtype, shape, layout, role, b.name, data, b.base, b.start)


def _kernel(key: str, k: _Kernel, arrays: Mapping[str, Array]) -> SavedKernel:
    kernel, program = parse_kernel(k.text), read_program(k.program.encode())
    if kernel.key != key or program is None:
        raise ValueError(f"kernel {key} is not what was written")
    outcome: Outcome = k.outcome  # type: ignore[assignment]  # looked up above
    image = arrays[f"image.{key}"].tobytes()
    named = replace(kernel, name=k.name)
    return SavedKernel(named, outcome, k.actions, tuple(k.differs), program, image)


def _check_code(launch: Launch, saved: SavedKernel, buffers: Sequence[Buffer]) -> None:
    """Code reads and writes as many bytes of each buffer as the buffer has, at the most."""
    args = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
    packs = {p.name: p for p in saved.program.lowered.io.packs}
    for p in saved.program.lowered.io.params:
        if p.role == "pack":
            if packs[p.name].size != p.elements or packs[p.name].source not in args:
                raise ValueError(f"kernel {launch.name}: {p.name} is packed otherwise")
        elif p.nbytes > buffers[args[p.name]].nbytes:
            raise ValueError(f"kernel {launch.name}: {p.name} is larger than its buffer")


def _pack_of(c: _Constant, kernels: Mapping[str, SavedKernel]) -> Pack | None:
    if not c.pack:
        return None
    packs = {p.name: p for p in kernels[c.kernel].program.lowered.io.packs}
    return packs[c.pack]


def taken_constants(
    plan: LaunchPlan, kernels: Mapping[str, SavedKernel], constants: Constants
) -> tuple[tuple[int, Pack | None, Array], ...]:
    """The constants of a plan as its kernels read them, and as it gives them back, each once."""
    found: dict[object, tuple[int, Pack | None, Array]] = {}
    for launch in plan.launches:
        args = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        io = kernels[launch.kernel.key].program.lowered.io
        packs = {p.name: p for p in io.packs}
        for p in io.params:
            pack = packs.get(p.name)
            buffer = plan.buffers[args[p.name if pack is None else pack.source]]
            if buffer.role != "const" or p.name in io.unread:
                continue
            memory = constants.flat(buffer) if pack is None else constants.packed(buffer, pack)
            size = buffer.layout.size if pack is None else pack.size
            values = memory.read(buffer.dtype.name)[:size]
            found.setdefault(id(memory), (buffer.id, pack, values))
    for i in plan.outputs:
        buffer = plan.buffers[i]
        if buffer.role == "const":
            memory = constants.flat(buffer)
            values = memory.read(buffer.dtype.name)[: buffer.layout.size]
            found.setdefault(id(memory), (i, None, values))
    return tuple(found.values())
