"""What the compiler makes of default schedules that no matrix unit runs: multiply-adds, loads of
shared memory, wide loads. Skips without NVRTC.
"""

import pytest

from benchmarks.hand_schedules import row_sum
from tests.cover import across
from tests.gpu_hand import gemm
from tests.nvrtc_builds import clean_default, require_nvrtc
from tests.sass import instructions

ARCHITECTURES = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_120a")


@pytest.fixture(autouse=True, scope="module")
def _nvrtc():
    require_nvrtc()


@pytest.mark.parametrize(("arch", "transposed"), across(ARCHITECTURES, [False, True]))
def test_a_product_in_f32_loads_little_for_what_it_multiplies(arch, transposed, tmp_path):
    """An item holds 8 x 8, and has four terms at a time: 256 multiply-adds for some 20 loads, most
    of 16 bytes, where 4 x 4 took 48 to 56.
    """
    found = clean_default(arch, gemm(4096, 4096, 4096, "f32", transposed=transposed))
    counted = instructions(found.image, tmp_path)
    assert counted["FFMA"] % 256 == 0
    assert counted["FFMA"] > 9 * counted["LDS"] > 0
    assert counted["STG"] == 16  # of 16 bytes
    assert (counted["LDGSTS"] > 0) == (arch != "sm_75")


@pytest.mark.parametrize(("columns", "arch"), across([4, 8, 16, 28], ARCHITECTURES))
def test_short_rows_are_read_by_loads_of_16_bytes(columns, arch, tmp_path):
    found = clean_default(arch, row_sum(1 << 24, columns))
    counted = instructions(found.image, tmp_path)
    blocks = -(-columns // 16)
    assert (counted["LDG"], counted["FADD"]) == (columns // 4, columns + blocks * (blocks > 1))
