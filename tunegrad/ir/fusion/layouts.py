"""Layouts of intermediate images: one form for all images of a graph.

    LAST         (N, H, W, C)         neighbouring channels are neighbouring addresses
    ROWS         (N, C, H, W)         as numpy has it
    blocked(16)  (N, C/16, H, W, 16)  the channels of one vector are neighbours, and pixels of one
                                      channel 16 apart

An image is a 4-D tensor that a convolution or pooling window slides over or produces. The form
spreads over 4-D tensors that meet an image in a kernel (residual adds), and to no others: attention
scores are 4-D too, and stay row-major. Where the block does not divide the channels, an image is
channels-last instead. The caller's inputs and outputs, and constants, always stay row-major. No
kernel only converts: a kernel that reads or writes two forms does so in place, and ``conversions``
counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from tunegrad.errors import InternalError

from ..graph import GraphOp, Node
from ..layout import Layout, Part
from .build import Draft

__all__ = ["LAST", "ROWS", "Images", "blocked", "conversions", "image_nodes", "temp_layouts"]

_CHANNELS_LAST = (0, 2, 3, 1)
_TEXT = re.compile(r"last|rows|blocked([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Images:
    """A form of images.

    ``block`` is how many channels are neighbours; 0 where the form has no blocks.
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
