"""What candidates of one kernel share in the timing worker: drawn inputs, references, and the buffers they run on."""

from __future__ import annotations

import importlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tunegrad.devices.buffers import Buffer
from tunegrad.devices.bulk import Bulk
from tunegrad.devices.inputs import draw_inputs
from tunegrad.devices.job import Array, Candidate, Hooks, KernelIO, Limits, Parameter, Reference
from tunegrad.devices.tolerance import Bar
from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.program import Pack

__all__ = ["Dataset", "DatasetCache", "InputSet", "References", "load_hook", "make_dataset", "same_bytes"]

References = tuple[dict[str, Reference], ...]

_PACKS = 8
"""Packed constants that one kernel keeps: nearly every candidate packs in its own way."""


@dataclass(frozen=True, slots=True)
class InputSet:
    """Pristine inputs of one seed, and what the outputs must be for them."""

    inputs: dict[str, Array]
    references: dict[str, Reference]


@dataclass(slots=True)
class Dataset:
    """One kernel's input sets and its working buffers. Mutable: ``loaded`` is the set the buffers hold now.

    ``held`` has the array that was copied into each buffer: what sets share is copied once. ``packs`` holds each packed
    constant twice, as candidates read it and as it must be. ``bars`` holds what outputs are compared with, by set,
    parameter and dtype.
    """

    sets: tuple[InputSet, ...]
    buffers: dict[Parameter, Buffer] = field(default_factory=dict)
    packs: dict[Pack, tuple[Buffer, Buffer]] = field(default_factory=dict)
    bars: dict[tuple[int, str, str], Bar] = field(default_factory=dict)
    held: dict[Parameter, Array] = field(default_factory=dict)
    loaded: int = -1

    @property
    def nbytes(self) -> int:
        """Bytes kept for this kernel."""
        arrays = {id(a): a for s in self.sets for a in s.inputs.values()}
        pristine = sum(a.nbytes for a in arrays.values())
        expected = sum(r.nbytes for s in self.sets for r in s.references.values())
        working = sum(b.nbytes for b in self.buffers.values()) + sum(2 * b.nbytes for b, _ in self.packs.values())
        return int(pristine) + expected + working + sum(b.nbytes for b in self.bars.values())

    @property
    def references(self) -> References:
        return tuple(s.references for s in self.sets)

    def buffer(self, param: Parameter, io: KernelIO) -> Buffer:
        """The working buffer of a parameter, made on first use; that of a packed constant by ``pack``."""
        if param.role == "pack":
            return self._packed(param, io)[0]
        found = self.buffers.get(param)
        if found is None:
            found = self.buffers[param] = Buffer(param.elements * buffer_dtype(param.dtype).itemsize, touched=False)
        return found

    def pristine(self, param: Parameter, io: KernelIO) -> Array:
        """What the working buffer of a parameter that is read must hold after a run."""
        return self._packed(param, io)[1].bytes if param.role == "pack" else self.sets[self.loaded].inputs[param.name]

    def pack(self, ios: Sequence[KernelIO], bulk: Bulk) -> None:
        """Make the packed constants of what runs next; the oldest ones give way, and their memory is used again."""
        wanted = {pack: param for io in ios for pack, param in _packs(io)}
        for pack, param in wanted.items():
            if pack in self.packs:
                continue
            nbytes = param.elements * buffer_dtype(param.dtype).itemsize
            buffer, pristine = self._spare(nbytes, wanted) or (Buffer(nbytes, False), Buffer(nbytes, False))
            pack.run(self.sets[0].inputs[pack.source], buffer.array(param.dtype))
            bulk.copy(pristine.bytes, buffer.bytes)
            self.packs[pack] = buffer, pristine

    def _spare(self, nbytes: int, wanted: Collection[Pack]) -> tuple[Buffer, Buffer] | None:
        """The memory of a packed constant that gives way; None where there is room, or none is of ``nbytes``."""
        if len(self.packs) < _PACKS:
            return None
        idle = [pack for pack in self.packs if pack not in wanted]
        fits = next((pack for pack in idle if self.packs[pack][0].nbytes == nbytes), None)
        if fits is None:
            for pack in idle[: len(self.packs) + 1 - _PACKS]:
                del self.packs[pack]
            return None
        return self.packs.pop(fits)

    def bar(self, param: Parameter) -> Bar | None:
        """What an output must meet for the inputs that are loaded; None where it has no reference."""
        reference = self.sets[self.loaded].references.get(param.name)
        if reference is None:
            return None
        key = (self.loaded, param.name, param.dtype)
        found = self.bars.get(key)
        if found is None:
            found = self.bars[key] = Bar.of(param.dtype, reference)
        return found

    def fill(self, index: int, io: KernelIO, bulk: Bulk) -> None:
        """Load input set ``index`` into the buffers of ``io`` and poison its outputs with NaN patterns."""
        for param in io.params:
            buffer = self.buffer(param, io)
            if param.role == "out":
                bulk.fill(buffer.bytes, 0xFF)
            elif param.role != "pack":
                source = self.sets[index].inputs[param.name]
                if param.role == "inout" or self.held.get(param) is not source:
                    to = buffer.array(param.dtype)
                    if to.dtype == source.dtype:
                        bulk.copy(to, source)
                    else:
                        to[:] = source
                    self.held[param] = source
        self.loaded = index

    def _packed(self, param: Parameter, io: KernelIO) -> tuple[Buffer, Buffer]:
        return self.packs[next(pack for pack, packed in _packs(io) if packed == param)]


