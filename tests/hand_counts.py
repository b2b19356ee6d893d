"""What the models of ``torch_zoo``, in full size, need at the least: kernels and bytes, counted by
hand, layer by layer.

One kernel is a convolution or product with all that is elementwise behind it (bias, folded batch
normalisation, activation, residual), a softmax, a layer norm, a pooling or a look-up. Each kernel
reads what it needs once and writes its result once; weights are read once. Scores of attention are
in memory: attention without them is a variant, and plans are counted before variants.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.torch_zoo import MobileNetV2

__all__ = ["HAND", "Hand"]

_F32, _I64 = 4, 8


@dataclass
class Hand:
    """A count that grows. Mutable."""

    kernels: int = 0
    nbytes: int = 0

    def kernel(self, *elements: int, extra_bytes: int = 0) -> None:
        """One kernel that touches tensors of so many f32 numbers."""
        self.kernels += 1
        self.nbytes += _F32 * sum(elements) + extra_bytes

    def product(self, rows: int, k: int, columns: int, *more: int, bias: bool = True) -> None:
        """``rows x k`` by ``k x columns``, with a bias, and what else is read or written."""
        self.kernel(rows * k, k * columns, columns * bias, rows * columns, *more)

    def conv(self, cin: int, image: int, size: int, cout: int, out: int, *more: int) -> None:
        """A convolution of square images, batch normalisation folded into weights and bias."""
        self.kernel(cin * image**2, cin * size**2 * cout, cout, cout * out**2, *more)


def _mobilenet() -> Hand:
    h, image, cin = Hand(), 112, 32
    h.conv(3, 224, 3, 32, 112)
    for widen, cout, count, stride in MobileNetV2.ROWS:
        for i in range(count):
            hidden, out = cin * widen, image // (stride if i == 0 else 1)
            if widen > 1:
                h.conv(cin, image, 1, hidden, image)
            h.kernel(hidden * image**2, hidden * 9, hidden, hidden * out**2)  # depthwise
            joins = cin == cout and out == image
            h.conv(hidden, out, 1, cout, out, *([cout * out**2] if joins else []))
            image, cin = out, cout
    h.conv(cin, image, 1, 1280, image)
    h.kernel(1280 * image**2, 1280)
    h.product(1, 1280, 1000)
    return h


def _unet() -> Hand:
    h, image, sizes = Hand(), 256, [32, 64, 128, 256, 512]

    def double(cin: int, cout: int) -> None:
        h.conv(cin, image, 3, cout, image)
        h.conv(cout, image, 3, cout, image)

    double(3, sizes[0])
    for cin, cout in itertools.pairwise(sizes):
        h.kernel(cin * image**2, cin * (image // 2) ** 2)  # max pooling
        image //= 2
        double(cin, cout)
    for cin, cout in zip(sizes[::-1], sizes[-2::-1], strict=False):
        h.kernel(cin * image**2, cin * cout * 4, cout, cout * (2 * image) ** 2)  # transposed
        image *= 2
        double(2 * cout, cout)  # both halves are read where they lie
    h.conv(32, image, 1, 2, image)
    return h


def _block(h: Hand, rows: int, size: int, heads: int, mask: int) -> None:
    """One block of a transformer: attention of one sequence, and two layers four times as wide."""
    x, scores = rows * size, heads * rows * rows
    h.kernel(x, 2 * size, x)  # layer norm
    h.product(rows, size, 3 * size)
    h.kernel(x, x, scores, mask)
    h.kernel(scores, scores)  # softmax
    h.kernel(scores, x, x)
    h.product(rows, size, size, x)
    h.kernel(x, 2 * size, x)
    h.product(rows, size, 4 * size)
    h.product(rows, 4 * size, size, x)


def _vit() -> Hand:
    h, size, rows = Hand(), 384, 197
    h.conv(3, 224, 16, size, 14)
    h.kernel(size * 196, size, size * rows, size * rows)  # the token, and positions
    for _ in range(12):
        _block(h, rows, size, 6, 0)
    h.kernel(size, 2 * size, size)
    h.product(1, size, 1000)
    return h


def _bert() -> Hand:
    h, size, rows = Hand(), 768, 128
    h.kernel(2 * rows * size, 2 * size, rows * size, extra_bytes=_I64 * rows)  # look-ups and norm
    for _ in range(6):
        _block(h, rows, size, 12, 2 * rows)  # a mask is i64
    h.product(1, size, size)
    return h


def _llama() -> Hand:
    h, size, kv, width, hidden, length = Hand(), 2048, 512, 64, 5632, 512
    cache, scores = kv * length, 32 * length
    h.kernel(size, size, size)  # norm
    for columns in (size, kv, kv):
        h.product(1, size, columns, bias=False)
    h.kernel(size, size, width // 2, extra_bytes=_I64)  # q is turned
    for turned in (width // 2, 0):
        h.kernel(kv, cache, cache, turned, extra_bytes=_I64)  # a cache with one place written
    h.kernel(size, cache, scores, extra_bytes=_I64)
    h.kernel(scores, scores)
    h.kernel(scores, cache, size)
    h.product(1, size, size, size, bias=False)
    h.kernel(size, size, size)
    h.product(1, size, hidden, bias=False)
    h.product(1, size, hidden, hidden, bias=False)
    h.product(1, hidden, size, size, bias=False)
    return h


def _lstm() -> Hand:
    h, hidden, steps = Hand(), 256, 64
    for size in (128, hidden):
        h.product(steps, size, 4 * hidden)
        h.kernel(4 * hidden, 4 * hidden, hidden, hidden)  # step 0 has no product: its state is 0
        for _ in range(steps - 1):
            h.product(1, hidden, 4 * hidden, 4 * hidden)
            h.kernel(4 * hidden, hidden, hidden, hidden)
    h.product(1, hidden, 10)
    return h


HAND = {
    "mobilenet_v2": _mobilenet,
    "unet": _unet,
    "vit_s": _vit,
    "bert_6": _bert,
    "llama_block": _llama,
    "lstm": _lstm,
}
