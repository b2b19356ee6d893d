"""The model of cycles: what it prefers, and that what it offers fits the device."""

import pytest

from tunegrad.devices.cuda.architectures import typical
from tunegrad.opts.sketches.cycles import Block, Problem, blocks_by_cycles

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a")


def ranked(arch, m, n, k, batch=1, slots=(4, 3, 2, 1)):
    target = typical(arch)
    unit = target.units[0]
    return blocks_by_cycles(Problem(batch, m, n, k, 2, 2), unit, target, slots), unit, target


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_large_product_has_blocks_that_share_what_they_load(arch):
    (best, *_), unit, _ = ranked(arch, 8192, 8192, 8192)
    assert min(best.extents(unit)) >= 128
    assert best.items(unit) >= 128
    assert best.slots >= 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_few_rows_have_few_rows_of_tiles_and_many_groups(arch):
    (best, *_), unit, target = ranked(arch, 16, 4096, 4096)
    rows, columns = best.extents(unit)
    assert rows == 16
    assert 4096 // columns >= target.threads // 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_small_product_is_shared_by_most_units(arch):
    (best, *_), unit, target = ranked(arch, 512, 512, 512)
    rows, columns = best.extents(unit)
    assert (512 // rows) * (512 // columns) >= target.threads // 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_batches_are_groups_too(arch):
    (alone, *_), unit, _ = ranked(arch, 256, 256, 512)
    (many, *_), _, _ = ranked(arch, 256, 256, 512, batch=256)
    area = [r * c for r, c in (alone.extents(unit), many.extents(unit))]
    assert area[1] > area[0]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_block_fits_the_device(arch):
    found, unit, target = ranked(arch, 4096, 4096, 4096)
    assert len(found) > 100
    assert len(set(found)) == len(found)
    for b in found:
        assert b.items(unit) <= target.max_local
        assert b.shared_bytes(unit, 2) <= target.shared_bytes
        assert b.registers(unit) <= target.regs_per_item
        assert b.registers(unit) * b.items(unit) <= target.unit_registers


def test_steps_in_flight_are_no_more_than_there_are():
    found, _, _ = ranked("sm_80", 256, 256, 32)
    assert {(b.depth, b.slots) for b in found} <= {(16, 1), (16, 2), (32, 1)}


def test_registers_are_sums_fragments_and_what_else_there_is():
    """Of 32 x 64 results a warp, 16 tiles: 64 sums, 8 registers of A and 16 of B."""
    unit = typical("sm_80").units[0]
    assert Block((2, 8), (4, 2), 32, 4).registers(unit) == 64 + 8 + 16 + 40


def test_more_in_flight_is_preferred_to_less_where_nothing_else_differs():
    found, _, _ = ranked("sm_80", 128, 128, 4096, slots=(2, 4))
    first = next(b for b in found if b.tiles == (2, 4) and b.warps == (2, 2) and b.depth == 32)
    assert first.slots == 4
