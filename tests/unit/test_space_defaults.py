"""Default schedules are legal on every target and for every dtype, and keep their sums in registers
where they can.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_corpus import NAMES, kernels_of

from benchmarks.hand_schedules import AVX512, FULL, GPU, gemm
from tunegrad.devices.host.facts import AMX_BF16, AMX_INT8, declared
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import blocked, schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import MatrixUnit, Target
from tunegrad.opts import DefaultChooser, Schedule, Space
from tunegrad.planning import prepared

SSE = declared(replace(AVX512, arch="x86-64", vector_bytes=16, registers=16, threads=1))
AVX2 = declared(replace(AVX512, arch="znver3", vector_bytes=32, registers=16))
TARGETS = {
    "avx512": AVX512,
    "avx2": AVX2,
    "sse": SSE,
    "many": replace(AVX512, threads=64),
    "gpu": GPU,
}
# Every kernel is a large one here: partial sums, streaming stores, prefetches.
TARGETS["tiny caches"] = replace(AVX512, l1_bytes=1 << 10, l2_bytes=2 << 10, l3_bytes=4 << 10)


def halves(name: str) -> tuple[Kernel, ...]:
    """Sums whose output can not hold partial ones."""
    x = Tensor.input("x", (16, 19), name)
    nodes = (x.sum(1).node, x.sum(0).node, (x @ Tensor.input("w", (19, 24), name)).node)
    return tuple(launch.kernel for launch in schedule(nodes).launches)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_space_default_is_legal_for_every_kernel_of_the_corpus(target):
    for name in NAMES:
        for kernel in kernels_of(name):
            space = Space(kernel, target)
            for found in space.defaults():
                space.lower(found)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_space_default_is_legal_where_the_output_is_narrower_than_the_sum(target, dtype):
    for kernel in halves(dtype):
        space = Space(kernel, target)
        for found in space.defaults():
            space.lower(found)


LARGE = {
    "matmul": lambda x: x @ Tensor.input("w", (2048, 2048), "f32"),
    "row sum": lambda x: x.sum(1),
    "column sum": lambda x: x.sum(0),
    "transpose": lambda x: x.transpose(0, 1).contiguous(),
    "add": lambda x: x + 1.0,
    "softmax": lambda x: x.softmax(-1),
}


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("name", LARGE)
def test_space_default_is_legal_for_what_no_cache_holds(name, threads):
    (launch,) = schedule((LARGE[name](Tensor.input("x", (4096, 2048), "f32")).node,)).launches
    for target in (
        replace(AVX512, threads=threads),
        replace(AVX512, threads=threads, l3_bytes=4 << 20),
    ):
        space = Space(launch.kernel, target)
        space.lower(space.defaults()[0])


def shuffled() -> Tensor:
    """A transposed convolution without its border: ``w[.., (i+1) % 2, (j+1) % 2]`` by rows and
    columns, a copy of which would be 4,096 times as large as the constant.
    """
    w = Tensor.constant(np.zeros((64, 128), np.float32))
    y = Tensor.input("x", (1, 128, 128, 64), "f32") @ w
    y = y.reshape(1, 128, 128, 32, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(1, 32, 256, 256)
    return y[:, :, 1:-1, 1:-1]


CONSTANTS = {
    "a vocabulary": lambda: (
        Tensor.input("x", (1, 1024), "f32") @ Tensor.constant(np.zeros((1024, 20001), np.float32))
    ),
    "a vocabulary's rows": lambda: (
        Tensor.input("x", (8, 1024), "f32")
        @ Tensor.constant(np.zeros((20001, 1024), np.float32)).transpose(0, 1)
    ),
    "shuffled and cropped": shuffled,
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", CONSTANTS)
def test_space_default_is_legal_for_constants_of_any_size(name: str, target: Target) -> None:
    """80 MB; and small ones that loops read again and again."""
    for launch in schedule((CONSTANTS[name]().node,)).launches:
        space = Space(launch.kernel, target)
        for found in space.defaults():
            space.lower(found)


def factors(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> tuple[Tensor, Tensor]:
    """Inputs of a product, widened to what it is summed in."""
    wide = "i32" if "8" in dtype else "f32"
    return Tensor.input("x", a, dtype).cast(wide), Tensor.input("w", b, dtype).cast(wide)


def one_row(columns: int, filters: int, stride: int, dtype: str) -> Tensor:
    x, w = factors((2, 100, 1, columns), (filters, 100, 3, 3), dtype)
    return x.conv2d(w, stride=stride, padding=1)


def product(m: int, k: int, n: int, dtype: str) -> Tensor:
    x, w = factors((m, k), (k, n), dtype)
    return x @ w


TILES = declared(replace(AVX512, units=(AMX_BF16, *AMX_INT8)))
UNEVEN = {
    "rows of B past the end of n": (TILES, product(16, 31, 5, "bf16")),
    "five columns in tiles of sixteen, beside vectors of four": (
        replace(TILES, vector_bytes=16), product(16, 64, 5, "i8")
    ),
    "tiles of two heights": (TILES, product(51, 100, 9, "bf16")),
    "a window over one row, which is no dimension": (
        replace(SSE, threads=16), one_row(8, 16, 1, "f32")
    ),
    "a window over one row, in steps of two": (replace(AVX2, threads=1), one_row(4, 7, 2, "i8")),
    "a copy by eighty work-items": (GPU, product(64, 5, 17, "f32")),
}  # fmt: skip


@pytest.mark.parametrize("name", UNEVEN)
def test_space_default_is_legal_where_sizes_are_uneven(name: str) -> None:
    target, made = UNEVEN[name]
    for launch in schedule(prepared((made.node,), "bf16-dot", target)).launches:
        space = Space(launch.kernel, target)
        space.lower(space.defaults()[0])


def test_space_default_for_a_matrix_unit_splits_the_axis_that_it_can_be_padded_to() -> None:
    """Of two axes that are not fused, the last has a quarter of the unit's columns."""
    target = replace(GPU, units=(MatrixUnit((16, 8, 16), ("f32", "f32")),))
    x, w = factors((1, 64, 9, 4), (14, 64, 3, 3), "f32")
    (launch,) = schedule((x.conv2d(w, stride=2, padding=1).node,)).launches
    space = Space(launch.kernel, target)
    space.lower(space.defaults()[0])


