"""The result of fusion: buffers, the kernels that run over them in order, and names for people."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, cast

from tunegrad.errors import VerifyError
from tunegrad.lazy import dataclass

from ..dtypes import BF16, F32, I8, U8, DType
from ..expr import Apply, Cast, Expr, Load, Op
from ..graph import ConstData, GraphOp, Node, converts_reads
from ..kernel import Kernel, Param, Store
from ..layout import Layout

if TYPE_CHECKING:
    from .build import Draft

# ---- plans
#
# The result of fusion: buffers, and the kernels that run over them in order.
#
# buffer 0 f32[1,3,224,224] input x
# buffer 1 f32[64,3,7,7] const conv1.weight
# buffer 2 f32[1,64,112,112] temp, layout 0 2 3 1
# launch conv7x7s2 3->64 112x112 +bias +relu (2, 0, 1, ...)
#
# A view is a part of another buffer, from some byte on:
#
# buffer 7 f32[512] view gates+10240 of 3 from byte 10240


VALIDATION = 10
"""Of what plans are validated by, and how (``ir.validate``): what was found before by another is
not asked, and files of plans say theirs.
"""

BufferRole = Literal["input", "const", "temp", "output", "view"]

_ENDS: tuple[BufferRole, ...] = ("input", "output")


@lru_cache(maxsize=16)
def _shown(matrix: tuple[tuple[float, ...], ...]) -> str:
    """The text of a matrix: hundreds of numbers, of which there are two or three."""
    return str(matrix)


@dataclass(frozen=True, slots=True)
class Combined:
    """The parts of a constant of ``shape`` (rows, channels, outputs): each row of ``matrix`` times
    the window of weights of a channel and an output.

    Elements of the weights are found by ``layout``, in what ``memory`` places; ``dims`` are their
    dimensions of outputs, channels, and the window's rows and columns, if any. Of weights in words
    of bytes, the channels of all first bytes come first, then those of the second ones. ``pairs``:
    elements are two numbers of 16 bits, of a channel and of the one behind as many as there are.
    """

    node: Node
    matrix: tuple[tuple[float, ...], ...]
    shape: tuple[int, int, int]
    dims: tuple[int, ...]
    layout: Layout
    memory: Layout
    pairs: bool = False

    @property
    def text(self) -> str:
        """All but which weights these are."""
        parts = self.shape, self.dims, self.layout, self.memory, "pairs" if self.pairs else ""
        return " ".join(map(str, (_shown(self.matrix), *parts)))

    def index(self, channel: Any, output: Any, place: int) -> tuple[Any, ...]:
        """The weights of a channel and an output (integers or arrays) at a place of the window."""
        found: list[Any] = [0] * len(self.layout.shape)
        for d in reversed(self.dims[2:]):
            place, found[d] = divmod(place, self.layout.shape[d])
        found[self.dims[0]] = output
        if self.dims[1] < len(found):
            found[self.dims[1]] = channel % self.channels
        return tuple(found)

    @property
    def channels(self) -> int:
        """Channels of the weights, or words of them: one where no dimension is theirs."""
        shape = self.layout.shape
        return shape[self.dims[1]] if self.dims[1] < len(shape) else 1


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory: its logical shape and where each element lives.

    ``data`` is the array of a constant. A view is the memory of buffer ``base`` from byte ``start``
    on. Kernels only read it, or it is one of the parts that are written and make up ``base``.
    ``node`` is what it stands for in the graph, by which plans are
    validated: nothing for views, for what a variant keeps between its kernels, and where no graph
    is left.
    """

    id: int
    dtype: DType
    shape: tuple[int, ...]
    layout: Layout
    role: BufferRole
    name: str
    data: ConstData | None = None
    base: int | None = None
    start: int = 0
    node: Node | Combined | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Without its node: what goes to another process was validated here."""
        parts = self.id, self.dtype, self.shape, self.layout, self.role, self.name
        return Buffer, (*parts, self.data, self.base, self.start)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, layout padding included."""
        return self.layout.size * self.dtype.itemsize

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        layout = "" if self.layout.is_row_major else f", layout {self.layout}"
        part = "" if self.base is None else f" of {self.base} from byte {self.start}"
        return f"buffer {self.id} {self.dtype}[{shape}] {self.role} {self.name}{part}{layout}"


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a kernel: ``args`` are buffer ids in the order of the kernel's parameters."""

    kernel: Kernel
    args: tuple[int, ...]
    name: str
    origin: tuple[str, ...]

    @property
    def writes(self) -> tuple[int, ...]:
        """The buffers that it writes, in the order of its parameters."""
        pairs = zip(self.kernel.params, self.args, strict=True)
        return tuple(i for p, i in pairs if p.role == "out")

    @property
    def reads(self) -> tuple[int, ...]:
        """The buffers that it reads, in the order of its parameters."""
        pairs = zip(self.kernel.params, self.args, strict=True)
        return tuple(i for p, i in pairs if p.role != "out")

    def __str__(self) -> str:
        return f"launch {self.name} ({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A graph as kernels: launches in dependency order; ``inputs`` and ``outputs`` are buffer
    ids. An output that no launch writes is a constant.

    ``over`` are pairs of an output and an input: the output is the new value of the input, and is
    written in its memory. Such inputs do not change before the launch that writes the output, which
    is the last that reads them.
    """

    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    over: tuple[tuple[int, int], ...] = ()

    def memory(self, buffer: int) -> int:
        """The buffer that a buffer is a part of; itself, where it is none."""
        base = self.buffers[buffer].base
        return buffer if base is None else base

    @property
    def pieces(self) -> dict[int, tuple[int, ...]]:
        """The memory that each buffer lies in, by its id: the buffers that are written there, which
        are several where a whole is made up of parts.
        """
        parts = self.parts
        found: dict[int, tuple[int, ...]] = {}
        for b in self.buffers:
            written = parts.get(self.memory(b.id), (self.memory(b.id),))
            at = [(i, self.buffers[i]) for i in written] if len(written) > 1 else []
            within = (
                i for i, p in at if p.start < b.start + b.nbytes and b.start < p.start + p.nbytes
            )
            found[b.id] = tuple(within) if at else written
        return found

    @property
    def touched(self) -> dict[int, list[int]]:
        """The places of the launches that read or write a piece of memory, in order."""
        found: dict[int, list[int]] = {}
        pieces = self.pieces
        for n, launch in enumerate(self.launches):
            for i in {i for arg in launch.args for i in pieces[arg]}:
                found.setdefault(i, []).append(n)
        return found

    @property
    def parts(self) -> dict[int, tuple[int, ...]]:
        """The views that launches write, in order, by the buffer that they make up."""
        found: dict[int, list[int]] = {}
        for launch in self.launches:
            for p, i in zip(launch.kernel.params, launch.args, strict=False):
                base = self.buffers[i].base
                if p.role == "out" and base is not None:
                    found.setdefault(base, []).append(i)
        return {
            base: tuple(sorted(views, key=lambda i: self.buffers[i].start))
            for base, views in found.items()
        }

    def kernels(self) -> dict[str, tuple[Kernel, int]]:
        """The distinct kernels by key, each with its number of launches."""
        found: dict[str, tuple[Kernel, int]] = {}
        for launch in self.launches:
            key = launch.kernel.key
            kernel, uses = found.get(key, (launch.kernel, 0))
            found[key] = (kernel, uses + 1)
        return found

    @property
    def forgotten(self) -> LaunchPlan:
        """The same without the elements of constants, for a caller that has them elsewhere."""
        kept = (replace(b, data=b.data and b.data.forgotten, node=None) for b in self.buffers)
        return replace(self, buffers=tuple(kept))

    def holding(self, constants: dict[str, ConstData]) -> LaunchPlan | None:
        """The same with constants of these digests in the place of its own, or made of them; None
        where they are not among them.
        """
        held = [replace(b, data=b.data and b.data.held(constants)) for b in self.buffers]
        if any(b.data and h.data is None for b, h in zip(self.buffers, held, strict=True)):
            return None
        return replace(self, buffers=tuple(held))

    def indexed(self) -> dict[int, int]:
        """The buffers whose elements are indices, or compared with positions, by their ids, with
        the least extent that they are indices of.
        """
        from .axes import all_indices, compared

        found: dict[int, int] = {}
        for launch in self.launches:
            args = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
            for e in {e for i in all_indices(launch.kernel) for e in i.elements()}:
                at = args[e.buffer]
                found[at] = min(e.den, found.get(at, e.den))
            for name, extent in compared(launch.kernel).items():
                found.setdefault(args[name], extent)
        return found

    def alone(self, key: str) -> LaunchPlan:
        """The first launch of a kernel as a plan of its own, over flat buffers.

        What other launches write for it is an input. Raises KeyError where no launch runs it.
        """
        launch = next((x for x in self.launches if x.kernel.key == key), None)
        if launch is None:
            raise KeyError(key)
        buffers = tuple(
            _flat(self.buffers[at], p, i, "output" if p.role == "out" else "input")
            for i, (p, at) in enumerate(zip(launch.kernel.params, launch.args, strict=True))
        )
        places = {role: tuple(b.id for b in buffers if b.role == role) for role in _ENDS}
        alone = replace(launch, args=tuple(b.id for b in buffers))
        return LaunchPlan(buffers, (alone,), places["input"], places["output"])

    def needed(self) -> tuple[Launch, ...]:
        """The launches that write an output, or what a later one of them reads."""
        wanted = {self.memory(i) for i in self.outputs}
        found = []
        for launch in reversed(self.launches):
            made = {self.memory(i) for i in launch.writes}
            if not made.isdisjoint(wanted):
                found.append(launch)
                wanted |= {self.memory(i) for i in launch.args} - made
        return tuple(reversed(found))

    def verify(self) -> None:
        """Raise VerifyError unless every launch reads what was written before, fits its buffers,
        and writes an output or what a later one reads; and no input is read after it is replaced.
        """
        written = {b.id for b in self.buffers if b.role in ("input", "const") or not b.layout.size}
        for i, b in enumerate(self.buffers):
            if b.id != i:
                raise VerifyError(f"schedule: buffer {b.id} is at place {i}")
            if (b.data is not None) != (b.role == "const"):
                raise VerifyError(f"schedule: {b}: exactly the constants have data")
            if (b.base is not None) != (b.role == "view"):
                raise VerifyError(f"schedule: {b}: exactly the views are parts of a buffer")
            if b.base is not None:
                self._verify_view(b, b.base)
        parts = self.parts
        pieces = self.pieces
        for base, views in parts.items():
            self._verify_parts(self.buffers[base], [self.buffers[i] for i in views])
        for launch in self.launches:
            self._verify_launch(launch, written, pieces)
        for i in self.outputs:
            if i not in written or self.buffers[i].role not in ("output", "const"):
                raise VerifyError(
                    f"schedule: output {self.buffers[i]} is not written by any launch"
                )
        self._verify_read()
        self._verify_over()

    def _verify_over(self) -> None:
        touched = self.touched if self.over else {}
        for out, source in self.over:
            places = sorted({*touched.get(out, ()), *touched.get(source, ())})
            fault = self._over_fault(out, source, [self.launches[n] for n in places])
            if fault:
                raise VerifyError(f"schedule: output {out} over input {source}: {fault}")

    def _over_fault(self, out: int, source: int, launches: Sequence[Launch]) -> str:
        """The reason why an output can not lie in the memory of an input; '' where it can.

        ``launches`` are those that read or write one of them, in order.
        """
        if not (min(out, source) >= 0 and max(out, source) < len(self.buffers)):
            return "there is no such buffer"
        new, old = self.buffers[out], self.buffers[source]
        if out not in self.outputs or new.role != "output" or source not in self.inputs:
            return "they are not an output and an input"
        if (new.dtype, new.shape, new.layout) != (old.dtype, old.shape, old.layout):
            return "they differ in dtype, shape or layout"
        if sum(out == a or source == b for a, b in self.over) > 1:
            return "one of them is in two such pairs"
        replaced = False
        for launch in launches:
            args = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
            read = [p for p, i in args.items() if self.memory(i) == source]
            if read and replaced:
                return f"{launch} reads the input after it was replaced"
            replaced = replaced or out in launch.args
            if read and out in launch.args:
                into = next(p for p, i in args.items() if i == out)
                if launch.kernel.overwritten.get(read[0]) != into or len(read) > 1:
                    return f"{launch} reads the input, and its kernel must not replace it"
        return ""

    def _verify_read(self) -> None:
        read = set(map(id, self.needed()))
        for launch in self.launches:
            if id(launch) not in read:
                raise VerifyError(f"schedule: {launch}: no later launch reads what it writes")

    def _verify_view(self, b: Buffer, base: int) -> None:
        whole = self.buffers[base] if 0 <= base < len(self.buffers) else None
        if whole is None or whole.role in ("const", "view"):
            raise VerifyError(f"schedule: {b}: a view is a part of an input, temp or output")
        inside = b.start >= 0 and b.start + b.nbytes <= whole.nbytes
        if not inside or b.start % b.dtype.itemsize:
            raise VerifyError(
                f"schedule: {b}: elements of {b.dtype.itemsize} bytes inside of {whole.nbytes}"
            )

    def _verify_parts(self, whole: Buffer, parts: Sequence[Buffer]) -> None:
        """Parts that are written make up a temporary buffer, which no launch writes as a whole."""
        ends = [0, *(b.start + b.nbytes for b in parts)]
        if whole.role != "temp" or [*(b.start for b in parts), whole.nbytes] != ends:
            raise VerifyError(f"schedule: {whole}: parts that are written have to make it up")
        if any(whole.id in x.writes for x in self.launches):
            raise VerifyError(f"schedule: {whole}: it is written in parts, and as a whole")

    def _verify_launch(
        self, launch: Launch, written: set[int], pieces: Mapping[int, tuple[int, ...]]
    ) -> None:
        params = launch.kernel.params
        if len(params) != len(launch.args):
            raise VerifyError(f"schedule: {launch}: {len(params)} parameters need as many buffers")
        if any(launch.args.count(i) > 1 for i in launch.writes):
            raise VerifyError(f"schedule: {launch}: what it writes is a different buffer from all")
        for p, i in zip(params, launch.args, strict=True):
            b = self.buffers[i]
            if not _fits(b, p):
                raise VerifyError(
                    f"schedule: {launch}: {b} does not fit parameter {p.name} "
                    f"{p.dtype}{list(p.shape)}"
                )
            if p.role == "out" and i in written:
                raise VerifyError(f"schedule: {launch}: {b} is already written")
            if p.role != "out" and not written.issuperset(pieces[i]):
                raise VerifyError(f"schedule: {launch}: {b} is read before it is written")
            if (p.role == "const") != (b.role == "const"):
                raise VerifyError(
                    f"schedule: {launch}: parameter {p.name} is {p.role}, its buffer is {b.role}"
                )
        written.update(launch.writes)

    def __str__(self) -> str:
        lines = [str(b) for b in self.buffers]
        for launch in self.launches:
            lines.append(str(launch))
            lines.extend("  " + line for line in str(launch.kernel).splitlines())
        lines.append(
            f"inputs {', '.join(map(str, self.inputs))} outputs {', '.join(map(str, self.outputs))}"
        )
        lines.extend(f"output {out} over input {source}" for out, source in self.over)
        return "\n".join(lines)


def _fits(b: Buffer, p: Param) -> bool:
    """True if a buffer holds the elements of a parameter; numbers are read as words, too."""
    if p.role == "in" and p.dtype.of == b.dtype:
        return b.nbytes == p.layout.size * p.dtype.itemsize
    return b.dtype == p.dtype and b.layout.size == p.layout.size


def _flat(buffer: Buffer, p: Param, number: int, role: BufferRole) -> Buffer:
    """A buffer as a row of all elements of a parameter, in this role; a constant stays one."""
    kept = buffer.role if buffer.role == "const" else role
    shape, name = (p.layout.size,), f"b{number}"
    layout = Layout.row_major(shape)
    return Buffer(number, p.dtype, shape, layout, kept, name, buffer.data)


_WORDS = (Op.PAIR, Op.QUAD)


def without_unread(plan: LaunchPlan) -> LaunchPlan:
    """The plan without launches that write what no later launch reads; the same object where all
    are needed.

    A kernel may lose a read when it is simplified, after the graph was cut. Buffers keep their
    numbers: those that nothing uses take no memory.
    """
    needed = plan.needed()
    return plan if len(needed) == len(plan.launches) else replace(plan, launches=needed)


def without_copies(plan: LaunchPlan) -> LaunchPlan:
    """The plan without launches that only store neighbours of a buffer as words.

    A copy stays where one of its readers reads the numbers one by one, too. A plan without any is
    the same object. Buffers keep their numbers: those that nothing uses take no memory.

        buffer 3 bf16[56,56,64] temp                     buffer 3 bf16[56,56,64] temp
        buffer 4 bf16x2[56,56,32] temp             -->
        launch elementwise pair 32x56x56 (4, 3)
        launch conv3x3 .. (5, 4, 2)                      launch conv3x3 .. (5, 3, 2)

    Kernels stay what they are: a parameter of words is given a buffer of two or four times as many
    numbers. Views of the words become views of the numbers.
    """
    copies = {x.args[0]: x.args[1] for x in plan.launches if _is_copy(x.kernel)}
    for launch in plan.launches:
        args = [plan.memory(i) for i in launch.args]
        for i in args[1:]:
            if i in copies and plan.memory(copies[i]) in args:
                del copies[i]
    if not copies:
        return plan
    buffers = tuple(_of_numbers(b, plan, copies) for b in plan.buffers)
    made = tuple(
        replace(x, args=tuple(copies.get(i, i) for i in x.args))
        for x in plan.launches
        if x.args[0] not in copies
    )
    return replace(plan, buffers=buffers, launches=made)


def _of_numbers(b: Buffer, plan: LaunchPlan, copies: dict[int, int]) -> Buffer:
    """A view of words as one of the numbers that they are copies of."""
    if b.base is None or b.base not in copies:
        return b
    source = plan.buffers[copies[b.base]]
    return replace(b, base=plan.memory(source.id), start=b.start + source.start)


def _is_copy(kernel: Kernel) -> bool:
    """True if a kernel stores words of neighbours, each where those lie."""
    if len(kernel.params) != 2 or len(kernel.stages) != 1:
        return False
    (store,) = kernel.stages
    assert isinstance(store, Store)  # the only stage of a kernel
    x, out = store.expr, kernel.param(store.param)
    if not isinstance(x, Apply) or x.op not in _WORDS or kernel.params[0] is not out:
        return False
    count = len(x.args)
    parts = [_part(y) for y in x.args]
    source = kernel.params[1]
    if any(y is None or not y.valid.always for y in parts) or source.role == "const":
        return False
    at = out.layout.offset(store.index) * count
    lies = [source.layout.offset(y.index) for y in parts if y is not None]
    points = prod(a.extent for a in kernel.all_axes())
    whole = source.layout.size == count * out.layout.size == count * points
    return store.valid.always and whole and lies == [at + i for i in range(count)]


def _part(x: Expr) -> Load | None:
    """A load of what words are made of; bf16 may be widened."""
    if isinstance(x, Cast) and x.dtype == F32:
        x = x.x
    return x if isinstance(x, Load) and x.dtype in (BF16, I8, U8) else None


# ---- names
#
# Names for people: ``conv3x3s2 64->128 28x28 +relu``, ``matmul 128x768x768 +gelu``, ``softmax
# 1024x1024``.
#
# Read off the nodes that a kernel computes; they mean nothing to the rest of the system.


INPUT = " (input)"
"""The mark in an origin after the name of a model's input."""

