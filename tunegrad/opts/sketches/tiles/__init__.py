"""Tiles: vectors along a contiguous shared axis, a register tile of it and one more axis, blocks.

for k0:                            block of the longest reduce axis, partial sums in the output
  for other0, row0, lane0:         cache blocks, in one of several orders; one of them on threads
    for other1, lane1, row1:       register tiles
      for reduce axes:             operand with the unit stride innermost, perhaps unrolled
        row2 x lane2 accumulators of lane3 lanes

``sketch.py`` asks for the decisions. The best answers follow from the kind of kernel, an idea each:

    copies     no reduction: elementwise kernels, transposes                        copies.py
    sums       operands are read once: pooling, sums of columns                     sums.py
    products   an operand is read again for every row: GEMM, convolution            products.py

Ideas read the operands (``operands.py``) and the numbers of the target, and name no device.
"""

from .sketch import sketch_tiles

__all__ = ["sketch_tiles"]