@pytest.mark.parametrize("name", NAMES)
def test_space_default_of_a_small_kernel_has_no_partial_sums_in_memory(name):
    for kernel in kernels_of(name):
        space = Space(kernel, AVX512)
        for found in space.defaults():
            assert space.tree(found).partial == (), found.text


def test_space_default_of_a_large_gemm_blocks_the_reduction():
    space = Space(FULL["packed_gemm"].kernel, AVX512)
    assert [x.name for x in space.tree(space.defaults()[0]).partial] == ["k0"]


def test_space_default_is_what_the_default_chooser_gives():
    space = Space(gemm(64, 48, 32), AVX512)
    assert space.defaults()[0] == space.sample(DefaultChooser())
    assert Schedule.parse(space.defaults()[0].text).actions == space.defaults()[0].actions


# Two FMAs a cycle, a large second cache, and a last one that a whole socket shares.
SERVER = replace(AVX512, fmas_per_cycle=2, l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=480 << 20)


def default_text(x: Tensor, target: Target = SERVER) -> str:
    """The default schedule of the last kernel."""
    return Space(schedule((x.node,)).launches[-1].kernel, target).defaults()[0].text


def test_target_counts_no_more_of_a_shared_cache_than_it_can_expect():
    assert SERVER.cached_bytes == 64 << 20
    assert AVX512.cached_bytes == AVX512.l3_bytes < 64 << 20


def test_space_default_streams_past_a_cache_that_others_share():
    added = Tensor.input("x", (1 << 24,), "f32") + Tensor.input("y", (1 << 24,), "f32")
    assert "stream(param=" in default_text(added)
    assert "stream(param=" not in default_text(
        Tensor.input("x", (1 << 22,), "f32") + Tensor.input("y", (1 << 22,), "f32")
    )


def test_space_default_asks_a_page_ahead_where_the_core_would_not_reach_the_next_one():
    def large(f, n=1 << 25) -> str:
        return " ".join(
            Space(x.kernel, SERVER).defaults()[0].text
            for x in schedule((f(Tensor.input("x", (n,), "f32")).node,)).launches
        )

    ahead = "prefetch(param=p1, distance=4096)"
    assert ahead in large(lambda x: x.exp())
    assert ahead in large(lambda x: ((x * 2 + 1) * x + 3) * x + 5)
    assert ahead in large(lambda x: x.sum())
    assert "prefetch" not in large(lambda x: x * 2 + 1)
    assert "prefetch" not in large(lambda x: x.exp(), 1 << 22)
    assert "prefetch" not in large(lambda x: x.sum(), 1 << 22)


@pytest.mark.parametrize("axes", [17, 19, 40])
def test_space_default_splits_one_of_many_axes(axes):
    shape = (*(2,) * (axes - 1), 64)
    x = Tensor.input("x", shape, "f32").permute(axes - 1, *range(axes - 1))
    y = Tensor.input("y", shape, "f32").permute(axes - 1, *reversed(range(axes - 1)))
    (kernel,) = [k.kernel for k in schedule(((x + y).sum().node,)).launches]
    assert len(kernel.stages[0].axes) == axes
    space = Space(kernel, AVX2)
    assert all("tile(" in found.text for found in space.defaults())
    for found in space.defaults():
        space.lower(found)