_MOVES = {
    GraphOp.PERMUTE: "transpose", GraphOp.RESHAPE: "copy", GraphOp.EXPAND: "expand",
    GraphOp.PAD: "pad",
    GraphOp.GATHER: "gather",
    GraphOp.SHRINK: "slice", GraphOp.FLIP: "flip", GraphOp.WINDOW: "window",
}  # fmt: skip


def kernel_origin(d: Draft) -> tuple[str, ...]:
    """The graph operations that a kernel holds, then the names of the constants and inputs it
    reads: ``("mul", "reduce", ..., "layer1.0.conv1.weight (folded)", "image (input)")``.
    """
    ops = [str(n.arg) if n.op is GraphOp.MAP else str(n.op) for n in d.inlined]
    names = [cast(ConstData, n.arg).name for n in d.reads.values() if n.op is GraphOp.CONST]
    inputs = [f"{n.arg}{INPUT}" for n in d.reads.values() if n.op is GraphOp.INPUT]
    return (*dict.fromkeys(ops), *(n for n in names if n), *inputs)


def kernel_name(d: Draft, k: Kernel) -> str:
    """A short description of what ``k``, drafted as ``d``, computes in its first output."""
    more = f" +{len(d.siblings)} output{'s' * (len(d.siblings) > 1)}" if d.siblings else ""
    return _first_name(d, k) + more


