"""A graph as a schedule of kernels.

Drafts           which tensors get memory, one legal kernel each
temp_layouts     where the elements of each one live
normalized       canonical axes, dimensions, names

``Fusion`` keeps what it has made, so that a plan that differs in one edge costs the kernels of that
edge.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import field, replace
from typing import Any, Literal, cast

from tunegrad.errors import InternalError, ShapeError
from tunegrad.lazy import dataclass

from ..expr import Op
from ..graph import MOVEMENT, ConstData, Fence, GraphOp, Node
from ..kernel import Kernel, Param, key_of
from ..layout import Layout, Part
from ..rewrites.ranges import unchecked
from .axes import VIEW_BYTES, Places, normalized
from .build import Draft
from .donation import New, in_place
from .drafts import Drafts
from .order import least_memory
from .parts import joined as joined_parts
from .parts import sliced
from .plan import (
    Buffer,
    BufferRole,
    Launch,
    LaunchPlan,
    kernel_name,
    kernel_origin,
    without_copies,
    without_unread,
)
from .recompute import recomputed
from .siblings import joined

# ---- schedule


_CHANNELS_LAST = (0, 2, 3, 1)

_TEXT = re.compile(r"last|rows|blocked([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Images:
    """The layout of all intermediate images of a graph: one form for all of them.

    ``block`` is how many channels are neighbours; 0 where the form has no blocks.

    LAST         (N, H, W, C)         neighbouring channels are neighbouring addresses
    ROWS         (N, C, H, W)         as numpy has it
    blocked(16)  (N, C/16, H, W, 16)  the channels of one vector are neighbours, and pixels of one
                                      channel 16 apart

    An image is a 4-D tensor that a convolution or pooling window slides over or produces. The form
    spreads over 4-D tensors that meet an image in a kernel (residual adds), and to no others:
    attention scores are 4-D too, and stay row-major. Where the block does not divide the channels,
    an image is channels-last instead. The caller's inputs and outputs, and constants, always stay
    row-major. No kernel only converts: a kernel that reads or writes two forms does so in place,
    and ``conversions`` counts them.
    """

    form: Literal["last", "rows", "blocked"] = "last"
    block: int = 0

    def __post_init__(self) -> None:
        if (self.form == "blocked") != (self.block > 1):
            raise InternalError(
                f"images {self.form} with blocks of {self.block}: exactly blocked ones have blocks"
            )

    @staticmethod
    def parse(text: str) -> Images | None:
        """The form that ``str`` gives this text for; None where there is none."""
        found = _TEXT.fullmatch(text)
        if found is None or found.group(1) == "1":
            return None
        return Images(cast(Any, text.rstrip("0123456789")), int(found.group(1) or 0))

    def __str__(self) -> str:
        return f"{self.form}{self.block or ''}"

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """The layout of an image of this shape."""
        if self.form == "rows":
            return Layout.row_major(shape)
        n, c, h, w = shape
        if self.form == "last" or c % self.block:
            return Layout.permuted(shape, _CHANNELS_LAST)
        high, low = Part(1, self.block, c // self.block), Part(1, 1, self.block)
        return Layout(shape, (Part(0, 1, n), high, Part(2, 1, h), Part(3, 1, w), low))


LAST = Images()

ROWS = Images("rows")


def blocked(block: int) -> Images:
    """NCHW with the channels in blocks; one channel a block is row-major."""
    return Images("blocked", block) if block > 1 else ROWS


def image_nodes(drafts: Iterable[Draft], temps: set[Node]) -> list[Node]:
    """The images among ``temps``."""
    leader: dict[Node, Node] = {}

    def find(n: Node) -> Node:
        while leader[n] is not n:
            leader[n] = leader[leader[n]]
            n = leader[n]
        return n

    slides: list[Node] = []
    for d in drafts:
        images = [n for n in (d.node, *d.reads.values()) if n in temps and len(n.shape) == 4]
        for n in images:
            leader.setdefault(n, n)
            leader[find(n)] = find(images[0])
        if images and any(n.op is GraphOp.WINDOW and cast(Any, n.arg)[1] > 1 for n in d.inlined):
            slides.append(images[0])
    chosen = {find(n) for n in slides}
    return [n for n in leader if find(n) in chosen]


def temp_layouts(drafts: Iterable[Draft], temps: set[Node], images: Images) -> dict[Node, Layout]:
    """The layouts of ``temps`` (those that are not row-major)."""
    found = {n: images.layout(n.shape) for n in image_nodes(drafts, temps)}
    return {n: layout for n, layout in found.items() if not layout.is_row_major}


def conversions(drafts: Iterable[Draft], layouts: Mapping[Node, Layout]) -> int:
    """Number of kernels that write a 4-D tensor in another form than one that they read has."""
    count = 0
    for d in drafts:
        tensors = [
            n
            for n in (d.node, *d.reads.values())
            if len(n.shape) == 4 and n.op is not GraphOp.CONST
        ]
        count += len({_form(layouts.get(n)) for n in tensors}) > 1
    return count


def _form(layout: Layout | None) -> tuple[tuple[int, int], ...]:
    """Digits of a layout without their extents: equal for all layouts of one form."""
    if layout is None or layout.is_row_major:
        return ()
    return tuple((p.dim, p.step) for p in layout.parts)


_Made = tuple[Draft, Kernel, Places]

_Layouts = tuple[tuple[str, Layout], ...]

_Key = tuple[tuple[int, ...], tuple[tuple[Node, Layout], ...], frozenset[Node]]


def schedule(
    outputs: tuple[Node, ...],
    names: tuple[str, ...] = (),
    *,
    images: Images = LAST,
    toggles: Set[int] = frozenset(),
    view_bytes: int = VIEW_BYTES,
) -> LaunchPlan:
    """The kernels that compute ``outputs``, and their buffers.

    ``names`` are the outputs' names (default ``out0`` ...). ``images`` is the form of 4-D
    intermediates around convolutions and pooling. An output that is an input or a view is copied;
    one that is a constant is its buffer. ``toggles`` are positions in topological order of nodes at
    which the graph is cut otherwise than by the rules (``Drafts.toggled``). Views of buffers begin
    at multiples of ``view_bytes``. Raises ShapeError when two inputs share a name.
    """
    fusion = Fusion.of(outputs, names, images=images, view_bytes=view_bytes)
    return fusion.toggled(toggles).schedule()


@dataclass(frozen=True, slots=True)
class Fusion:
    """A graph cut into kernels: the drafts, the form of its images, how they are scheduled."""

    drafts: Drafts
    names: tuple[str, ...]
    images: Images = LAST
    view_bytes: int = VIEW_BYTES
    apart: frozenset[Node] = frozenset()
    """Nodes that stand first in kernels of siblings that are launched as their parts."""
    news: tuple[New, ...] = ()
    """Outputs that are written over inputs."""
    _made: dict[tuple[int, _Layouts], _Made] = field(default_factory=dict, repr=False)
    _launched: dict[_Key, tuple[tuple[Draft, ...], tuple[Draft, ...]]] = field(
        default_factory=dict, repr=False
    )
    """Drafts and those that are launched: holding the drafts keeps their ids."""
    _normal: dict[tuple[str, _Layouts], tuple[Kernel, Places]] = field(
        default_factory=dict, repr=False
    )
    """Canonical kernels by a draft's text: the layers of a model are drafts of few texts."""

    @staticmethod
    def of(
        outputs: tuple[Node, ...],
        names: tuple[str, ...] = (),
        *,
        images: Images = LAST,
        view_bytes: int = VIEW_BYTES,
        news: tuple[New, ...] = (),
        max_buffers: int = 0,
    ) -> Fusion:
        """The graph as the rules cut it; arguments and errors as in ``schedule``. A kernel has up
        to ``max_buffers`` parameters (zero: any).

        WITHIN nodes are left out: ``ir.rewrites.ranges.guarded`` makes outputs of them.
        """
        names = names or tuple(f"out{i}" for i in range(len(outputs)))
        if len(names) != len(outputs):
            raise ShapeError(
                f"schedule: {len(outputs)} outputs need as many names, got {len(names)}"
            )
        cut = Drafts.of(unchecked(outputs), max_buffers)
        return Fusion(cut, names, images, view_bytes, news=news)

    def toggled(self, toggles: Set[int]) -> Fusion:
        """The same graph, cut otherwise at these nodes.

        A toggle at ``place + 2 * len(order)`` launches the parts of the kernel of siblings whose
        first node is at ``place``.
        """
        count = len(self.drafts.order)
        beyond = (i - 2 * count for i in toggles if 2 * count <= i < 3 * count)
        found = frozenset(self.drafts.order[i] for i in beyond)
        drafts = self.drafts.toggled({i for i in toggles if i < 2 * count})
        same = drafts is self.drafts and found <= self.apart
        return self if same else replace(self, drafts=drafts, apart=self.apart | found)

    def storing(self, images: Images) -> Fusion:
        """The same graph, its images in this form."""
        return self if images == self.images else replace(self, images=images)

    @property
    def has_images(self) -> bool:
        """True if the form of images makes a difference."""
        return bool(image_nodes(self.drafts.sorted(), self._free()[0]))

    @property
    def conversions(self) -> int:
        """Kernels that read 4-D tensors in another form than the one that they write."""
        return conversions(self.drafts.sorted(), self.layouts())

    def layouts(self) -> dict[Node, Layout]:
        """The layouts of intermediates that are not row-major, or that a fence asks for."""
        free, asked = self._free()
        return temp_layouts(self.drafts.sorted(), free, self.images) | asked

    def _free(self) -> tuple[set[Node], dict[Node, Layout]]:
        """The intermediates that may have any layout, and those whose layout a fence asks for."""
        temps = self.drafts.drafts.keys() - set(self.drafts.targets)
        asked = {
            n: n.arg.layout for n in temps if isinstance(n.arg, Fence) and n.arg.layout is not None
        }
        return temps - asked.keys() - self._indices(), asked

    def _indices(self) -> set[Node]:
        """Tensors whose elements are indices: kernels read them row-major."""
        return {d.reads[name] for d in self.drafts.drafts.values() for name in d.looked_up}

    def launched(self) -> tuple[Draft, ...]:
        """The drafts in the order of their launches, siblings as one; made once."""
        layouts, parts = self.layouts(), tuple(self.drafts.sorted())
        key = tuple(map(id, parts)), tuple(layouts.items()), self.apart
        if key not in self._launched:
            news = {self.drafts.targets[place]: name for place, name in self.news}
            found = joined(self.drafts, lambda n: _form(layouts.get(n)), self.apart, news)
            self._launched[key] = parts, found
        return self._launched[key][1]

    def schedule(self) -> LaunchPlan:
        """The kernels and buffers, without copies of what lies in memory as it is read, and without
        launches whose result no kernel reads.
        """
        made = without_unread(without_copies(self.every_launch()))
        made.verify()
        return made

    def ordered(self, plan: LaunchPlan) -> LaunchPlan:
        """A schedule with its launches in an order that needs few bytes at a time.

        In a step of training slices of inputs are read where they lie, parts of a tensor are
        written where it lies, and some elementwise launches come twice.
        """
        if not self.news:
            return least_memory(plan)
        made = joined_parts(sliced(plan, self.view_bytes), self.view_bytes)
        return least_memory(recomputed(least_memory(made)))

    def as_run(self) -> LaunchPlan:
        """The schedule in its order, with new values in the memory of their inputs: what runs, but
        for variants.
        """
        made = self.ordered(self.schedule())
        return in_place(made, self.news, self.view_bytes) if self.news else made

    def every_launch(self) -> LaunchPlan:
        """The kernels and buffers. Launch ``i`` is of ``launched()[i]``."""
        return _Assembler(self).run()

    def kernel(self, d: Draft, layouts: dict[str, Layout]) -> tuple[Kernel, Places]:
        """The canonical kernel of a draft, and where each of its parameters is; made once."""
        key = (id(d), tuple(layouts.items()))
        found = self._made.get(key)
        if found is None:
            text = str(d.kernel), key[1]
            if text not in self._normal:
                self._normal[text] = normalized(d.kernel, layouts, self.view_bytes)
            kernel, places = self._normal[text]
            fence = cast(Fence | None, d.node.arg) if d.node.op is GraphOp.CONTIGUOUS else None
            fixed = "" if fence is None else fence.schedule
            kernel = kernel.named(kernel_name(d, kernel), kernel_origin(d), fixed)
            found = self._made[key] = (d, kernel, places)  # holding the draft keeps its id
        return found[1], found[2]