def test_space_default_blocks_rows_only_where_a_panel_leaves_the_second_cache():
    def product(n: int, columns: int = 0) -> str:
        y = Tensor.input("y", (n, columns or n), "f32")
        return default_text(Tensor.input("x", (n, n), "f32") @ y)

    assert "at=a0, layout=(a1, a2, ra1, ra2))" in product(2048, 16384)
    assert "at=a0" not in product(4096)
    assert "tile(axis=ra, size=256)" in product(1024)
    assert "at=a0" not in product(1024)


def test_space_default_writes_the_taps_of_a_padded_window_out():
    def convolution(padding: int, stride: int, target: Target = SERVER) -> str:
        x = Tensor.input("x", (1, 30, 30, 128), "f32").permute(0, 3, 1, 2)
        w = Tensor.constant(np.ones((128, 128, 3, 3), np.float32))
        return default_text(
            x.conv2d(w, stride=stride, padding=padding).permute(0, 2, 3, 1).contiguous(), target
        )

    taps = "unroll(axis=rb)"
    assert taps in convolution(padding=1, stride=1)
    assert taps not in convolution(padding=0, stride=1)
    assert taps not in convolution(padding=1, stride=2)
    for stride in (1, 2):
        assert "stage(param=p1" not in convolution(1, stride, replace(SERVER, threads=1))
    assert taps not in convolution(padding=1, stride=1, target=AVX512)


def test_space_default_tile_reads_fewer_vectors_where_they_come_from_the_second_cache():
    def vectors(target: Target) -> str:
        product = Tensor.input("x", (128, 768), "f32") @ Tensor.constant(
            np.ones((768, 768), np.float32)
        )
        return default_text(product, target)

    assert "size=96)" in vectors(AVX512)
    assert "size=48)" in vectors(SERVER)


def convolution(target: Target, groups: int = 1) -> Kernel:
    """A convolution of 64 channels between two others, its images blocked by the lanes of a
    vector.
    """
    rng = np.random.default_rng(0)
    shapes = ((64, 3, 1, 1), (64, 64 // groups, 3, 3), (8, 64, 1, 1))
    first, middle, last = (
        Tensor.constant(rng.standard_normal(s, dtype=np.float32)) for s in shapes
    )
    x = (
        Tensor.input("x", (1, 3, 28, 28))
        .conv2d(first)
        .conv2d(middle, padding=1, groups=groups)
        .conv2d(last)
    )
    return schedule((x.node,), images=blocked(target.lanes(4))).launches[1].kernel


@pytest.mark.parametrize("name", ["avx512", "sse"])
def test_space_default_of_blocked_channels_holds_several_blocks_in_registers(name):
    kernel = convolution(TARGETS[name])
    lanes = TARGETS[name].lanes(4)
    assert kernel.outputs[0].shape == (64 // lanes, 28, 28, lanes)
    text = Space(kernel, TARGETS[name]).defaults()[0].text
    assert "upcast(axis=a" in text
    assert "upcast(axis=c" in text, "pixels, which meet the same weights"
    assert "vectorize(axis=d)" in text


def test_space_default_of_blocked_groups_holds_one_block_in_registers():
    text = Space(convolution(AVX512, groups=64), AVX512).defaults()[0].text
    assert "vectorize(axis=d)" in text
    assert "upcast(axis=a" not in text, "each block has inputs of its own"


def test_space_default_has_no_lanes_or_rows_of_two_where_longer_ones_are_near():
    """Outputs of a step up lie in pairs: 2 of 16 lanes would multiply."""
    x, w = Tensor.input("x", (1, 128, 32, 32)), np.zeros((128, 64, 2, 2), np.float32)
    up = x.conv_transpose2d(Tensor.constant(w), stride=2)
    (launch,) = schedule((up.node,)).launches
    short = {a.name for a in launch.kernel.axes if a.extent == 2}
    space = Space(launch.kernel, AVX512)
    tree = space.tree(space.defaults()[0])
    tile = [*tree.shared_registers, *(x for x in tree.own(0) if x.kind.is_register)]
    assert not short.intersection(a for x in tile for a in x.axes)
    lane = tree.lane_loop(0)
    assert lane is not None
    assert lane.extent == 16
    assert max(x.extent for x in tile if x is not lane) >= 4


def test_space_default_of_row_statistics_goes_along_the_rows():
    x = Tensor.input("x", (8, 1000))
    for found in (x.var(1), x.logsumexp(1)):
        (launch,) = schedule((found.node,)).launches
        actions = Space(launch.kernel, AVX512).defaults()[0].actions
        assert "group" in {a.name for a in actions}, launch.kernel
    (launch,) = schedule((x.logsumexp(0).node,)).launches
    actions = Space(launch.kernel, AVX512).defaults()[0].actions
    assert "group" not in {a.name for a in actions}