def _first_name(d: Draft, k: Kernel) -> str:
    reduces = [n for n in d.inlined if n.op is GraphOp.REDUCE]
    if not reduces or not k.reduces:
        return f"{_elementwise(d)} {_shape(d.node.shape)}"
    main = max(reduces, key=lambda n: n.srcs[0].size)
    op = cast(Any, main.arg)[0]
    windows = [n for n in d.inlined if n.op is GraphOp.WINDOW]
    inside = _below(main, d)
    after = _epilogue([n for n in d.inlined if n not in inside and n.op is GraphOp.MAP], d)
    from .build import is_attention

    if is_attention(k):
        return f"attention {_attended(k)}"
    if len(k.reduces) > 1:
        kind = "sums" if d.siblings else _row_kernel(d)
        return f"{kind} {_shape(d.node.shape)}"
    if windows and any(n in inside for n in windows):
        return _windowed(d, main, windows) + after
    count, words = _words({n.arg for n in inside if n.op is GraphOp.MAP})
    product = op is Op.ADD and (words or _is_product(main.srcs[0]))
    if product and len({p.name for p in k.params if p.role != "out"}) > 1 and k.axes:
        shared = "x".join(str(a.extent) for a in k.axes)
        terms = prod(a.extent for a in k.reduces[0].axes)
        return f"matmul {shared}x{count * terms}{words}{after}"
    kind = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max", Op.MIN: "min"}[op]
    return f"{kind} {_shape(main.srcs[0].shape)}->{_shape(main.shape)}{after}"


