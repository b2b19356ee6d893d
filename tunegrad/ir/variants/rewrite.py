"""A schedule with some of its kernels replaced by variants.

    launch conv (y, x, w, b)      -->     launch winograd input (V, x)
                                          launch winograd product (M, V, U)        U: a new constant
                                          launch winograd output (y, M, b)

A variant is a word: "direct" leaves a kernel as it is, "winograd2" and "winograd4" are the tile
sizes of ``winograd``, "exact_winograd4" that of bytes, "channels_last" puts the kernel between
copies, and "channels_last_winograd4" does both; "split64" and "split64x16" are the chunks and lanes
of ``split``, "split_k4" the parts of ``split_k``.
"windows" is a product of what each window reads, in rows. "halves" are a product of bytes in 16
bits; "floats" and "floats_winograd4" are one on floats.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError
from tunegrad.lazy import dataclass

from ..dtypes import F32, DType
from ..fusion import Buffer, Combined, Launch, LaunchPlan, overwriting
from ..graph import ConstData, Node
from ..kernel import Kernel, memoized
from ..layout import Layout
from ..target import Target, TileUnit
from .convolutions import ChannelsLast, Widened, channels_last, floats, halves, windows
from .split import Split, split, split_k, splits_of, splits_of_k
from .winograd import (
    EXACT_TILE,
    TILES,
    Winograd,
    exact_transformed,
    match_bytes3x3,
    match_conv3x3,
    transformed,
    winograd,
)

DIRECT = "direct"
_MOVED = "channels_last"
_WINDOWS = "windows"
_FLOATS = "floats"
_HALVES = "halves"
_EXACT = f"exact_winograd{EXACT_TILE}"
_SPLIT = re.compile(r"split(\d+)(?:x(\d+))?")
_SPLIT_K = re.compile(r"split_k(\d+)")

_weights: WeakValueDictionary[object, ConstData] = WeakValueDictionary()
"""Transformed weights by what they are made of, while a schedule has them: tunes ask again."""


@memoized()
def variants_of(kernel: Kernel) -> tuple[str, ...]:
    """The variants that compute what ``kernel`` does, "direct" first; alone if a fence fixes it."""
    names = [DIRECT]
    if kernel.fixed:
        return (DIRECT,)
    if kernel.overwritten:  # others move what the output lies over
        return (DIRECT, *(v for v in variants_of(kernel.apart) if _split(kernel, v) is not None))
    if match_conv3x3(kernel) is not None:
        names += [f"winograd{m}" for m in TILES]
    if match_bytes3x3(kernel) is not None:
        names.append(_EXACT)
    moved = channels_last(kernel)
    if moved is not None:
        names += [
            _MOVED,
            *(f"{_MOVED}_{v}" for v in variants_of(moved.kernel)[1:] if not splits_k(v)),
        ]
    if windows(kernel) is not None:
        names.append(_WINDOWS)
    if halves(kernel) is not None:
        names.append(_HALVES)
    wide = floats(kernel)
    if wide is not None:
        names += [
            _FLOATS,
            *(f"{_FLOATS}_{v}" for v in variants_of(wide.kernel) if v.startswith("winograd")),
        ]
    long = [f"split{c}x{n}" if n > 1 else f"split{c}" for c, n in splits_of(kernel)]
    return (*names, *(long or (f"split_k{p}" for p in splits_of_k(kernel))))


def exact(variant: str) -> bool:
    """True if a variant gives the same sums, of floats in some order: not Winograd's of floats, nor
    floats for bytes.
    """
    return in_halves(variant) or ("winograd" not in variant and not on_floats(variant))


def in_halves(variant: str) -> bool:
    """True if a variant multiplies numbers of 16 bits where the kernel multiplies bytes."""
    return variant.endswith((_EXACT, _HALVES))


def widens(variant: str) -> bool:
    """True if a variant has wider numbers than bytes in memory, for the same products."""
    return variant.removeprefix(_MOVED).removeprefix("_").startswith((_FLOATS, _HALVES))


def on_floats(variant: str) -> bool:
    """True if a variant multiplies floats where the kernel multiplies bytes."""
    return variant.removeprefix(_MOVED).removeprefix("_").startswith(_FLOATS)


def multiplies_bytes(variant: str) -> bool:
    """False where numbers of 16 bits or floats are multiplied for them."""
    return not (in_halves(variant) or on_floats(variant))


def runs_on(variant: str, target: Target) -> bool:
    """False of numbers of 16 bits where the target has no products of them, or, for a sum of as
    many, faster ones of bytes; of windows in rows where it has no tile registers.
    """
    if variant == _WINDOWS:
        return any(isinstance(u, TileUnit) for u in target.units)
    if not in_halves(variant):
        return True
    return target.widens_bytes if widens(variant) else target.multiplies_halves


def splits_k(variant: str) -> bool:
    """True if a variant splits a product's sum, for a device with too few results of it."""
    return _SPLIT_K.fullmatch(variant) is not None