class _Assembler:
    """Gives buffers their numbers and kernels their final form."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion, self.names = fusion, fusion.names
        self.order, self.targets = fusion.drafts.order, fusion.drafts.targets
        self.drafts = fusion.launched()
        self.layouts = fusion.layouts()
        self.buffers: list[Buffer] = []
        self.inputs: set[str] = set()
        self.read: dict[Node, int] = {}
        """The buffer that holds a node for its readers."""
        self.written: dict[Node, int] = {}
        """The buffer that the draft of a node writes: another one where an input is copied to
        an output.
        """
        self.views: dict[tuple[int, int, Param], int] = {}
        """By buffer, first byte and what a kernel takes the part for."""

    def run(self) -> LaunchPlan:
        read = {s for d in self.drafts for s in d.reads.values()}
        read |= {n for n in self.targets if n.op is GraphOp.CONST and n.size}
        for op in (GraphOp.INPUT, GraphOp.CONST):
            for n in self.order:
                if n.op is op and (n in read or (op is GraphOp.INPUT and n.size)):
                    self._leaf(n)
        inputs = tuple(b.id for b in self.buffers if b.role == "input")
        names = dict(zip(reversed(self.targets), reversed(self.names), strict=True))
        for n in dict.fromkeys((*(n for d in self.drafts for n in d.nodes), *self.targets)):
            if n.op is GraphOp.CONST and n.size:
                self.written[n] = self.read[n]
                continue
            role: BufferRole = "output" if n in names else "temp"
            name = names.get(n, f"t{len(self.buffers)}")
            self.written[n] = self._buffer(n, role, name)
            if n.op not in (GraphOp.INPUT, GraphOp.CONST):
                self.read[n] = self.written[n]
        launches = tuple(self._launch(d) for d in self.drafts)
        outputs = tuple(self.written[t] for t in self.targets)
        return LaunchPlan(tuple(self.buffers), launches, inputs, outputs)

    def _leaf(self, n: Node) -> None:
        if n.op is GraphOp.CONST:
            data = cast(ConstData, n.arg)
            self.read[n] = self._buffer(n, "const", data.name or f"c{len(self.buffers)}", data)
            return
        name = cast(str, n.arg)
        if name in self.inputs:
            raise ShapeError(
                f"schedule: two inputs of different shape or dtype share the name {name!r}"
            )
        self.inputs.add(name)
        self.read[n] = self._buffer(n, "input", name)

    def _buffer(self, n: Node, role: BufferRole, name: str, data: ConstData | None = None) -> int:
        layout = self.layouts.get(n, None) or Layout.row_major(n.shape)
        place = len(self.buffers)
        self.buffers.append(Buffer(place, n.dtype, n.shape, layout, role, name, data, node=n))
        return self.buffers[-1].id

    def _launch(self, d: Draft) -> Launch:
        writes = d.writes
        nodes = {**writes, **d.reads}
        layouts = {p: self.layouts[n] for p, n in nodes.items() if n in self.layouts}
        kernel, places = self.fusion.kernel(d, layouts)
        args = tuple(
            self.written[writes[name]]
            if name in writes
            else self._view(self.read[d.reads[name]], p, start)
            for p, (name, start) in zip(kernel.params, places, strict=True)
        )
        return Launch(kernel, args, kernel.name, kernel.origin)

    def _view(self, buffer: int, p: Param, start: int) -> int:
        """The buffer that is the part of another one that a kernel reads; the whole one itself."""
        whole = self.buffers[buffer]
        if p.nbytes == whole.nbytes:
            return buffer
        key = buffer, start, replace(p, name="")
        if key not in self.views:
            number = self.views[key] = len(self.buffers)
            name = f"{whole.name}+{start}"
            self.buffers.append(
                Buffer(number, p.dtype, p.shape, p.layout, "view", name, None, buffer, start)
            )
        return self.views[key]


# ---- alternatives


ATTENTION = "attention"
"""The edge that makes attention of three kernels."""

APART = "apart"
"""The edge that launches the parts of a kernel of siblings."""

_COMPUTES = (GraphOp.MAP, GraphOp.CAST, GraphOp.REDUCE)
_VIEWS = (GraphOp.RESHAPE, GraphOp.PERMUTE)
_COPIES = (GraphOp.PAD, GraphOp.PERMUTE)
"""Views of a buffer that may be worth a copy: an image without masks, a matrix without strides."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A toggle of a region, and the positions of its node in every place where the region occurs.

    ``stored_bytes`` is the memory that it gives to the node in one place; 0 where it takes memory
    away.
    """

    name: str
    region: str
    stored_bytes: int
    places: tuple[int, ...]

    @property
    def key(self) -> str:
        """The region's key in the store: 32 hex digits of its text's SHA-256, as a kernel's."""
        return key_of(self.region)