class DatasetCache:
    """Datasets by kernel key; the least recently used go when ``limit_bytes`` is exceeded."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._sets: OrderedDict[str, Dataset] = OrderedDict()

    def get(self, kernel_key: str) -> Dataset | None:
        found = self._sets.get(kernel_key)
        if found is not None:
            self._sets.move_to_end(kernel_key)
        return found

    def put(self, kernel_key: str, dataset: Dataset) -> None:
        self._sets[kernel_key] = dataset
        self._sets.move_to_end(kernel_key)
        while len(self._sets) > 1 and sum(d.nbytes for d in self._sets.values()) > self._limit:
            self._sets.popitem(last=False)


def make_dataset(
    candidate: Candidate, io: KernelIO, hooks: Hooks, limits: Limits, seed: int, known: References | None
) -> Dataset:
    """Draw the inputs of a kernel and compute what its outputs must be, unless the references are ``known``."""
    sets: list[InputSet] = []
    for index in range(2 if known is None else len(known)):
        inputs = _inputs(candidate, io, hooks, seed + index)
        if sets:
            _share(inputs, sets[0].inputs, io)
        start = time.monotonic()
        if known is not None:
            references = known[index]
        elif hooks.reference:
            references = load_hook(hooks.reference)(candidate.payload, inputs)
        else:
            references = {}
        sets.append(InputSet(inputs, references))
        if time.monotonic() - start > limits.second_set_s:
            break
    return Dataset(tuple(sets))


def _packs(io: KernelIO) -> Iterator[tuple[Pack, Parameter]]:
    """Each packed constant of a program with its parameter."""
    by_name = {p.name: p for p in io.packs}
    for param in io.params:
        if param.role == "pack":
            if param.name not in by_name:
                raise InternalError(f"pack {param.name}: the program has no Pack of that name")
            yield by_name[param.name], param


def load_hook(path: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names. Raises InternalError where there is none."""
    module, _, name = path.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InternalError(f"hook {path!r}: {error}") from error
    return function


def same_bytes(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two contiguous arrays hold the same bits; NaN equals itself."""
    x, y = a.view(np.uint8), b.reshape(-1).view(np.uint8)
    words = x.size // 8 * 8
    return bool(
        x.size == y.size
        and np.array_equal(x[:words].view(np.uint64), y[:words].view(np.uint64))
        and np.array_equal(x[words:], y[words:])
    )


def _share(inputs: dict[str, Array], first: Mapping[str, Array], io: KernelIO) -> None:
    """Constants are those of the first set: one array for both."""
    for param in io.params:
        if param.role == "const" and same_bytes(inputs[param.name], first[param.name]):
            inputs[param.name] = first[param.name]


def _inputs(candidate: Candidate, io: KernelIO, hooks: Hooks, seed: int) -> dict[str, Array]:
    if hooks.inputs:
        drawn: dict[str, Array] = load_hook(hooks.inputs)(candidate.payload, io, seed)
    else:
        drawn = draw_inputs(io, seed, candidate.kernel_key)
    for param in io.params:
        if param.role in ("in", "const", "inout"):
            values = drawn.get(param.name)
            if values is None or values.size != param.elements:
                got = "nothing" if values is None else f"{values.size} elements"
                raise InternalError(f"inputs of {param.name}: {got}, the kernel reads {param.elements}")
    return {name: np.ascontiguousarray(values).reshape(-1) for name, values in drawn.items()}