def parts_of(kernel: Kernel, variant: str) -> tuple[Kernel, ...]:
    """The kernels that a variant launches, in order."""
    return (kernel,) if variant == DIRECT else _made(kernel, variant)


@memoized()
def _made(kernel: Kernel, variant: str) -> tuple[Kernel, ...]:
    """The kernels of a variant that is not direct; a tune asks for the same ones repeatedly."""
    if variant.startswith((_MOVED, _WINDOWS)):
        moved = _channels_last(kernel, variant)
        parts = (moved.before, *parts_of(moved.kernel, _inner(variant)), moved.after)
        return tuple(p for p in parts if p is not None)
    if widens(variant):
        wide = _wide(kernel, variant)
        return (wide.before, *parts_of(wide.kernel, _inner(variant)))
    halves = _split(kernel, variant)
    if halves is not None:
        return (halves.partial, halves.finish)
    made = _winograd(kernel, variant, _names(kernel))
    weights = () if made.weights is None else (made.weights,)
    return (*weights, made.transform, made.product, made.finish)


def _no_variant(kernel: Kernel, variant: str) -> InternalError:
    has = ", ".join(variants_of(kernel))
    return InternalError(f"kernel {kernel.name} has no variant {variant!r}; it has {has}")


def _inner(variant: str) -> str:
    for outer in (_MOVED, _WINDOWS, _FLOATS, _HALVES):
        variant = variant.removeprefix(outer)
    return variant.removeprefix("_") or DIRECT


def _wide(kernel: Kernel, variant: str) -> Widened:
    found = halves(kernel) if variant == _HALVES else floats(kernel)
    if found is None:
        raise _no_variant(kernel, variant)
    return found


def _channels_last(kernel: Kernel, variant: str) -> ChannelsLast:
    found = windows(kernel) if variant == _WINDOWS else channels_last(kernel)
    if found is None:
        raise _no_variant(kernel, variant)
    return found


def _split(kernel: Kernel, variant: str) -> Split | None:
    """The halves that a name of the form "split64x16" or "split_k4" gives; None for others."""
    if kernel.overwritten:
        made = _split(kernel.apart, variant)
        finish = None if made is None else _overwriting(made, kernel)
        return None if made is None or finish is None else replace(made, finish=finish)
    found = _SPLIT.fullmatch(variant) or _SPLIT_K.fullmatch(variant)
    if found is None or variant not in variants_of(kernel):
        return None
    if splits_k(variant):
        return split_k(kernel, int(found[1]))
    chunks, lanes = found.groups()
    return split(kernel, int(chunks), int(lanes or 1))


def _overwriting(made: Split, kernel: Kernel) -> Kernel | None:
    """The second half, over the inputs that the kernel may lie over; None where it must not."""
    args = [kernel.params[i].name if i is not None else "" for i in made.finish_args]
    finish = made.finish
    for source, out in kernel.overwritten.items():
        if args.count(source) != 1 or args.count(out) != 1:
            return None
        names = (finish.params[args.index(x)].name for x in (out, source))
        found = overwriting(finish, *names)
        if found is None:
            return None
        finish = found.named(finish.name, finish.origin, finish.fixed)
    return finish


@memoized()
def _winograd(kernel: Kernel, variant: str, names: tuple[str, ...]) -> Winograd:  # noqa: ARG001  # told apart by names
    conv = match_bytes3x3(kernel) if in_halves(variant) else match_conv3x3(kernel)
    if conv is None or variant not in variants_of(kernel):
        raise _no_variant(kernel, variant)
    tile = EXACT_TILE if in_halves(variant) else int(variant.removeprefix("winograd"))
    return winograd(kernel, conv, tile)


def _names(kernel: Kernel) -> tuple[str, ...]:
    """Names of the parameters: kernels of one text may differ in them, and variants name them."""
    return tuple(p.name for p in kernel.params)


def rewrite(schedule: LaunchPlan, picks: Mapping[str, str]) -> LaunchPlan:
    """The schedule with every kernel as the variant that ``picks`` names for its key, or direct."""
    if all(v == DIRECT for v in picks.values()):
        return schedule
    work = _Rewriting(list(schedule.buffers))
    launches: list[Launch] = []
    for launch in schedule.launches:
        variant = picks.get(launch.kernel.key, DIRECT)
        launches += [launch] if variant == DIRECT else work.replaced(launch, variant)
    used = {i for x in launches for i in x.args} | set(schedule.inputs) | set(schedule.outputs)
    used |= {schedule.memory(i) for i in used if i < len(schedule.buffers)}
    made = _renumbered(
        replace(schedule, buffers=tuple(work.buffers), launches=tuple(launches)), used
    )
    if made.over:
        made.verify()
    return made


