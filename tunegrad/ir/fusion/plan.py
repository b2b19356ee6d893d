"""The result of fusion: buffers, and the kernels that run over them in order.

buffer 0 f32[1,3,224,224] input x
buffer 1 f32[64,3,7,7] const conv1.weight
buffer 2 f32[1,64,112,112] temp, layout 0 2 3 1
launch conv7x7s2 3->64 112x112 +bias +relu (2, 0, 1, ...)

A view is a part of another buffer, from some byte on:

buffer 7 f32[512] view gates+10240 of 3 from byte 10240
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tunegrad.errors import VerifyError

from ..dtypes import BF16, F32, I8, U8, DType
from ..expr import Apply, Cast, Expr, Load, Op
from ..graph import ConstData, Node
from ..kernel import Kernel, Param, Store
from ..layout import Layout
from .axes import all_indices, compared

__all__ = [
    "VALIDATION",
    "Buffer",
    "BufferRole",
    "Combined",
    "Launch",
    "LaunchPlan",
    "without_copies",
]

VALIDATION = 6
"""Of what plans are validated by, and how (``ir.validate``): what was found before by another is
not asked, and files of plans say theirs.
"""

BufferRole = Literal["input", "const", "temp", "output", "view"]

_ENDS: tuple[BufferRole, ...] = ("input", "output")


@dataclass(frozen=True, slots=True)
class Combined:
    """The parts of a constant of ``shape`` (rows, channels, outputs): each row of ``matrix`` times
    the window of weights of a channel and an output.

    Elements of the weights are found by ``layout``, in what ``memory`` places; ``dims`` are their
    dimensions of outputs, channels, and the window's rows and columns.
    """

    node: Node
    matrix: tuple[tuple[float, ...], ...]
    shape: tuple[int, int, int]
    dims: tuple[int, int, int, int]
    layout: Layout
    memory: Layout

    @property
    def text(self) -> str:
        """All but which weights these are."""
        return f"{self.matrix} {self.shape} {self.dims} {self.layout} {self.memory}"

    def index(self, channel: Any, output: Any, place: int) -> tuple[Any, ...]:
        """The weights of a channel and an output (integers or arrays) at a place of the window."""
        width = self.layout.shape[self.dims[3]]
        found: list[Any] = [0] * len(self.layout.shape)
        at = output, channel, place // width, place % width
        for d, i in zip(self.dims, at, strict=True):
            found[d] = i
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory: its logical shape and where each element lives.

    ``data`` is the array of a constant. A view is the memory of buffer ``base`` from byte ``start``
    on, which kernels only read. ``node`` is what it stands for in the graph, by which plans are
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

    def __str__(self) -> str:
        return f"launch {self.name} ({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A graph as kernels: launches in dependency order; ``inputs`` and ``outputs`` are buffer
    ids. An output that no launch writes is a constant.
    """

    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def memory(self, buffer: int) -> int:
        """The buffer that a buffer is a part of; itself, where it is none."""
        base = self.buffers[buffer].base
        return buffer if base is None else base

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

    def indexed(self) -> dict[int, int]:
        """The buffers whose elements are indices, or compared with positions, by their ids, with
        the least extent that they are indices of.
        """
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

    def verify(self) -> None:
        """Raise VerifyError unless every launch reads what was written before, fits its buffers,
        and writes an output or what a later one reads.
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
        for launch in self.launches:
            self._verify_launch(launch, written)
        for i in self.outputs:
            if i not in written or self.buffers[i].role not in ("output", "const"):
                raise VerifyError(
                    f"schedule: output {self.buffers[i]} is not written by any launch"
                )
        self._verify_read()

    def _verify_read(self) -> None:
        needed = {self.memory(i) for i in self.outputs}
        for launch in reversed(self.launches):
            roles = zip(launch.kernel.params, launch.args, strict=True)
            made = {i for p, i in roles if p.role == "out"}
            if made.isdisjoint(needed):
                raise VerifyError(f"schedule: {launch}: no later launch reads what it writes")
            needed |= {self.memory(i) for i in launch.args} - made

    def _verify_view(self, b: Buffer, base: int) -> None:
        whole = self.buffers[base] if 0 <= base < len(self.buffers) else None
        if whole is None or whole.role in ("const", "view"):
            raise VerifyError(f"schedule: {b}: a view is a part of an input, temp or output")
        inside = b.start >= 0 and b.start + b.nbytes <= whole.nbytes
        if not inside or b.start % b.dtype.itemsize:
            raise VerifyError(
                f"schedule: {b}: elements of {b.dtype.itemsize} bytes inside of {whole.nbytes}"
            )

    def _verify_launch(self, launch: Launch, written: set[int]) -> None:
        params = launch.kernel.params
        if len(params) != len(launch.args):
            raise VerifyError(f"schedule: {launch}: {len(params)} parameters need as many buffers")
        out = {i for p, i in zip(params, launch.args, strict=True) if p.role == "out"}
        if any(launch.args.count(i) > 1 for i in out):
            raise VerifyError(f"schedule: {launch}: what it writes is a different buffer from all")
        for p, i in zip(params, launch.args, strict=True):
            b = self.buffers[i]
            if not _fits(b, p):
                raise VerifyError(
                    f"schedule: {launch}: {b} does not fit parameter {p.name} "
                    f"{p.dtype}{list(p.shape)}"
                )
            if p.role == "out" and (i in written or b.role == "view"):
                raise VerifyError(f"schedule: {launch}: {b} is already written")
            if p.role != "out" and self.memory(i) not in written:
                raise VerifyError(f"schedule: {launch}: {b} is read before it is written")
            if (p.role == "const") != (b.role == "const"):
                raise VerifyError(
                    f"schedule: {launch}: parameter {p.name} is {p.role}, its buffer is {b.role}"
                )
        written.update(i for p, i in zip(params, launch.args, strict=True) if p.role == "out")

    def __str__(self) -> str:
        lines = [str(b) for b in self.buffers]
        for launch in self.launches:
            lines.append(str(launch))
            lines.extend("  " + line for line in str(launch.kernel).splitlines())
        lines.append(
            f"inputs {', '.join(map(str, self.inputs))} outputs {', '.join(map(str, self.outputs))}"
        )
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
    whole = source.layout.size == count * out.layout.size == count * _points(kernel)
    return store.valid.always and whole and lies == [at + i for i in range(count)]


def _points(kernel: Kernel) -> int:
    total = 1
    for a in kernel.all_axes():
        total *= a.extent
    return total


def _part(x: Expr) -> Load | None:
    """A load of what words are made of; bf16 may be widened."""
    if isinstance(x, Cast) and x.dtype == F32:
        x = x.x
    return x if isinstance(x, Load) and x.dtype in (BF16, I8, U8) else None