def _words(maps: Collection[object]) -> tuple[int, str]:
    """Numbers in one factor of a sum of products, and the part of a kernel's name that says so."""
    dots = {Op.DOT2: (2, " bf16-dot"), Op.DOT4: (4, " int8-dot")}
    return next((found for op, found in dots.items() if op in maps), (1, ""))


def _is_product(terms: Node) -> bool:
    """True if the terms of a sum are products, whatever they are cast to."""
    while terms.op is GraphOp.CAST:
        terms = terms.srcs[0]
    return terms.op is GraphOp.MAP and terms.arg is Op.MUL


def _windowed(d: Draft, main: Node, windows: list[Node]) -> str:
    by_dim = {cast(Any, w.arg)[0]: cast(Any, w.arg) for w in windows}
    spec = [by_dim[dim] for dim in sorted(by_dim)]
    size = "x".join(str(a[1]) for a in spec)
    stride = f"s{spec[0][2]}" if spec[0][2] > 1 else ""
    op = cast(Any, main.arg)[0]
    maps = {n.arg for n in _below(main, d) if n.op is GraphOp.MAP}
    count, words = _words(maps)
    product = words or Op.MUL in maps
    image = d.node.shape[-2:]
    if product:
        constants = [n for n in d.reads.values() if n.op is GraphOp.CONST and len(n.shape) > 2]
        weights = max(constants, key=lambda n: n.size, default=None)
        channels = f" {weights.shape[1] * count}->{weights.shape[0]}" if weights is not None else ""
        return f"conv{size}{stride}{channels} {_shape(image)}{words}"
    kind = "maxpool" if op is Op.MAX else "minpool" if op is Op.MIN else "avgpool"
    return f"{kind} {size}{stride} {_shape(image)}"


