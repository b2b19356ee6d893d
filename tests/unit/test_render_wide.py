"""Scalars side by side become one access, where nothing between them could tell."""

from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Op
from tunegrad.ir.index import as_index, var
from tunegrad.ir.program import Barrier, Compute, Load, Number, Store, VType
from tunegrad.render.c_family import Joined, joined

ONE = VType(F32)
ROW = var("i", 8) * 4


def load(n, at, buffer="x", **more):
    return Load(n, buffer, ROW + at, ONE, **more)


def store(n, at, buffer="y"):
    return Store(buffer, ROW + at, n, ONE)


def widths(i):
    return [n for n in (4, 2) if i.offset.const % n == 0]


def shown(body):
    """Joined accesses as lists of values, others as they are."""
    made = []
    for i in joined(tuple(body), widths):
        if isinstance(i, Joined):
            made.append([part.id if isinstance(part, Load) else part.value for part in i.parts])
        else:
            made.append(i)
    return made


def test_loads_are_made_where_the_first_was():
    add = Compute(9, Op.ADD, (1, 1), ONE)
    body = [load(2, 1), add, load(1, 0), load(4, 3), load(3, 2)]
    assert shown(body) == [[1, 2, 3, 4], add]


def test_stores_are_made_where_the_last_was():
    add = Compute(9, Op.ADD, (1, 1), ONE)
    assert shown([store(2, 1), add, store(1, 0)]) == [add, [1, 2]]


def test_what_is_not_aligned_or_not_complete_stays_alone():
    assert shown([load(1, 1), load(2, 2)]) == [load(1, 1), load(2, 2)]
    assert shown([load(1, 0), load(2, 1), load(3, 2)]) == [[1, 2], load(3, 2)]


def test_masked_ones_and_equal_ones_stay_alone():
    masked = load(1, 0, mask=7)
    assert shown([masked, load(2, 1)]) == [masked, load(2, 1)]
    assert shown([load(1, 0), load(2, 0), load(3, 1)]) == [load(1, 0), load(2, 0), load(3, 1)]


def test_a_store_to_their_buffer_parts_loads():
    between = store(1, 8, "x")
    assert shown([load(1, 0), between, load(2, 1)]) == [load(1, 0), between, load(2, 1)]
    other = store(1, 0, "y")
    assert shown([load(1, 0), other, load(2, 1)]) == [[1, 2], other]


def test_a_load_of_their_buffer_parts_stores():
    between = load(5, 9, "y")
    assert shown([store(1, 0), between, store(2, 1)]) == [store(1, 0), between, store(2, 1)]


def test_another_store_to_their_buffer_parts_stores():
    between = Store("y", as_index(0), 1, ONE)
    assert shown([store(1, 0), between, store(2, 1)]) == [store(1, 0), between, store(2, 1)]


def test_a_barrier_parts_both():
    wait = Barrier()
    body = [load(1, 0), store(1, 0), wait, load(2, 1), store(2, 1)]
    assert shown(body) == body


def test_other_instructions_keep_their_places():
    number = Number(5, 1.0, ONE)
    body = [number, load(1, 0), load(2, 1), store(1, 0), store(2, 1)]
    assert shown(body) == [number, [1, 2], [1, 2]]
