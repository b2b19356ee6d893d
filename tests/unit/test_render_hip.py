"""HIP C++ has HIP's words where CUDA C++ has others, and no inline assembly."""

import pytest
from hand_programs import tiled_gemm

from benchmarks.hand_schedules import row_sum
from tests.gpu_hand import gemm, hgemm
from tests.hip import HIP, TARGETS, render_hip
from tests.product_kernels import KERNELS
from tunegrad.devices.cuda.architectures import typical
from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.opts import Space
from tunegrad.render.cuda import CUDA, render_cuda


def by_default(kernel: Kernel) -> Program:
    space = Space(kernel, TARGETS["gfx1100"])
    return space.lower(space.defaults()[0])


def test_hip_shares_memory_and_waits_as_cuda_does():
    text = render_hip(tiled_gemm())
    assert 'extern "C" __global__ void __launch_bounds__(64) kernel_tiled_gemm(' in text
    assert "__shared__ float b_" in text
    assert "__syncthreads();" in text


def test_hip_shuffles_have_no_mask_and_are_cudas_otherwise():
    program = by_default(row_sum(64, 4096))
    text, theirs = render_hip(program), render_cuda(program)
    assert "__shfl_xor(v" in text
    assert "_sync(" not in text
    assert text.count("__shfl_xor(") == theirs.count("__shfl_xor_sync(") > 0


@pytest.mark.parametrize("name", [n for n, t in DTYPES.items() if not t.is_word])
def test_hip_exchanges_a_value_of_any_type_as_4_or_8_bytes(name):
    c = CUDA.values[name]
    moved = HIP.shuffle(c, "v1", 4)
    narrow = DTYPES[name].itemsize < 4
    assert moved == (f"({c})__shfl_xor((unsigned int)v1, 4)" if narrow else "__shfl_xor(v1, 4)")


def test_hip_has_no_inline_assembly():
    assert not [name for name, text in HIP.helpers.items() if "asm" in text]


def test_hip_halves_are_converted_by_the_gpu_itself():
    text = render_hip(by_default(KERNELS["linear"]()))
    assert "(float)__builtin_bit_cast(_Float16, x)" in text
    assert "(_Float16)x" in text


def test_hip_refuses_what_it_has_no_text_for():
    program = Space(gemm(128, 128, 128), typical("sm_80")).lower(hgemm(2))
    with pytest.raises(InternalError, match="hip has no text for"):
        render_hip(program)
