"""The tiles sketch: what a kernel is, and the numbers of its target, decide the schedule."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from kernel_corpus import NAMES, kernels_of

from benchmarks.hand_schedules import AVX512
from tunegrad.frontend import Tensor
from tunegrad.frontend.functional import conv2d, max_pool2d
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.program import Load, walk
from tunegrad.ir.target import Target
from tunegrad.ir.variants import parts_of
from tunegrad.opts import DefaultChooser, Space
from tunegrad.opts.decisions import Recorder
from tunegrad.opts.sketches.tiles import (
    Copies,
    Defaults,
    Products,
    Sums,
    axes_of,
    defaults_of,
    operands_of,
)
from tunegrad.render.llvm import render_llvm

SERVER = replace(AVX512, fmas_per_cycle=2, l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=480 << 20)
NARROW = replace(
    SERVER, vector_bytes=32, registers=16, features=("+avx2", "+fma"), l1_bytes=32 << 10
)
X = Tensor.input("x", (4096, 2048))


def kernel(x: Tensor) -> Kernel:
    return schedule((x.node,)).launches[-1].kernel


def defaults(x: Tensor, target: Target = AVX512) -> Defaults:
    made = kernel(x)
    lane, row = axes_of(made, target, Recorder(DefaultChooser()))
    return defaults_of(operands_of(made, target, lane, row))


def default(x: Tensor, target: Target) -> str:
    return Space(kernel(x), target).defaults()[0].text


def test_kernels_without_a_reduction_are_copies() -> None:
    for x in (X + 1.0, X.transpose(0, 1).contiguous(), X + Tensor.input("b", (2048,))):
        assert isinstance(defaults(x), Copies)


def test_reductions_that_read_everything_once_are_sums() -> None:
    pooled = max_pool2d(Tensor.input("p", (1, 8, 32, 32)), 2)
    for x in (X.sum(0), X.max(0), pooled):
        assert isinstance(defaults(x), Sums)


def test_reductions_that_read_an_operand_again_are_products() -> None:
    weights = Tensor.constant(np.ones((8, 16, 3, 3), np.float32))
    image = Tensor.input("i", (1, 16, 28, 28)).conv2d(weights)
    for x in (X @ Tensor.input("w", (2048, 64)), image):
        assert isinstance(defaults(x), Products)


def test_transpose_turns_runs_of_eight_and_elementwise_kernels_take_four_vectors() -> None:
    assert defaults(X.transpose(0, 1).contiguous()).tiles()[0] == (8, 1)
    assert defaults(X + 1.0).tiles()[0] == (1, 4)


def test_lanes_go_where_elements_lie_together() -> None:
    """Rows of a product do so only where they are those of a constant, which is packed."""

    def lanes(x: Tensor) -> set[str]:
        made = kernel(x)
        asked = {d.name: d.options for d in Space(made, SERVER).sample(DefaultChooser()).trace}
        return {a.name for a in made.axes} if asked.get("lane", 1) == len(made.axes) else set()

    a, b = Tensor.input("a", (128, 300)), Tensor.input("b", (300, 96))
    assert not lanes(a @ b)
    assert lanes(Tensor.constant(np.ones((128, 300), np.float32)) @ b)
    assert lanes(X.transpose(0, 1).contiguous())


def test_constant_that_lanes_would_gather_is_packed() -> None:
    """Whether another one is may be asked."""
    weights = np.ones((512, 384), np.float32)
    for w, asked in ((Tensor.constant(weights), True), (Tensor.constant(weights.T).t(), False)):
        chosen = Space(kernel(Tensor.input("x", (64, 512)) @ w), SERVER).defaults()[0]
        assert "at=load" in chosen.text
        assert any(d.name.startswith("stage.") and d.options == 2 for d in chosen.trace) == asked


@pytest.mark.parametrize("streams", [4, 8, 16])
def test_sum_of_columns_adds_as_many_rows_as_the_prefetcher_follows(streams: int) -> None:
    sizes = [0, 256, 128, 64, 32, 16, 8, 4]
    guess = defaults(X.sum(0), replace(AVX512, streams=streams)).reduce_block(sizes)
    assert sizes[guess] == streams


def test_rows_of_a_tile_are_no_more_than_the_target_reads_side_by_side() -> None:
    product = X @ Tensor.input("w", (2048, 2048))
    rows = [defaults(product, replace(SERVER, streams=n)).tiles()[0][0] for n in (2, 4, 8)]
    assert rows == sorted(set(rows))
    assert all(m <= n for m, n in zip(rows, (2, 4, 8), strict=True))


def test_tiles_read_fewer_vectors_where_the_second_cache_is_slower() -> None:
    product = Tensor.input("x", (128, 768)) @ Tensor.constant(np.ones((768, 768), np.float32))
    slow, fast = (
        defaults(product, replace(SERVER, l2_bytes_per_cycle=n)).tiles()[0] for n in (20, 64)
    )
    assert slow[1] < fast[1]


def test_one_multiply_add_a_cycle_asks_nothing_of_the_second_cache() -> None:
    product = Tensor.input("x", (128, 768)) @ Tensor.constant(np.ones((768, 768), np.float32))
    one = replace(SERVER, fmas_per_cycle=1)
    tiles = [defaults(product, replace(one, l2_bytes_per_cycle=n)).tiles() for n in (1, 20, 64)]
    assert tiles[0] == tiles[1] == tiles[2]


@pytest.mark.parametrize(("target", "unrolled"), [(NARROW, ["rb", "rc"]), (SERVER, ["rc"])])
def test_turns_that_compute_little_are_written_out_together(
    target: Target, unrolled: list[str]
) -> None:
    """Of a window over three channels side by side; wider vectors have tiles enough for a turn."""
    weights = Tensor.constant(np.ones((64, 3, 7, 7), np.float32))
    image = Tensor.input("x", (1, 64, 64, 3)).permute(0, 3, 1, 2)
    y = image.conv2d(weights, stride=2, padding=3).permute(0, 2, 3, 1).contiguous()
    assert re.findall(r"unroll\(axis=(\w+)\)", default(y, target)) == unrolled


def test_one_short_loop_is_not_asked_about() -> None:
    """Written out it is the same schedule by either answer."""
    x = Tensor.input("x", (64, 3)) @ Tensor.input("w", (3, 64))
    (made, *_) = Space(kernel(x), NARROW).defaults()
    assert "unroll(" in made.text
    assert not [d for d in made.trace if d.name == "last two"]


def test_two_units_have_twelve_sums_in_flight() -> None:
    product = Tensor.input("x", (512, 512)) @ Tensor.input("w", (512, 512))
    for fmas, least in ((1, 8), (2, 12)):
        rows, vectors = defaults(product, replace(NARROW, fmas_per_cycle=fmas)).tiles()[0]
        assert rows * vectors >= least


@pytest.mark.parametrize(
    ("rows", "columns", "target", "copied"),
    [
        (1024, 1024, NARROW, True),
        (1024, 1040, NARROW, False),  # rows that lie in different sets
        (24, 1024, NARROW, False),  # a copy is read too few times
        (1024, 1024, SERVER, False),  # a step of a larger tile hides the wait
    ],
)
def test_operands_whose_rows_are_pages_apart_are_copied(
    rows: int, columns: int, target: Target, copied: bool
) -> None:
    product = Tensor.input("x", (rows, 64)) @ Tensor.input("w", (64, columns))
    assert ("stage(param=p2" in default(product, target)) == copied


@pytest.mark.parametrize(
    ("columns", "l2", "l3", "fmas", "steps"),
    [
        (2048, 1 << 20, 1 << 28, 2, 64),
        (2048, 2 << 20, 1 << 28, 2, 128),
        (2048, 4 << 20, 1 << 28, 2, 256),
        (2048, 2 << 20, 1 << 28, 1, 256),
        (8192, 1 << 20, 1 << 28, 2, 256),
        (8192, 2 << 20, 1 << 28, 2, 512),
        (8192, 2 << 20, 1 << 25, 2, 1024),
        (8192, 1 << 20, 1 << 25, 1, 256),
    ],
)
def test_panels_are_as_long_as_caches_allow(
    columns: int, l2: int, l3: int, fmas: int, steps: int
) -> None:
    """A panel takes half of the second cache, and 64 steps at least. Where those leave it, a block
    of rows stays there instead: 2 MiB hold twice the steps. They are longest where partial sums
    leave the last cache, which goes to memory after each.

    Where a core starts one multiply-add in a cycle, the last cache keeps up.
    """
    x, w = Tensor.input("x", (1024, 768)), Tensor.input("w", (768, columns))
    sizes = [0, 1024, 512, 256, 128, 64]
    caches = replace(SERVER, l2_bytes=l2, l3_bytes=l3, l3_share_bytes=l3)
    target = replace(caches, fmas_per_cycle=fmas, threads=1)
    assert sizes[defaults(x @ w, target).reduce_block(sizes)] == steps


@pytest.mark.parametrize(
    ("rows", "columns", "steps"), [(1024, 256, 0), (1024, 512, 256), (64, 512, 256)]
)
def test_an_operand_of_more_than_half_of_the_second_cache_is_met_in_panels(
    rows: int, columns: int, steps: int
) -> None:
    x, w = Tensor.input("x", (rows, 1024)), Tensor.input("w", (1024, columns))
    target = replace(SERVER, l2_bytes=2 << 20, fmas_per_cycle=2, threads=1)
    sizes = [0, 512, 256, 128, 64]
    assert sizes[defaults(x @ w, target).reduce_block(sizes)] == steps


@pytest.mark.parametrize(
    ("threads", "l2", "vectors"),
    [(1, 1 << 21, 3), (2, 1 << 21, 2), (2, 3 << 20, 4)],
)
def test_tiles_split_evenly_over_threads_and_their_panel_stays_in_the_second_cache(
    threads: int, l2: int, vectors: int
) -> None:
    """Of 512 channels, 11 panels of three vectors are no even work for two; four take 1.1 MiB: more
    than half of a cache of two.
    """
    w = Tensor.constant(np.ones((512, 512, 3, 3), np.float32))
    image = Tensor.input("x", (1, 14, 14, 512)).permute(0, 3, 1, 2)
    y = image.conv2d(w, stride=2, padding=1).permute(0, 2, 3, 1).contiguous()
    target = replace(SERVER, l2_bytes=l2, threads=threads)
    assert defaults(y, target).tiles()[0][1] == vectors


@pytest.mark.parametrize(
    ("registers", "tile"),
    [(32, (6, 4)), (32, (8, 3)), (32, (14, 2)), (16, (6, 2)), (16, (4, 3))],
)
def test_steps_of_a_product_are_written_out(registers: int, tile: tuple[int, int]) -> None:
    product = X @ Tensor.input("w", (2048, 512))
    assert defaults(product, replace(SERVER, registers=registers)).unroll(tile, 2048) == 4
    assert defaults(product, replace(SERVER, registers=registers)).unroll(tile, 2047) == 1
    assert defaults(product, AVX512).unroll(tile, 2048) == 1


def test_tile_has_few_instructions_where_two_multiply_adds_start() -> None:
    """6 x 4 has 35 for 24 multiply-adds, 14 x 2 has 48 for 28."""
    product = Tensor.input("x", (784, 512)) @ Tensor.constant(np.ones((512, 256), np.float32))
    assert defaults(product, SERVER).tiles()[0] == (6, 4)


def test_padded_image_is_copied_where_taps_are_many_and_two_multiply_adds_start() -> None:
    def made(taps: int, stride: int, target: Target) -> Defaults:
        w = Tensor.constant(np.ones((128, 128, taps, taps), np.float32))
        image = Tensor.input("x", (1, 30, 30, 128)).permute(0, 3, 1, 2)
        y = image.conv2d(w, stride=stride, padding=1)
        return defaults(y.permute(0, 2, 3, 1).contiguous(), target)

    assert made(5, 1, replace(SERVER, threads=1)).pads
    assert not made(5, 1, replace(SERVER, threads=2)).pads  # one would copy, and the other wait
    assert not made(5, 1, AVX512).pads
    for stride in (1, 2):
        assert not made(3, stride, replace(SERVER, threads=1)).pads
        assert len(made(3, stride, SERVER).taps) == 1


@pytest.mark.parametrize(("side", "stride", "fold"), [(28, 2, 2), (24, 2, 1)])
def test_rows_of_an_image_share_a_tile_where_its_columns_leave_sums_short_of_twelve(
    side: int, stride: int, fold: int
) -> None:
    """Of 14 columns: 5 by 2 vectors are ten sums, twice 3 by 2 twelve. 12 columns are twice six."""
    w = Tensor.constant(np.ones((256, 128, 3, 3), np.float32))
    image = Tensor.input("x", (1, side, side, 128)).permute(0, 3, 1, 2)
    y = image.conv2d(w, stride=stride, padding=1).permute(0, 2, 3, 1).contiguous()
    target = replace(NARROW, threads=1)
    made = Space(kernel(y), target).defaults()[0]
    taken = {d.name: d.choice for d in made.trace}
    assert taken.get("fold", 0) == fold - 1
    Space(kernel(y), target).lower(made)


def test_cores_of_different_tables_get_different_schedules_of_one_kernel() -> None:
    """By data alone: the targets have the same name, label, architecture and features."""
    product = X @ Tensor.input("w", (2048, 2048))
    assert default(product, AVX512) != default(product, SERVER)


def test_best_guess_is_a_place_in_its_options() -> None:
    """Of every kernel of the corpus, on caches that hold nothing and on those that hold all."""
    small = replace(SERVER, l1_bytes=1 << 10, l2_bytes=2 << 10, l3_bytes=4 << 10)
    for target in (AVX512, SERVER, small, replace(small, threads=64)):
        for found in (k for name in NAMES for k in kernels_of(name)):
            assert Space(found, target).defaults()


@pytest.mark.parametrize(
    ("rows", "constant", "dtype", "threads", "vectors"),
    [
        (64, True, "f32", 1, True),
        (64, True, "f32", 2, False),  # half of the machine would wait
        (128, True, "f32", 2, True),
        (48, True, "f32", 1, False),  # three sums hide no latency
        (64, False, "f32", 1, False),  # a copy of the matrix for each call
        (64, True, "f16", 1, False),
    ],
)
def test_a_constant_matrix_times_a_vector_leaves_vectors_of_sums_where_it_has_rows_enough(
    rows: int, constant: bool, dtype: str, threads: int, vectors: bool
) -> None:
    numbers = np.random.default_rng(0).standard_normal((rows, 40)).astype(DTYPES[dtype].numpy)
    w = Tensor.constant(numbers) if constant else Tensor.input("w", (rows, 40), dtype)
    product = (w * Tensor.input("x", (40,), dtype)).sum(1).tanh()
    text = default(product, replace(AVX512, threads=threads))
    assert ("vectorize" in text and "stage(" in text) == vectors
    assert ("group(" in text) != vectors


TWO = replace(SERVER, threads=2)


def shared_out(kernel: Kernel) -> str:
    """The axis whose loop is on threads."""
    (loop,) = re.findall(r"thread\(axis=([a-z]+)\d*,", Space(kernel, TWO).defaults()[0].text)
    return str(loop)


def test_threads_keep_to_the_rows_that_they_made_from_kernel_to_kernel() -> None:
    """Winograd's of 56x56: tiles, products and results are shared out by rows of the image."""
    x = Tensor.input("x", (1, 56, 56, 64)).permute(0, 3, 1, 2)
    w = Tensor(np.ones((64, 64, 3, 3), np.float32))
    made = kernel(conv2d(x, w, padding=1).permute(0, 2, 3, 1).contiguous())
    *_, image, product, result = parts_of(made, "winograd4")
    assert [shared_out(k) for k in (image, product, result)] == ["a", "b", "a"]
    assert [a.extent for a in product.canonical().axes] == [36, 196, 64]


