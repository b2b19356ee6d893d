"""Which intermediate tensors are stored channels-last.

A 4-D tensor that a convolution or pooling window slides over or produces is stored (N, H, W, C): neighbouring
channels are neighbouring addresses, for the reduction of the next convolution and for vector lanes alike. The choice
spreads over 4-D tensors that meet in a kernel (residual adds), and to no others: attention scores are 4-D too, and
stay row-major.
The caller's inputs and outputs, and constants, always stay row-major.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ..graph import GraphOp, Node
from ..layout import Layout
from .build import Draft

__all__ = ["temp_layouts"]

CHANNELS_LAST = (0, 2, 3, 1)


def temp_layouts(drafts: Iterable[Draft], temps: set[Node], channels_last: bool) -> dict[Node, Layout]:
    """The layouts of ``temps`` (those that are not row-major)."""
    if not channels_last:
        return {}
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
    return {n: Layout.permuted(n.shape, CHANNELS_LAST) for n in leader if find(n) in chosen}
