"""Windows in rows: convolutions of words as products of matrices, for tile registers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.graph_builders import run_schedule
from tests.interpreter import interpret, pack_buffers
from tests.tile_kernels import SERVER, buffers, conv, gemm, tiled, wanted
from tunegrad.devices.host.facts import AMX_INT8, declared
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.validate import validated
from tunegrad.ir.variants import exact, parts_of, rewrite, runs_on, variants_of
from tunegrad.opts import Space, kernel_flops_per_s
from tunegrad.pipeline import prepared
from tunegrad.planning.expected import expected

NAME = "windows"
BYTES = declared(
    replace(SERVER, features=(*SERVER.features, "+amx-int8", "+avx512vnni"),
            units=(*SERVER.units, *AMX_INT8))
)  # fmt: skip


def image(channels: int, filters: int, size: int, window: int, stride: int, padding: int) -> Tensor:
    weights = np.random.default_rng(0).standard_normal((filters, channels, window, window))
    x = Tensor.input("x", (1, channels, size, size))
    constant = Tensor.constant(weights.astype(np.float32))
    return x.conv2d(constant, stride=stride, padding=padding).relu()


def computed(kernel, arrays):
    """The output of a kernel's default schedule, by the interpreter."""
    program = Space(kernel, tiled(1)).lower(Space(kernel, tiled(1)).defaults()[0])
    out = kernel.outputs[0]
    made = pack_buffers(program, {"p0": np.zeros(out.size, out.dtype.numpy), **arrays})
    interpret(program, made)
    return made["p0"]


@pytest.mark.parametrize(
    ("size", "channels", "window"), [(7, 16, 3), (5, 2, 7), (6, 3, 3), (15, 2, 7), (16, 16, 3)]
)
def test_windows_in_rows_give_the_same_sums(size: int, channels: int, window: int) -> None:
    """Whole numbers are exact in any order."""
    kernel = conv(size, channels, 16, window)
    before, product = parts_of(kernel, NAME)
    program = Space(kernel, tiled(1)).lower(Space(kernel, tiled(1)).defaults()[0])
    drawn = buffers(program, kernel, integers=True)
    rows = computed(before, {"p1": drawn["p1"]})
    found = computed(product, {"p1": rows, "p2": drawn["p2"]})
    np.testing.assert_array_equal(found, wanted(kernel, drawn)[0])


def test_terms_are_whole_steps_of_a_tile_of_as_few_zeros_as_there_are() -> None:
    for channels, window, terms in ((16, 3, 144), (2, 7, 112), (3, 3, 48), (32, 1, None)):
        kernel = conv(7, channels, 16, window)
        found = NAME in variants_of(kernel)
        assert found == (terms is not None)
        if found:
            (k,) = parts_of(kernel, NAME)[1].reduces[0].axes
            assert k.extent == terms


def test_the_copy_of_an_image_is_of_columns_where_its_rows_fill_tiles() -> None:
    """Of a first convolution at any batch, four of its words for each; seven times as many where
    windows are whole.
    """
    for size, axes, words in ((16, 2, (16 + 6) * 16 * 16), (12, 1, 12 * 12 * 7 * 16)):
        before, product = parts_of(conv(size, 2, 16, 7), NAME)
        assert before.outputs[0].size == words
        assert len(product.reduces[0].axes) == axes
    (k,) = parts_of(conv(16, 2, 16, 3), NAME)[1].reduces[0].axes
    assert k.extent == 32  # of columns alone 3 x 48


def test_pixels_of_few_channels_are_copied_together() -> None:
    before, _ = parts_of(conv(9, 2, 16, 7), NAME)
    assert before.axes[-1].extent == 16  # words, of seven pixels and one of zeros


@pytest.mark.parametrize("rows_first", [False, True])
def test_an_image_of_one_row_of_words_has_no_channels_beside_them(rows_first: bool) -> None:
    """Its place in the row was looked for in front of its only index, an IndexError."""
    weights = np.random.default_rng(0).integers(-128, 128, (3, 2, 3, 7), np.int8)
    drawn = np.random.default_rng(1).integers(0, 256, (1, 1, 28, 2), np.uint8)
    x = Tensor.input("x", drawn.shape, "u8").permute(0, 3, 1, 2).cast("i32")
    weights, padding = (weights, (2, 4)) if rows_first else (weights.swapaxes(2, 3), (4, 2))
    x = x if rows_first else x.permute(0, 1, 3, 2)
    y = x.conv2d(Tensor.constant(weights).cast("i32"), padding=padding)
    outputs = prepared((y.node,), "contract", BYTES)
    plan = schedule(outputs)
    picks = {key: NAME for key, (k, _) in plan.kernels().items() if NAME in variants_of(k)}
    assert picks
    made = rewrite(plan, picks)
    validated(made, outputs)
    (found,), (want,) = (run_schedule(p, {"x": drawn}) for p in (made, plan))
    np.testing.assert_array_equal(found, want)


def test_plans_with_windows_in_rows_are_validated() -> None:
    """Words of bf16 that a variant copies had been cut to 32 bits in the field."""
    for shape in ((16, 16, 7, 3, 1, 1), (3, 16, 16, 7, 2, 3)):
        outputs = prepared((image(*shape).node,), "contract", SERVER, "bf16")
        plan = schedule(outputs)
        picks = {key: NAME for key, (k, _) in plan.kernels().items() if NAME in variants_of(k)}
        made = rewrite(plan, picks)
        assert len(made.launches) == len(plan.launches) + 1
        validated(made, outputs)


def test_windows_are_for_tile_registers_and_add_the_same_products() -> None:
    assert runs_on(NAME, SERVER)
    assert not runs_on(NAME, replace(SERVER, units=()))
    assert exact(NAME)


@pytest.mark.parametrize(("size", "variant"), [(7, NAME), (14, "direct"), (28, "direct")])
def test_rows_of_small_images_share_tiles(size: int, variant: str) -> None:
    """Of 16 rows 7 are less than half, 14 nearly all."""
    assert expected(conv(size, 128, 256), SERVER) == variant


def test_a_tile_takes_as_long_with_fewer_rows() -> None:
    full, half = (kernel_flops_per_s(gemm(m, 64, 64), SERVER) for m in (16, 8))
    assert half == full / 2


def test_rates_of_tiles_and_vectors_are_in_one_unit() -> None:
    """Operations a cycle: 256 words of bytes by tiles, 16 by each of two vectors; of bf16 pairs
    1,024 operations by tiles.
    """
    rates = BYTES.rates
    assert rates.speedup("m16n16k16_u8x4_i8x4_i32") == 8 * rates.speedup("dot4")
    assert rates.speedup("m16n16k16_bf16x2_f32") == 1024 / 64
    assert rates.speedup("bf16x2") < 1