def _attended(k: Kernel) -> str:
    """Queries (of all heads), keys, and the numbers of a key and of a value, if they differ."""
    scores, _, _, values = k.reduces
    axes = (*k.axes, *scores.row, *scores.folds)
    wide = prod(a.extent for a in values.row), prod(a.extent for a in scores.folds)
    more = "" if wide[0] == wide[1] else f"x{wide[0]}"
    return "x".join(str(a.extent) for a in axes) + more


def _row_kernel(d: Draft) -> str:
    maps = {n.arg for n in d.inlined if n.op is GraphOp.MAP}
    folds = {cast(Any, n.arg)[0] for n in d.inlined if n.op is GraphOp.REDUCE}
    if Op.EXP in maps and Op.MAX in folds:
        return "softmax"
    if folds == {Op.ADD} and (Op.SQRT in maps or Op.RECIP in maps):
        return "layernorm"
    return "rows"


def _below(n: Node, d: Draft) -> set[Node]:
    """Nodes of the kernel that ``n`` is computed from, ``n`` included."""
    inlined = set(d.inlined)
    found: set[Node] = set()
    stack = [n]
    while stack:
        m = stack.pop()
        if m in inlined and m not in found:
            found.add(m)
            stack.extend(m.srcs)
    return found


def _epilogue(maps: list[Node], d: Draft) -> str:
    ops = {n.arg for n in maps}
    parts = []
    if any(n.arg is Op.ADD and any(_reads(s, d) for s in n.srcs) for n in maps):
        parts.append("+add")
    if Op.ERF in ops or Op.TANH in ops:
        products = sum(n.arg is Op.MUL for n in maps)
        parts.append("+gelu" if products > 1 else "+tanh" if Op.TANH in ops else "+erf")
    elif Op.MAX in ops:
        parts.append("+relu")
    elif Op.EXP in ops:
        parts.append("+exp")
    return "".join(" " + p for p in parts)