def test_threads_share_out_the_larger_operand_of_a_batch_of_products() -> None:
    a, b = Tensor.input("a", (36, 16, 256)), Tensor.input("b", (36, 256, 256))
    assert shared_out(kernel(a @ b)) == "a"
    a, b = Tensor.input("a", (36, 196, 64)), Tensor.input("b", (36, 64, 64))
    assert shared_out(kernel(a @ b)) == "b"
    a, b = Tensor.input("a", (12, 128, 64)), Tensor.input("b", (12, 64, 128))
    assert shared_out(kernel(a @ b)) == "a"


def test_threads_share_out_no_groups_of_channels_that_share_a_block() -> None:
    """17 blocks of 16 hold 4 groups of 68: nothing proves that no element is written twice."""
    made = parse_kernel(
        "kernel\n"
        "  param p0 f32[17,49,16] out row\n"
        "  param p1 f32[17,49,16] in row\n"
        "  param p2 f32[272,68] const row\n"
        "  axis a:4 b:68 c:49\n"
        "  v0 = add over ra:68 in f32: mul(p1[(68*a+ra)//16, c, (4*a+ra)%16], p2[68*a+b, ra])\n"
        "  store p0[(68*a+b)//16, c, (4*a+b)%16] = v0"
    )
    assert shared_out(made) == "c"
    Space(made, TWO).lower(Space(made, TWO).defaults()[0])


