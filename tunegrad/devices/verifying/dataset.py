"""Data that candidates of a kernel share: inputs and buffers in the bench, references."""

from __future__ import annotations

import importlib
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tunegrad.devices.device import Engine, Memory
from tunegrad.devices.host.buffers import poison
from tunegrad.devices.job import (
    WROTE_READ_ONLY,
    Array,
    Candidate,
    Hooks,
    KernelIO,
    Parameter,
    Reference,
)
from tunegrad.devices.verifying.inputs import KINDS, MILDEST, Draw, Kind, draw_inputs, seed_of
from tunegrad.devices.verifying.tolerance import Bar
from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.layout import Pack

References = tuple[dict[str, Reference], ...]

_MOST = 1 << 20
"""Elements of an output that are compared on a further input set; on the first one, all are."""

_PACKS = 16
"""Packed constants that one kernel keeps: nearly every candidate packs in its own way."""


@dataclass(frozen=True, slots=True)
class InputSet:
    """The inputs of one seed, and what the outputs must be for them."""

    inputs: dict[str, Array]
    references: dict[str, Reference]


_TRIES = 16
"""Places for an output that were not below its inputs: one that is not found is done without."""

_MANY = 32
"""Elements that an input of which one moves has at least: the first half of them stay."""


@dataclass(slots=True)
class Restless:
    """An element of an input that changes between timed launches, so that no result of an earlier
    one is one of this. Mutable: it knows which of two values stands there.
    """

    name: str
    memory: Memory
    engine: Engine
    was: str
    values: Array
    at: int
    other: Any
    away: bool = False

    def flip(self) -> None:
        """Exchange the value."""
        self.values[self.at], self.other = self.other, self.values[self.at]
        self.away = not self.away

    def end(self) -> str:
        """Give the first value back, and protect the memory; what was written to it meanwhile."""
        if self.away:
            self.flip()
        self.memory.protect()
        same = self.engine.digest([self.memory]) == self.was
        return "" if same else f"{self.name}: {WROTE_READ_ONLY}"


