"""A packed constant is what its definition says element by element, however it is copied."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import ALWAYS, Range, Valid, as_index, var
from tunegrad.ir.layout import Pack


def by_definition(pack: Pack, source: np.ndarray) -> np.ndarray:
    packed = []
    for point in product(*(range(e) for e in pack.extents)):
        env = dict(zip(pack.variables, point, strict=True))
        inside = not pack.valid.never and all(
            r.lo <= r.index.evaluate(env) < r.hi for r in pack.valid
        )
        packed.append(source[pack.offset.evaluate(env)] if inside else 0.0)
    return np.array(packed, source.dtype)


@st.composite
def tiled(draw):
    """Two axes of a matrix, each cut into tiles that may go past its end, in any order."""
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    variables, at, valid = [], [], []
    for axis, extent in (("r", rows), ("c", columns)):
        index, left = as_index(draw(st.integers(-2, 0))), extent
        for level in range(draw(st.integers(1, 3))):
            tile = draw(st.integers(1, left))
            count = -(-left // tile) + draw(st.integers(0, 1))
            variables.append((f"{axis}{level}", count))
            index = index + var(f"{axis}{level}", count) * tile
            left = tile
        variables.append((f"{axis}x", left))
        at.append(index + var(f"{axis}x", left))
        valid.append(Range(at[-1], 0, extent))
    order = draw(st.permutations(variables))
    turned = draw(st.booleans())
    offset = (as_index(rows - 1) - at[0] if turned else at[0]) * columns + at[1]
    names, extents = tuple(n for n, _ in order), tuple(e for _, e in order)
    return Pack("k", "w", F32, names, extents, offset, Valid(valid)), rows * columns


@given(tiled())
def test_pack_is_what_its_definition_says(case):
    pack, elements = case
    source = np.arange(1, elements + 1, dtype=np.float32)
    if prod(pack.extents) <= 4000:
        expected = by_definition(pack, source)
        assert np.array_equal(pack.run(source), expected)
        into = np.full(pack.size, np.nan, np.float32)
        assert pack.run(source, into) is into
        assert np.array_equal(into, expected)
        view = pack.view(source)
        assert view is None or np.array_equal(view.reshape(-1), expected)
        assert view is None or np.shares_memory(view, source) or not view.size


def test_pack_of_whole_tiles_is_a_view_and_one_with_padding_is_none():
    rows, columns = var("r0", 3) * 2 + var("r1", 2), var("c", 4)
    names, extents = ("r0", "c", "r1"), (3, 4, 2)
    source = np.arange(24, dtype=np.float32)
    whole = Pack("k", "w", F32, names, extents, rows * 4 + columns, ALWAYS)
    view = whole.view(source)
    assert view is not None
    assert (view.shape, view.flags.writeable) == (extents, False)
    assert np.array_equal(view.reshape(-1), whole.run(source))
    part = Pack("k", "w", F32, names, extents, rows * 4 + columns, Valid([Range(rows, 0, 5)]))
    assert part.view(source) is None
    backwards = Pack("k", "w", F32, names, extents, as_index(23) - rows * 4 - columns, ALWAYS)
    assert backwards.view(source) is None


def test_pack_that_reads_past_its_source_is_refused():
    pack = Pack("k", "w", F32, ("p",), (5,), var("p", 5), ALWAYS)
    with pytest.raises(InternalError, match="elements 0 to 4 of a constant of 4"):
        pack.run(np.zeros(4, np.float32))
    with pytest.raises(InternalError, match="elements 0 to 4 of a constant of 4"):
        pack.view(np.zeros(4, np.float32))
