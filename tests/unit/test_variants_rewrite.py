"""Schedules with variants: right buffers and launches, the same ends, the same every time."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from variant_builders import FACTORS, Conv, bound, constant, kernel_of, only, ran

from tunegrad.errors import InternalError
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.variants import match_conv3x3, parts_of, rewrite
from tunegrad.ir.variants.winograd import transformed
from tunegrad.ir.verify.kernel import verify_kernel

BOTH = ["winograd2", "winograd4"]


def chain() -> LaunchPlan:
    """Four launches: the second and the third are one kernel with other weights; the last one's
    input is its residual.

    The first and the last one are kernels of their own, because the model's input and output keep
    their layout.
    """
    y = Tensor.input("x", (1, 6, 7, 7))
    for seed in range(3):
        y = y.conv2d(constant(6, 6, 3, 3, seed=seed), constant(6, seed=seed), padding=1).relu()
    z = (y.conv2d(constant(6, 6, 3, 3, seed=3), constant(6), padding=1) + y).relu()
    return schedule(fold_constants((z.node,)))


def all_as(plan: LaunchPlan, variant: str) -> LaunchPlan:
    return rewrite(plan, dict.fromkeys(plan.kernels(), variant))


@pytest.mark.parametrize("variant", BOTH)
def test_rewritten_schedule_verifies_and_keeps_its_ends(variant: str) -> None:
    plan = chain()
    made = all_as(plan, variant)
    made.verify()
    for before, after in ((plan.inputs, made.inputs), (plan.outputs, made.outputs)):
        assert [replace(plan.buffers[i], id=0) for i in before] == [
            replace(made.buffers[i], id=0) for i in after
        ]


@pytest.mark.parametrize("variant", BOTH)
def test_rewritten_schedule_computes_the_same(variant: str) -> None:
    plan = chain()
    x = {"x": np.random.default_rng(0).standard_normal((1, 6, 7, 7), dtype=np.float32)}
    want = ran(plan, x)
    np.testing.assert_allclose(
        ran(all_as(plan, variant), x), want, rtol=0, atol=1e-4 * abs(want).max()
    )


def test_three_launches_stand_in_place_of_one_and_name_their_origin() -> None:
    plan = chain()
    made = all_as(plan, "winograd2")
    assert len(made.launches) == 3 * len(plan.launches)
    assert [x.origin for x in made.launches] == [x.origin for x in plan.launches for _ in range(3)]
    assert [x.name for x in made.launches[:2]] == [
        "winograd2 input 4x4x6",
        "winograd product 16x16x6x6",
    ]


def test_weights_that_nothing_reads_any_more_are_dropped() -> None:
    plan = chain()
    made = all_as(plan, "winograd2")
    constants = [b for b in made.buffers if b.role == "const"]
    assert sorted(b.shape for b in constants if len(b.shape) == 3) == [(16, 6, 6)] * 4
    assert not [b for b in constants if len(b.shape) == 4]
    used = {i for x in made.launches for i in x.args}
    assert used == set(range(len(made.buffers)))


def test_weights_that_something_else_reads_are_kept() -> None:
    w = constant(4, 4, 3, 3)
    x = Tensor.input("x", (1, 4, 6, 6))
    outputs = (x.conv2d(w, padding=1), x.conv2d(w, stride=2, padding=1))
    plan = schedule(fold_constants(tuple(t.node for t in outputs)))
    made = all_as_matched(plan)
    made.verify()
    assert len(made.launches) == 4
    assert [b.shape for b in made.buffers if b.role == "const"] == [(4, 4, 3, 3), (16, 4, 4)]


def all_as_matched(plan: LaunchPlan) -> LaunchPlan:
    return rewrite(
        plan, {key: "winograd2" for key, (k, _) in plan.kernels().items() if match_conv3x3(k)}
    )


def test_an_input_that_is_also_the_residual_stays_an_argument() -> None:
    (*_, last) = all_as(chain(), "winograd4").launches
    assert len(last.args) == 4  # the output, M, the bias and the residual


@pytest.mark.parametrize("variant", [v for v in FACTORS if v != "direct"])
def test_positions_of_what_is_looked_up_beside_a_convolution_stay_arguments(variant: str) -> None:
    """A row of a table for each image, as of the time in a diffusion model."""
    rng = np.random.default_rng(0)
    x, table = Tensor.input("x", (3, 8, 6, 7)), Tensor.input("table", (9, 8))
    rows = table[Tensor.input("i", (3,), "i64")].reshape(3, 8, 1, 1)
    plan = only(x.conv2d(constant(8, 8, 3, 3), padding=1) + rows)
    made = rewrite(plan, {kernel_of(plan).key: variant})
    made.verify()
    for launch in made.launches:
        verify_kernel(launch.kernel)
    inputs = {
        "x": rng.standard_normal((3, 8, 6, 7), np.float32),
        "table": rng.standard_normal((9, 8), np.float32),
        "i": np.array([7, 0, 7]),
    }
    wanted = ran(plan, inputs, as_float64=True)
    assert np.abs(ran(made, inputs) - wanted).max() <= bound(Conv(channels=8), variant)


def test_equal_kernels_share_their_variant_s_kernels_and_not_their_weights() -> None:
    made = all_as(chain(), "winograd2")
    transforms, products = made.launches[0::3], made.launches[1::3]
    assert transforms[1].kernel is transforms[2].kernel
    assert len({x.kernel.key for x in transforms}) == 2
    assert len({x.kernel.key for x in products}) == 1
    assert len({x.args[2] for x in products}) == 4


def test_only_the_picked_kernel_is_replaced() -> None:
    plan = chain()
    keys = [x.kernel.key for x in plan.launches]
    made = rewrite(plan, {keys[1]: "winograd2", "unknown": "winograd2"})
    left = [x.kernel.key for x in made.launches]
    assert len(left) == 2 + 2 * 3
    assert (left[0], left[-1]) == (keys[0], keys[-1])


def test_direct_leaves_the_schedule_as_it_is() -> None:
    plan = chain()
    assert rewrite(plan, {}) is plan
    assert rewrite(plan, dict.fromkeys(plan.kernels(), "direct")) is plan


def test_rewriting_twice_gives_the_same() -> None:
    one, two = all_as(chain(), "winograd4"), all_as(chain(), "winograd4")
    assert str(one) == str(two)
    assert [x.kernel.key for x in one.launches] == [x.kernel.key for x in two.launches]
    data = [[b.data.array.tobytes() for b in s.buffers if b.data is not None] for s in (one, two)]
    assert data[0] == data[1]


def test_rewritten_schedule_survives_a_pickle() -> None:
    made = all_as(chain(), "winograd4")
    back = pickle.loads(pickle.dumps(made))
    back.verify()
    assert str(back) == str(made)
    assert [x.kernel.key for x in back.launches] == [x.kernel.key for x in made.launches]


@pytest.mark.parametrize("name", ["winograd3", "winograd", "im2col", "", "DIRECT"])
def test_an_unknown_variant_is_an_error_that_lists_the_known_ones(name: str) -> None:
    plan = Conv().plan()
    with pytest.raises(
        InternalError, match=f"has no variant '{name}'; it has direct, winograd2, winograd4"
    ):
        rewrite(plan, {kernel_of(plan).key: name})


def test_a_variant_of_a_product_is_an_error() -> None:
    kernel = kernel_of(only(Tensor.input("x", (4, 5)) @ constant(5, 6)))
    with pytest.raises(InternalError, match=r"has no variant 'winograd2'; it has direct$"):
        parts_of(kernel, "winograd2")


# ---- the parts


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize("size", [(2, 2), (4, 8), (5, 7)], ids=str)
@pytest.mark.parametrize("residual", [False, True])
def test_every_part_is_a_verified_kernel(
    variant: str, size: tuple[int, int], residual: bool
) -> None:
    for part in parts_of(
        Conv(height=size[0], width=size[1], residual=residual, batch=2).kernel(), variant
    ):
        verify_kernel(part)


@pytest.mark.parametrize("tile", [2, 4])
def test_only_outputs_past_the_image_are_masked(tile: int) -> None:
    """Tiles that fit need no condition; others have one on each dimension that they do not
    divide.
    """
    for height, width, wanted in ((8, 8, set()), (7, 8, {"b"}), (8, 7, {"c"}), (7, 7, {"b", "c"})):
        finish = parts_of(
            Conv(height=height, width=width, last=True, batch=2).kernel(), f"winograd{tile}"
        )[2]
        assert set().union(*(s.valid.names() for s in finish.stores)) == wanted
        assert len(finish.stores) == tile * tile


def test_outputs_that_no_tile_has_are_not_stored() -> None:
    finish = parts_of(Conv(height=2, width=3).kernel(), "winograd4")[2]
    assert len(finish.stores) == 2 * 3
    assert all(s.valid.always for s in finish.stores)


def test_products_are_fewer_by_the_stated_factor() -> None:
    kernel = Conv(channels=32, outputs=32, height=16, width=16).kernel()
    direct = parts_of(kernel, "direct")[0].reduces[0]
    steps = kernel.points * np.prod([a.extent for a in direct.axes])
    for variant, factor in (("winograd2", 2.25), ("winograd4", 4.0)):
        product = parts_of(kernel, variant)[1]
        assert steps / (product.points * product.reduces[0].axes[0].extent) == factor


@pytest.mark.parametrize("tile", [2, 4])
def test_transformed_weights_are_rounded_once(tile: int) -> None:
    """U = G W G^T in float64: exact for F(2x2) up to the rounding to f32."""
    kernel = Conv(channels=3, outputs=2).kernel()
    conv = match_conv3x3(kernel)
    assert conv is not None
    g = {
        2: np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
        4: np.array(
            [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]],
        ) / 24,
    }[tile]  # fmt: skip
    w = np.random.default_rng(0).standard_normal((2, 3, 3, 3), dtype=np.float32)
    u = transformed(w, conv.w_dims, tile)
    want = np.einsum("pr,ocrs,qs->pqco", g, w.astype(np.float64), g).reshape(-1, 3, 2)
    assert u.dtype == np.float32
    np.testing.assert_allclose(u, want, rtol=2.0**-23, atol=1e-12)


# ---- numbers


@pytest.mark.parametrize("variant", BOTH)
def test_small_whole_numbers_come_out_exact(variant: str) -> None:
    """Weights that are multiples of 576 make every transform's numbers whole: nothing rounds, in
    any order.
    """
    conv = Conv(channels=3, height=9, width=6, relu=False, bias=False)
    rng = np.random.default_rng(5)
    x = rng.integers(-4, 5, (1, 3, 9, 6)).astype(np.float32)
    w = 576.0 * rng.integers(-2, 3, (4, 3, 3, 3)).astype(np.float32)
    plan = only(Tensor.input("x", x.shape).conv2d(Tensor.constant(w), padding=conv.padding))
    got = ran(rewrite(plan, {kernel_of(plan).key: variant}), {"x": x})
    np.testing.assert_array_equal(got, ran(plan, {"x": x}, as_float64=True))


def test_infinity_in_the_input_stays_in_its_tiles() -> None:
    """docs/NUMERICS.md: the tiles that read it are NaN or infinite, the others as they were."""
    conv = Conv(height=16, width=16, relu=False)
    plan, given = conv.plan(), conv.inputs
    made = rewrite(plan, {kernel_of(plan).key: "winograd4"})
    clean = ran(made, given)
    given["x"][0, 0, 5, 6] = np.inf
    direct, got = ran(plan, given), ran(made, given)
    assert not np.isfinite(direct[..., 4:7, 5:8]).any()
    assert np.isfinite(direct).sum() == direct.size - 5 * 9
    assert np.isnan(got[..., 4:8, 4:8]).all()
    assert np.isfinite(got).sum() >= got.size - 5 * 4 * 16
    outside = np.isfinite(got)
    np.testing.assert_array_equal(got[outside], clean[outside])


@pytest.mark.parametrize("variant", ["direct", *BOTH])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("channels", [3, 16, 64])
def test_error_is_within_the_stated_bound(variant: str, seed: int, channels: int) -> None:
    conv = Conv(channels=channels, outputs=8, height=10, width=9, residual=True, seed=seed)
    plan = conv.plan()
    made = rewrite(plan, {kernel_of(plan).key: variant})
    error = np.abs(ran(made, conv.inputs) - ran(plan, conv.inputs, as_float64=True)).max()
    assert 0 < error <= bound(conv, variant)


def test_bound_of_the_larger_tile_is_not_idle() -> None:
    """F(4x4) breaks the smaller tile's bound: the two are told apart for a reason."""
    conv = Conv(channels=16, outputs=8, height=12, width=12)
    plan = conv.plan()
    made = rewrite(plan, {kernel_of(plan).key: "winograd4"})
    assert np.abs(ran(made, conv.inputs) - ran(plan, conv.inputs, as_float64=True)).max() > bound(
        conv, "winograd2"
    )


def test_weights_are_transformed_once_while_a_schedule_has_them() -> None:
    plan = chain()
    first, second = all_as(plan, "winograd4"), all_as(plan, "winograd4")
    arrays = [[b.data.array for b in made.buffers if b.data] for made in (first, second)]
    assert all(a is b for a, b in zip(*arrays, strict=True))


def test_weights_of_other_values_are_transformed_anew() -> None:
    plans = [schedule(fold_constants((_convolved(seed).node,))) for seed in (0, 1)]
    assert plans[0].kernels().keys() == plans[1].kernels().keys()
    a, b = (next(x.data.array for x in all_as(p, "winograd2").buffers if x.data) for p in plans)
    assert not np.array_equal(a, b)


def _convolved(seed: int) -> Tensor:
    return Tensor.input("x", (1, 6, 7, 7)).conv2d(constant(6, 6, 3, 3, seed=seed), padding=1)