@dataclass(slots=True)
class Dataset:
    """One kernel's input sets and the buffers that its candidates run on.

    Mutable: buffers are made on first use.

    What is only read is written once and in read-only pages: the inputs of each set, the constants
    that the sets share, and the latest ``packs``. ``written`` holds what candidates write. Where
    arrays of users may begin, those of further sets do: inputs as many elements past an aligned
    place as there are sets before theirs, every other one three times as many, outputs three, two,
    one. Outputs of the second set and of every other one after it lie below their inputs. ``bars``
    holds what outputs are compared with, by set, parameter and dtype.
    """

    sets: tuple[InputSet, ...]
    read: dict[tuple[int, Parameter], Memory] = field(default_factory=dict)
    written: dict[tuple[int, Parameter], Memory] = field(default_factory=dict)
    packs: dict[Pack, Memory] = field(default_factory=dict)
    bars: dict[tuple[int, str, str], Bar] = field(default_factory=dict)
    _counted: tuple[tuple[int, int, int], int] = ((-1, 0, 0), 0)
    _placed: dict[tuple[int, tuple[Parameter, ...]], dict[Parameter, Memory]] = field(
        default_factory=dict
    )

    @property
    def nbytes(self) -> int:
        """Bytes kept for this kernel. What only grows is counted again where it has."""
        grown = len(self.read), len(self.written), len(self.bars)
        if self._counted[0] != grown:
            buffers = (*self.read.values(), *self.written.values())
            held = {_place(b): b.nbytes for b in buffers}
            held.update((a.ctypes.data, a.nbytes) for s in self.sets for a in s.inputs.values())
            expected = sum(r.nbytes for s in self.sets for r in s.references.values())
            bars = sum(b.nbytes for b in self.bars.values())
            self._counted = grown, sum(held.values()) + expected + bars
        return self._counted[1] + sum(b.nbytes for b in self.packs.values())

    @property
    def references(self) -> References:
        return tuple(s.references for s in self.sets)

    def buffers(self, io: KernelIO, index: int, engine: Engine) -> list[Memory]:
        """The buffer of each parameter in order, for set ``index``; ``pack`` makes constants."""
        packed = {param: self.packs[pack] for pack, param in _packs(io)}
        others = tuple(p for p in io.params if p.role != "pack")
        held = self._placed.get((index, others))
        if held is None:
            above = [
                self._buffer(p, index, engine)
                for p in others
                if p.role in ("in", "const") and index % 2
            ]
            held = {p: self._buffer(p, index, engine, above) for p in others}
            self._placed[index, others] = held
        return [packed[p] if p.role == "pack" else held[p] for p in io.params]

    def pack(self, ios: Sequence[KernelIO], engine: Engine) -> None:
        """Make the packed constants of what runs next; the oldest give way to them."""
        wanted = {pack: param for io in ios for pack, param in _packs(io)}
        for pack, param in wanted.items():
            if pack in self.packs:
                continue
            nbytes = _roomy(param.nbytes)
            guard = poison(buffer_dtype(param.dtype))
            buffer = self._spare(nbytes, wanted) or engine.allocate(
                nbytes, touched=False, guard=guard
            )
            buffer.protect(False)
            engine.pack(pack, self.sets[0].inputs[pack.source], buffer, rest=guard)
            buffer.protect()
            self.packs[pack] = buffer

    def bar(self, param: Parameter, index: int) -> Bar | None:
        """The bar that an output must meet for input set ``index``; None without a reference."""
        reference = self.sets[index].references.get(param.name)
        if reference is None:
            return None
        key = (index, param.name, param.dtype)
        found = self.bars.get(key)
        if found is None:
            found = self.bars[key] = Bar.of(param.dtype, reference)
        return found

    def fill(self, index: int, io: KernelIO, engine: Engine) -> None:
        """Poison the outputs of ``io``, and give back what set ``index`` has for its inouts.

        On the first set and every other one after it the poison is not NaN: where NaN is right,
        what writes nothing is wrong all the same. On the others it is NaN, so that what reads its
        output first shows.
        """
        for param in io.params:
            if param.role == "out":
                byte = poison(buffer_dtype(param.dtype), nan=index % 2 == 1)
                engine.fill(self._buffer(param, index, engine), byte)
            elif param.role == "inout":
                engine.write(
                    self._buffer(param, index, engine),
                    _values(param, self.sets[index].inputs[param.name]),
                )

    def copy(self, index: int, name: str, io: KernelIO, memory: Memory, engine: Engine) -> None:
        """Write an input of set ``index`` to other memory."""
        param = next(p for p in io.params if p.name == name)
        engine.write(memory, _values(param, self.sets[index].inputs[name]))

    @contextmanager
    def moved(self, index: int, io: KernelIO, engine: Engine) -> Iterator[None]:
        """While it is open, the inputs of set ``index`` lie where those of the first set do.

        Outputs keep what was written last; inouts have what set ``index`` has for them.
        """
        first, other = self.sets[0].inputs, self.sets[index].inputs
        held: list[tuple[Parameter, Memory, Array]] = []
        for param in io.params:
            if param.role == "inout":
                engine.write(self._buffer(param, 0, engine), _values(param, other[param.name]))
            elif param.role == "in" and param.name not in io.unread:
                memory = self._buffer(param, 0, engine)
                held.append((param, memory, _values(param, first[param.name]).copy()))
        try:
            for param, memory, _ in held:
                _rewrite(memory, _values(param, other[param.name]), engine)
            yield
        finally:
            for _, memory, values in held:
                _rewrite(memory, values, engine)

    def restless(self, io: KernelIO, engine: Engine) -> Restless | None:
        """A drawn element of an input of the first set, whose memory may be written to until its
        end; None where this process does not see the memory of any.
        """
        for param in random.sample(io.params, len(io.params)):
            if param.role != "in" or param.name in io.unread or param.elements < _MANY:
                continue
            memory = self._buffer(param, 0, engine)
            if memory.view(param.dtype) is None:
                continue
            was = engine.digest([memory])
            memory.protect(False)
            values = memory.view(param.dtype)
            at, other = (random.randrange(_MANY // 2, param.elements) for _ in range(2))
            if values is not None and values[at] == values[at] and values[other] == values[other]:
                return Restless(param.name, memory, engine, was, values, at, values[other])
            memory.protect()
        return None

    def _buffer(
        self, param: Parameter, index: int, engine: Engine, above: Sequence[Memory] = ()
    ) -> Memory:
        """The memory of a parameter for a set; a new one that is written lies below those ``above``
        it.
        """
        size = buffer_dtype(param.dtype).itemsize
        if param.role not in ("in", "const"):
            shift = -index % 4  # unlike that of inputs
            found = self.written.get((shift, param))
            if found is None:
                passed: list[Memory] = []  # held: new memory lies lower
                while True:
                    found = engine.allocate(param.nbytes, touched=False, shift=shift * size)
                    passed.append(found)
                    if not above or _place(found) < min(map(_place, above)) or len(passed) > _TRIES:
                        break
                self.written[shift, param] = found
            return found
        values = self.sets[index].inputs[param.name]
        at = 0 if values is self.sets[0].inputs[param.name] else index, param
        found = self.read.get(at)
        if found is None:
            guard = poison(buffer_dtype(param.dtype))
            turn = 3 if list(self.sets[0].inputs).index(param.name) % 2 else 1
            shift = 0 if param.role == "const" else index * turn * size
            found = self.read[at] = engine.allocate(
                param.nbytes, touched=False, guard=guard, shift=shift
            )
            engine.write(found, _values(param, values))
            found.protect()
            self._let_go(param, values, found.view(param.dtype))
        return found

    def _let_go(self, param: Parameter, values: Array, held: Array | None) -> None:
        """From now on read what was drawn from the buffer that holds the same: one is enough."""
        if held is not None and held.dtype == values.dtype:
            for each in self.sets:
                if each.inputs[param.name] is values:
                    each.inputs[param.name] = held

    def _spare(self, nbytes: int, wanted: Collection[Pack]) -> Memory | None:
        """The memory of a packed constant that gives way; None if there is room, or none fits."""
        if len(self.packs) < _PACKS:
            return None
        idle = [pack for pack in self.packs if pack not in wanted]
        fits = next((pack for pack in idle if self.packs[pack].nbytes == nbytes), None)
        if fits is None:
            for pack in idle[: len(self.packs) + 1 - _PACKS]:
                del self.packs[pack]
            return None
        return self.packs.pop(fits)


def _rewrite(memory: Memory, values: Array, engine: Engine) -> None:
    """Give memory that candidates only read another content."""
    memory.protect(False)
    engine.write(memory, values)
    memory.protect()


def _place(memory: Memory) -> int:
    """Place of memory that arrays which are views of it have in common with it."""
    view = memory.view("bool")
    return id(memory) if view is None else int(view.ctypes.data)


def _values(param: Parameter, values: Array) -> Array:
    """In the dtype of the buffer; the same array where it has that."""
    return np.asarray(values, buffer_dtype(param.dtype).numpy)


def _roomy(nbytes: int) -> int:
    """A size of memory that others fit as well: at most an eighth more.

    New pages take as long as the packing.
    """
    step = max(64, 1 << max(0, nbytes.bit_length() - 4))
    return -(-nbytes // step) * step


class DatasetCache:
    """Datasets by kernel key, at most ``limit_bytes`` of them whenever one is put or got.

    A dataset grows while its candidates run (buffers, packed constants): it is counted again when
    the next one is asked for. The least recently used go first, then packed constants of the one
    that is asked for, oldest first.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._sets: OrderedDict[str, Dataset] = OrderedDict()
        self._bytes: dict[str, int] = {}

    def get(self, kernel_key: str) -> Dataset | None:
        found = self._sets.get(kernel_key)
        if found is not None:
            self.put(kernel_key, found)
        return found

    def put(self, kernel_key: str, dataset: Dataset) -> None:
        if self._sets:  # only the one that was asked for last has grown since
            last = next(reversed(self._sets))
            self._bytes[last] = self._sets[last].nbytes
        self._sets[kernel_key] = dataset
        self._sets.move_to_end(kernel_key)
        self._bytes[kernel_key] = dataset.nbytes
        while len(self._sets) > 1 and sum(self._bytes.values()) > self._limit:
            dropped, _ = self._sets.popitem(last=False)
            del self._bytes[dropped]
        while dataset.packs and sum(self._bytes.values()) > self._limit:
            del dataset.packs[next(iter(dataset.packs))]
            self._bytes[kernel_key] = dataset.nbytes


def make_dataset(
    candidate: Candidate,
    io: KernelIO,
    hooks: Hooks,
    seed: int,
    known: References | None,
    secret: int = 0,
) -> Dataset:
    """Draw the inputs of a kernel and compute its outputs, unless the references are ``known``.

    The last set is the first one, changed at places that a ``secret`` seed draws.
    """
    sets: list[InputSet] = []
    kinds: Sequence[Kind] = load_hook(hooks.kinds)(candidate.payload) if hooks.kinds else KINDS
    for index, kind in enumerate(kinds):
        inputs = _inputs(candidate, io, hooks, seed_of(seed, kind), kind)
        if sets:
            _share(inputs, sets[0].inputs, io)
        if known is not None:
            references = known[index]
        elif hooks.reference:
            references = load_hook(hooks.reference)(candidate.payload, inputs)
            references = {n: _thinned(r, index, _MOST) for n, r in references.items()}
        else:
            references = {}
        sets.append(InputSet(inputs, references))
    if hooks.changed and any(p.role == "in" for p in io.params):
        inputs, refer = load_hook(hooks.changed)(candidate.payload, sets[0].inputs, secret)
        sets.append(InputSet(inputs, refer() if known is None else known[-1]))
    return Dataset(tuple(sets))


def _thinned(r: Reference, index: int, most: int) -> Reference:
    """``most`` elements of a large reference of a further set: every element is compared with the
    first one's.

    The first one, the last one, and one at random of every stretch between them.
    """
    if index == 0 or r.values.size <= most:
        return r
    starts = np.linspace(0, r.values.size, most + 1).astype(np.int64)
    at = np.random.default_rng(r.values.size).integers(starts[:-1], starts[1:])
    at[0], at[-1] = 0, r.values.size - 1
    bounds = None if r.bounds is None else r.bounds[at]
    indices = at if r.indices is None else r.indices[at]
    return replace(r, values=r.values[at], indices=indices, bounds=bounds)


def _packs(io: KernelIO) -> Iterator[tuple[Pack, Parameter]]:
    """Each packed constant of a program with its parameter."""
    by_name = {p.name: p for p in io.packs}
    for param in io.params:
        if param.role == "pack":
            if param.name not in by_name:
                raise InternalError(f"pack {param.name}: the program has no Pack of that name")
            yield by_name[param.name], param


def load_hook(path: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names.

    Raises InternalError where there is none.
    """
    module, _, name = path.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InternalError(f"hook {path!r}: {error}") from error
    return function


def same_bytes(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """True for two contiguous arrays with the same bits; NaN equals itself."""
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
        if param.role == "const":
            mine, theirs = inputs[param.name], first[param.name]
            if mine.ctypes.data == theirs.ctypes.data or same_bytes(mine, theirs):
                inputs[param.name] = theirs


def _inputs(
    candidate: Candidate, io: KernelIO, hooks: Hooks, seed: int, kind: Kind
) -> dict[str, Array]:
    if hooks.inputs:
        drawn: dict[str, Array] = load_hook(hooks.inputs)(candidate.payload, io, seed, kind)
    else:
        drawn = draw_inputs(io, seed, candidate.kernel_key, Draw(kind, level=MILDEST - 1))
    for param in io.params:
        if param.role in ("in", "const", "inout"):
            values = drawn.get(param.name)
            if values is None or values.size != param.elements:
                got = "nothing" if values is None else f"{values.size} elements"
                raise InternalError(
                    f"inputs of {param.name}: {got}, the kernel reads {param.elements}"
                )
    return {name: np.ascontiguousarray(values).reshape(-1) for name, values in drawn.items()}