@dataclass(slots=True)
class _Rewriting:
    """The buffers so far. Mutable: each variant adds some."""

    buffers: list[Buffer]

    def replaced(self, launch: Launch, variant: str) -> list[Launch]:
        """The launches of a variant in place of one."""
        if variant == DIRECT:
            return [launch]
        if variant.startswith((_MOVED, _WINDOWS)):
            return self._moved(launch, variant)
        if widens(variant):
            return self._widened(launch, variant)
        halves = _split(launch.kernel, variant)
        if halves is not None:
            return self._halves(launch, halves)
        made = _winograd(launch.kernel, variant, _names(launch.kernel))
        place = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        at = place[made.conv.w.param]
        weights = self.buffers[at]
        name = f"{variant} {weights.name}"
        v = self._add(made.transform, f"V of {name}")
        m = self._add(made.product, f"M of {name}")
        first: list[Launch] = []
        if made.weights is None:
            u = self._constant(made, launch.kernel, weights, name)
        else:
            u = self._add(made.weights, f"U of {name}")
            first = _launches(launch, (made.weights, (u, at)))
        finish = [m if n == "M" else place[n] for n in made.finish_args]
        images = [place[p] for p in made.conv.x_params]
        rest = (made.transform, (v, *images)), (made.product, (m, v, u)), (made.finish, finish)
        return [*first, *_launches(launch, *rest)]

    def _moved(self, launch: Launch, variant: str) -> list[Launch]:
        moved = _channels_last(launch.kernel, variant)
        args, before, after = list(launch.args), list[Launch](), list[Launch]()
        x, y = (launch.args[i] for i in (moved.x, moved.y))
        if moved.before is not None:
            args[moved.x] = self._add(moved.before, f"{self.buffers[x].name} as {variant}")
            before = _launches(launch, (moved.before, (args[moved.x], x)))
        if moved.after is not None:
            args[moved.y] = self._add(moved.kernel, f"{self.buffers[y].name} channels last")
            after = _launches(launch, (moved.after, (y, args[moved.y])))
        (inner,) = _launches(launch, (moved.kernel, args))
        return [*before, *self.replaced(inner, _inner(variant)), *after]

    def _widened(self, launch: Launch, variant: str) -> list[Launch]:
        made, args = _wide(launch.kernel, variant), list(launch.args)
        x, w = (launch.args[i] for i in (made.x, made.w))
        args[made.x] = self._add(made.before, f"{self.buffers[x].name} as {variant}")
        args[made.w] = self._bytes_of(made, launch.kernel.params[made.w].layout, self.buffers[w])
        (inner,) = _launches(launch, (made.kernel, args))
        before = _launches(launch, (made.before, (args[made.x], x)))
        return [*before, *self.replaced(inner, _inner(variant))]

    def _bytes_of(self, made: Widened, layout: Layout, weights: Buffer) -> int:
        """The weights of a product of wider numbers: the bytes of words."""
        part, dtype = weights.dtype.of, made.kernel.params[made.w].dtype
        if weights.data is None or part is None:
            raise InternalError(f"weights {weights} are not a constant of words")
        kind = _FLOATS if dtype == F32 else _HALVES
        key = kind, weights.data.digest, weights.layout, layout, made.w_dims
        data = _weights.get(key)
        if data is None:
            how = _Wide(
                weights.data.forgotten, weights.shape, weights.layout, layout, made.w_dims, part,
                made.weights, dtype,
            )  # fmt: skip
            digest = hashlib.sha256(f"{key}".encode()).hexdigest()
            array = how.of(weights.data.array)
            data = ConstData(digest, f"{weights.name} as {kind}", array, made=how)
            _weights[key] = data
        node, places = weights.node, prod(made.weights[:-2])
        each = tuple(tuple(float(i == j) for j in range(places)) for i in range(places))
        shape = (places, made.weights[-2], made.weights[-1])
        of = (
            Combined(node, each, shape, made.w_dims, layout, weights.layout, dtype != F32)
            if isinstance(node, Node)
            else None
        )
        row, place = Layout.row_major(made.weights), len(self.buffers)
        self.buffers.append(
            Buffer(place, dtype, made.weights, row, "const", data.name, data, node=of)
        )
        return place

    def _halves(self, launch: Launch, made: Split) -> list[Launch]:
        partial = self._add(made.partial, made.partial.name)
        reads = (launch.args[i] for i in made.reads)
        finish = [partial if i is None else launch.args[i] for i in made.finish_args]
        return _launches(launch, (made.partial, (partial, *reads)), (made.finish, finish))

    def _add(self, kernel: Kernel, name: str) -> int:
        """A temporary for the output of a kernel."""
        p = kernel.outputs[0]
        self.buffers.append(Buffer(len(self.buffers), p.dtype, p.shape, p.layout, "temp", name))
        return len(self.buffers) - 1

    def _constant(self, made: Winograd, kernel: Kernel, weights: Buffer, name: str) -> int:
        if weights.data is None:
            raise InternalError(f"kernel {kernel.name}: weights {weights} are not a constant")
        layout = kernel.param(made.conv.w.param).layout
        tile = None if made.conv.words else made.tile
        key = name, weights.data.digest, weights.layout, layout, made.conv.w_dims, tile
        data = _weights.get(key)
        if data is None:
            how = _Winograd(
                weights.data.forgotten, weights.shape, weights.layout, layout, made.conv.w_dims,
                tile,
            )  # fmt: skip
            # told apart by what it is made of: the weights' bytes were hashed, these are more
            digest = hashlib.sha256(f"winograd {key[1:]}".encode()).hexdigest()
            data = ConstData(digest, f"U of {name}", how.of(weights.data.array), made=how)
            _weights[key] = data
        place, shape = len(self.buffers), data.array.shape
        node, combined = weights.node, None
        if isinstance(node, Node):
            parts = made.matrix, shape, made.conv.w_dims, layout, weights.layout
            combined = Combined(node, *parts, pairs=made.conv.words)
        elif node is not None:  # of weights that are the bytes of words: window, channel, output
            own = (*node.dims[2:], node.dims[1], node.dims[0])
            dims = tuple(own[d] for d in made.conv.w_dims)
            combined = replace(node, matrix=made.matrix, shape=shape, dims=dims)
        row, dtype = Layout.row_major(shape), made.product.params[-1].dtype
        self.buffers.append(
            Buffer(place, dtype, shape, row, "const", data.name, data, node=combined)
        )
        return place