def _reads(n: Node, d: Draft) -> bool:
    """True if ``n`` is a tensor in memory of the output's size, widened or dequantised or not."""
    n = n.srcs[0] if converts_reads(n) else n
    below = n
    while below.op is GraphOp.MAP and below.arg in (Op.SUB, Op.MUL):
        below = below.srcs[0]
    if below.op is GraphOp.CAST and below.srcs[0].dtype in (I8, U8):
        n = below.srcs[0]
    return n in d.reads.values() and n.size == d.node.size


def _elementwise(d: Draft) -> str:
    maps = list(dict.fromkeys(str(n.arg) for n in d.inlined if n.op is GraphOp.MAP))
    if maps:
        return "elementwise " + "-".join(reversed(maps[:4]))
    moves = [n.op for n in d.inlined if n.op in _MOVES]
    if any(n.op is GraphOp.GATHER for n in d.inlined):
        return "gather"
    if any(n.op is GraphOp.CAST for n in d.inlined):
        return "cast"
    if not d.reads:
        return "fill"
    return _MOVES[moves[0]] if moves else "copy"


def _shape(shape: tuple[int, ...] | list[int]) -> str:
    return "x".join(str(s) for s in shape if s != 1) or "1"


_OPERATIONS = frozenset((*map(str, GraphOp), *map(str, Op)))