def test_threads_share_out_points_of_a_batch_that_are_small_or_that_copy_an_operand() -> None:
    """Else they would write to each other's pages, or wait for each other at each copy."""
    a, b = Tensor.input("a", (1024, 32, 8)), Tensor.input("b", (1024, 8, 16))
    assert shared_out(kernel(a @ b)) == "a"
    a, b = Tensor.input("a", (12, 256, 64)), Tensor.input("b", (12, 64, 64))
    assert shared_out(kernel(a @ b)) == "b"
    assert shared_out(kernel(a @ b.transpose(1, 2))) == "a"


@pytest.mark.parametrize(("columns", "asked"), [(64, False), (512, True)])
def test_packed_weights_that_take_much_of_a_cache_are_asked_for_a_page_ahead(
    columns: int, asked: bool
) -> None:
    weights = Tensor.constant(np.ones((1024, columns), np.float32))
    made = kernel(Tensor.input("x", (8, 1024)) @ weights)
    schedule = Space(made, SERVER).defaults()[0]
    assert ("distance=4096" in schedule.text) == asked
    code = render_llvm(Space(made, SERVER).lower(schedule), SERVER)
    assert ("call void @llvm.prefetch" in code) == asked, "of the copy, where the tiles read"


def test_an_operand_whose_numbers_each_meet_vectors_is_asked_for_a_line_ahead() -> None:
    """Once for each of its lines: a gradient's rows lie side by side, six in one or two lines."""
    x, g = Tensor.input("x", (1024, 256)), Tensor.input("g", (1024, 256))
    made = kernel(x.transpose(0, 1) @ g)
    schedule = Space(made, SERVER).defaults()[0]
    assert "prefetch(param=p1, distance=64)" in schedule.text
    body = walk(Space(made, SERVER).lower(schedule).body)
    loads = [i for i in body if isinstance(i, Load) and i.buffer == "p1"]
    asked = [i for i in loads if i.prefetch]
    assert {i.offset.const // 16 for i in asked} == {i.offset.const // 16 for i in loads}
    assert 4 * len(asked) < len(loads), "not for each number"
    assert "call void @llvm.prefetch" in render_llvm(Space(made, SERVER).lower(schedule), SERVER)


def test_no_line_is_asked_for_where_a_tile_has_no_load_to_spare_or_a_cache_holds_all() -> None:
    """Vectors of 32 bytes compute half as long on what they load."""
    x, g = Tensor.input("x", (1024, 256)), Tensor.input("g", (1024, 256))
    assert "prefetch" not in Space(kernel(x.transpose(0, 1) @ g), NARROW).defaults()[0].text
    few = Tensor.input("x", (32, 256)) @ Tensor.input("w", (256, 256))
    assert "prefetch" not in Space(kernel(few), SERVER).defaults()[0].text


@pytest.mark.parametrize(
    ("lanes", "steps", "copied"), [(512, 784, True), (512, 512, True), (512, 256, False)]
)
def test_each_thread_copies_panels_of_an_operand_that_takes_half_of_a_second_cache(
    lanes: int, steps: int, copied: bool
) -> None:
    """Of few rows, too: without, the cache did not hold what each tile of rows reads again."""
    x, w = Tensor.input("a", (128, steps)), Tensor.input("w", (steps, lanes))
    text = default(x @ w, TWO)
    assert ("stage(param=p2, at=b0," in text and "reorder(order=(b0, " in text) is copied
    assert ("stage(param=p2" in text) is copied