@dataclass(frozen=True, slots=True)
class _Made:
    """A constant that is made of another one, of ``shape`` in ``memory``, which a kernel reads by
    ``layout``; ``dims`` are its outputs, channels, and rows and columns of the window, if any.
    """

    source: ConstData
    shape: tuple[int, ...]
    memory: Layout
    layout: Layout
    dims: tuple[int, ...]

    def read(self, elements: NDArray[Any]) -> NDArray[Any]:
        """The source in the shape that a kernel reads it in."""
        array = np.asarray(elements).reshape(self.shape)
        same = self.memory == self.layout
        return array if same else self.layout.unpack(self.memory.pack(array))


@dataclass(frozen=True, slots=True)
class _Winograd(_Made):
    """Weights of a convolution as its Winograd variant reads them."""

    tile: int | None
    """None of words."""

    def of(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Its elements, of those of its source."""
        words = self.read(elements)
        if self.tile is None:
            return exact_transformed(words, self.dims)
        return transformed(words, self.dims, self.tile)


@dataclass(frozen=True, slots=True)
class _Wide(_Made):
    """The bytes of weights in words, as floats of shape ``into``, or as halves of i32."""

    part: DType
    into: tuple[int, ...]
    dtype: DType

    def of(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Its elements, of those of its source."""
        output, channel, *window = self.dims
        read = self.read(elements)
        words = np.transpose(
            read if channel < read.ndim else read[..., None], (*window, output, channel)
        )
        parts = np.ascontiguousarray(words)[..., None].view(self.part.numpy)
        # .., outputs, words, bytes
        parts = np.moveaxis(parts, -3, -1).swapaxes(-2, -3).astype(self.dtype.numpy)
        if self.dtype.is_int:
            parts = parts[..., :2, :, :] & 0xFFFF | parts[..., 2:, :, :] << 16
        return np.ascontiguousarray(parts.reshape(self.into))


def _launches(of: Launch, *runs: tuple[Kernel, Sequence[int]]) -> list[Launch]:
    """Launches of kernels on buffers in the place of one."""
    return [Launch(kernel, tuple(args), kernel.name, of.origin) for kernel, args in runs]


def _renumbered(schedule: LaunchPlan, used: set[int]) -> LaunchPlan:
    """Without the buffers that nothing uses."""
    kept = [b for b in schedule.buffers if b.id in used]
    place = {b.id: i for i, b in enumerate(kept)}
    return LaunchPlan(
        tuple(
            replace(b, id=place[b.id], base=None if b.base is None else place[b.base]) for b in kept
        ),
        tuple(replace(x, args=tuple(place[i] for i in x.args)) for x in schedule.launches),
        tuple(place[i] for i in schedule.inputs),
        tuple(place[i] for i in schedule.outputs),
        tuple((place[out], place[source]) for out, source in schedule.over),
    )