_FOLDED = " (folded)"

_AFTER = "after "

_PART = re.compile(r"[^./]*[./]?")


def layers_of(plan: LaunchPlan) -> dict[str, tuple[str, ...]]:
    """By kernel key: where its launches come from, in their order, each once.

    A launch without parameters comes ``after`` those that wrote what it reads, or is named by the
    model's inputs that it reads; of what has neither there is nothing.

    launch reads layer2.0.conv1.weight (folded), layer2.0.bn1.bias (folded)  -->  layer2.0.conv1+bn1
    launch reads no parameter, but what query and key wrote                  -->  after query, key

    Parameters carry their names from modules to kernels (``kernel_origin``); parts of a name end
    with a dot, or with a slash as in ONNX files. A kernel that is launched several times comes from
    several layers.
    """
    wrote: dict[int, str] = {}
    found: dict[str, dict[str, None]] = {}
    for launch in plan.launches:
        args = [plan.memory(i) for i in launch.args]
        said = _module(launch) or _after(args, wrote) or _inputs(launch)
        for p, buffer in zip(launch.kernel.params, args, strict=True):
            if p.role == "out":
                wrote[buffer] = said
        found.setdefault(launch.kernel.key, {}).update({said: None} if said else {})
    return {key: tuple(layers) for key, layers in found.items()}


def _module(launch: Launch) -> str:
    """The modules whose parameters it reads, as ``layer2.0.conv1+bn1``; "" where it reads none."""
    names = [n for n in launch.origin if n not in _OPERATIONS and not n.endswith(INPUT)]
    owners = dict.fromkeys(_owner(n.removesuffix(_FOLDED)) for n in names)
    paths = [_PART.findall(owner)[:-1] for owner in owners]
    if not paths:
        return ""
    shared = 0
    while all(len(p) > shared + 1 and p[: shared + 1] == paths[0][: shared + 1] for p in paths):
        shared += 1
    return "".join(paths[0][:shared]) + "+".join("".join(p[shared:]) for p in paths)


def _owner(parameter: str) -> str:
    """The module of a parameter; a parameter that no module holds stands for itself."""
    return parameter.rpartition(".")[0] or parameter


def _after(args: list[int], wrote: dict[int, str]) -> str:
    """Origin of a launch without parameters: the layers that wrote what it reads at the end."""
    before = dict.fromkeys(
        layer for i in args for layer in wrote.get(i, "").removeprefix(_AFTER).split(", ") if layer
    )
    return f"{_AFTER}{', '.join(before)}" if before else ""


def _inputs(launch: Launch) -> str:
    names = (n.removesuffix(INPUT) for n in launch.origin if n.endswith(INPUT))
    return "+".join(dict.fromkeys(names))