@dataclass(frozen=True, slots=True)
class Alternative:
    """The change that an edge makes in its first place: kernels that go, those that come."""

    edge: Edge
    before: tuple[Kernel, ...]
    after: tuple[Kernel, ...]


@dataclass(slots=True)
class Alternatives:
    """Other ways to cut a graph into kernels, one edge at a time, equal ones together.

        region  the kernels of the rules' plan that a toggle touches, and how they are connected
        edge    a toggle in a region: "inline" takes the memory of its first kernel's output away,
                "store_exp_1f0c53ab" gives memory to the node whose expression has that hash
        places  where the region occurs: eight equal residual blocks are one edge with eight places

    "attention" takes the memory of a product's scores and of their softmax away, both at once;
    "apart" launches the parts of a kernel that stores several tensors.

    Listing edges looks at the rules' kernels only. The kernels of an alternative are drafted when
    it is asked for.

    Mutable: it keeps what it has looked up.
    """

    fusion: Fusion
    launches: dict[Node, Launch] = field(init=False)
    """The launch that writes a node: siblings have one."""
    siblings: dict[Node, tuple[Node, ...]] = field(init=False)
    """All nodes that the launch of a node writes."""
    users: dict[Node, list[Node]] = field(init=False)
    """The drafts that hold or read a node, by their own nodes, in order."""
    readers: dict[Node, list[Node]] = field(init=False)

    def __post_init__(self) -> None:
        made = zip(self.fusion.launched(), self.fusion.every_launch().launches, strict=True)
        self.launches, self.siblings, self.users = {}, {}, {}
        for d, launch in made:
            self.launches |= dict.fromkeys(d.nodes, launch)
            self.siblings |= dict.fromkeys(d.nodes, d.nodes)
        for d in self.fusion.drafts.sorted():
            for n in dict.fromkeys((*d.inlined, *d.reads.values())):
                self.users.setdefault(n, []).append(d.node)
        self.readers = {n: [] for n in self.fusion.drafts.order}
        for n in self.fusion.drafts.order:
            for s in dict.fromkeys(n.srcs):
                self.readers[s].append(n)

    def edges(self) -> tuple[Edge, ...]:
        """Every edge, in the order of its first place."""
        found: dict[tuple[str, str], Edge] = {}
        for place, name in self._toggles():
            n = self._node(place)
            region = self._region(self._touched(place))
            edge = found.get((region, name))
            places = (place,) if edge is None else (*edge.places, place)
            nbytes = 0 if n is None or n in self.launches else n.size * n.dtype.itemsize
            found[region, name] = Edge(name, region, nbytes, places)
        return tuple(found.values())

    def alternative(self, edge: Edge) -> Alternative | None:
        """The change that the edge makes; None where the same kernels run after it."""
        other = self.fusion.toggled({edge.places[0]})
        if other is self.fusion:
            return None
        before = {self.siblings[n]: x.kernel for n, x in self.launches.items()}
        after = {
            d.nodes: x.kernel
            for d, x in zip(other.launched(), other.every_launch().launches, strict=True)
        }
        gone = tuple(k for n, k in before.items() if n not in after or after[n].key != k.key)
        come = tuple(k for n, k in after.items() if n not in before or before[n].key != k.key)
        same = sorted(k.key for k in gone) == sorted(k.key for k in come)
        return None if same else Alternative(edge, gone, come)

    def toggles(self, edges: Iterable[Edge]) -> frozenset[int]:
        """The edges at all places, without those whose region was changed by one before."""
        changed: set[Node] = set()
        chosen: set[int] = set()
        for edge in edges:
            for place in edge.places:
                touched = self._touched(place)
                if changed.isdisjoint(touched):
                    changed.update(touched)
                    chosen.add(place)
        return frozenset(chosen)

    def region(self, edge: Edge) -> tuple[Launch, ...]:
        """The launches of the rules' plan that the edge touches, in its first place."""
        return self.every_launch(self._touched(edge.places[0]))

    def every_launch(self, nodes: Iterable[Node] | None = None) -> tuple[Launch, ...]:
        """The launches of the rules' plan that write some of these nodes, each once; all of them
        by default.
        """
        written = self.launches if nodes is None else nodes
        return tuple({self.siblings[n]: self.launches[n] for n in written}.values())

    def overlap(self, a: Edge, taken: Set[int]) -> bool:
        """True if a region of the edge holds a kernel that one of the toggles touches."""
        nodes = {n for place in taken for n in self._touched(place)}
        return any(not nodes.isdisjoint(self._touched(p)) for p in a.places)

    # ---- which nodes

    def _toggles(self) -> Iterable[tuple[int, str]]:
        cut = self.fusion.drafts
        for n, name in self._candidates():
            yield cut.place[n], name
        for place in cut.attentions():
            yield place, ATTENTION
        for d in self.fusion.launched():
            if d.siblings:
                yield cut.place[d.node] + 2 * len(cut.order), APART

    def _node(self, place: int) -> Node | None:
        """The node that a toggle gives or takes memory; None for attention and siblings."""
        order = self.fusion.drafts.order
        return order[place] if place < len(order) else None

    def _candidates(self) -> Iterable[tuple[Node, str]]:
        cut = self.fusion.drafts
        for d in cut.sorted():
            if d.node not in cut.fixed and d.node.srcs:
                yield d.node, "inline"
            labels: dict[Node, str] = {}
            for n in d.inlined:
                if n.op in _COMPUTES:
                    n, op = self._above(n, d), str(n.arg) if n.op is GraphOp.MAP else str(n.op)
                elif n.op in _COPIES and self._views_buffer(n):
                    op = str(n.op)
                else:
                    continue
                if (
                    n.size
                    and n is not d.node
                    and n not in cut.drafts
                    and self.users[n][0] is d.node
                ):
                    yield n, f"store_{op}_{_label(n, d, labels)[:8]}"

    def _above(self, n: Node, d: Draft) -> Node:
        """The last view that is all there is of ``n``: an image is stored as one, not as rows."""
        while len(self.readers[n]) == 1 and n is not d.node and self.readers[n][0].op in _VIEWS:
            n = self.readers[n][0]
        return n

    def _views_buffer(self, n: Node) -> bool:
        while n.op in MOVEMENT:
            n = n.srcs[0]
        return n.op is GraphOp.INPUT or n in self.fusion.drafts.drafts

    def _touched(self, place: int) -> tuple[Node, ...]:
        """The drafts that a toggle changes, by their nodes; more change where layouts do."""
        n, order = self._node(place), self.fusion.drafts.order
        if n is None and place >= 2 * len(order):
            return self.siblings[order[place - 2 * len(order)]]
        if n is None:
            product = order[place - len(order)]
            touched = (*self.fusion.drafts.scores_of(product), product)
        else:
            own = (n,) if n in self.launches else ()
            touched = (*own, *(u for u in self.users.get(n, ()) if u is not n))
        return tuple(dict.fromkeys(s for t in touched for s in self.siblings[t]))

    # ---- texts

    def _region(self, touched: tuple[Node, ...]) -> str:
        numbers: dict[int, int] = {}
        lines = ["region"]
        for launch in self.every_launch(touched):
            args = [str(numbers.setdefault(i, len(numbers))) for i in launch.args]
            lines.append(f"launch ({', '.join(args)})")
            lines.extend(launch.kernel.text.splitlines())
        return "\n".join(lines)


def _label(node: Node, d: Draft, known: dict[Node, str]) -> str:
    """A hash of what a node computes from what its kernel reads; the same in every process."""
    leaves = {n: name for name, n in d.reads.items()}
    stack = [node]
    while stack:
        n = stack[-1]
        missing = [s for s in n.srcs if s not in known] if n not in leaves else []
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if n not in known:
            words = (
                [leaves[n]]
                if n in leaves
                else [str(n.op), _words(n.arg), *(known[s] for s in n.srcs)]
            )
            text = " ".join((*words, str(n.shape), str(n.dtype)))
            known[n] = hashlib.sha256(text.encode()).hexdigest()
    return known[node]


def _words(arg: object) -> str:
    if isinstance(arg, Op):
        return str(arg)
    if isinstance(arg, tuple):
        return f"({' '.join(map(_words, arg))})"
    return str(arg)
