"""Winograd where weights are no constant: a launch more transforms them, also those that a gradient
reads mirrored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensor_values  # noqa: F401 - float32 throughout
from numpy.typing import NDArray
from stored_decisions import decided
from variant_builders import FACTORS, UNIT, constant, kernel_of, only, ran

import tunegrad as tg
from benchmarks.hand_schedules import AVX512
from tunegrad import devices
from tunegrad.db import open_store
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.errors import WrongPlan
from tunegrad.frontend import Tensor
from tunegrad.ir.expr import Expr, Load, Op, nodes, rebuild
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.index import as_index
from tunegrad.ir.kernel import Kernel, Store
from tunegrad.ir.target import Target
from tunegrad.ir.validate import validated, validation
from tunegrad.ir.variants import match_conv3x3, parts_of, rewrite, variants_of
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import allowed, expected, variant_s
from tunegrad.planning.expected import least_s

Array = NDArray[Any]
Image = tuple[int, int, int, int]

SERVER = replace(AVX512, threads=1)
TARGETS = SERVER, replace(AVX512, threads=16), devices.open("null:sm_90a").target
BOTH = ["winograd2", "winograd4"]
OUTPUTS = 5
IMAGES: dict[str, Image] = {
    "even": (2, 4, 6, 7),
    "of the window's extent": (1, 3, 3, 3),
    "of one tile": (3, 2, 4, 4),
    "not of tiles": (1, 6, 5, 9),
}


def given(image: Image) -> tuple[Tensor, Tensor]:
    return Tensor.input("x", image), Tensor.input("w", (OUTPUTS, image[1], 3, 3))


def forward(image: Image, padding: int) -> LaunchPlan:
    x, w = given(image)
    return only(x.conv2d(w, padding=padding).relu())


def of_data(image: Image, padding: int) -> LaunchPlan:
    """The gradient of the image, of weights that a gradient ``g`` is multiplied by."""
    x, w = given(image)
    n, _, *sides = image
    g = Tensor.input("g", (n, OUTPUTS, *(s + 2 * padding - 2 for s in sides)))
    slope = tg.grad(lambda x: (x.conv2d(w, padding=padding) * g).sum())(x)
    return schedule((slope.node,))


def drawn(plan: LaunchPlan) -> dict[str, Array]:
    rng = np.random.default_rng([len(plan.inputs), *plan.buffers[plan.outputs[0]].shape])
    named = sorted((plan.buffers[i] for i in plan.inputs), key=lambda b: b.name)
    return {b.name: rng.standard_normal(b.shape, dtype=np.float32) for b in named}


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize(
    ("name", "padding"),
    [*((name, 1) for name in IMAGES), ("even", 0), ("of one tile", 0), ("not of tiles", 0)],
)
@pytest.mark.parametrize("made", [forward, of_data], ids=["forward", "of data"])
def test_a_convolution_with_variable_weights_is_computed(
    made: Callable[[Image, int], LaunchPlan], name: str, padding: int, variant: str
) -> None:
    plan = made(IMAGES[name], padding)
    kernel = kernel_of(plan)
    parts = parts_of(kernel, variant)
    assert len(parts) == 4
    for part in parts:
        verify_kernel(part)
    rewritten = rewrite(plan, {kernel.key: variant})
    rewritten.verify()
    arrays = drawn(plan)
    error = ran(rewritten, arrays) - ran(plan, arrays, as_float64=True)
    terms = prod(a.extent for a in kernel.reduces[0].axes)
    assert abs(error).max() <= FACTORS[variant] * UNIT * terms


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize("made", [forward, of_data], ids=["forward", "of data"])
def test_its_plan_is_validated(made: Callable[[Image, int], LaunchPlan], variant: str) -> None:
    plan = made(IMAGES["even"], 1)
    assert not validation(rewrite(plan, {kernel_of(plan).key: variant})).left_out


def _mirrored(x: Expr) -> Expr:
    if isinstance(x, Load) and x.index[-1].is_const:
        return replace(x, index=(*x.index[:-1], 2 - x.index[-1]))
    return x


def _exchanged(x: Expr) -> Expr:
    if isinstance(x, Load) and x.index[-1].is_const:
        o, c, *window = x.index
        return replace(x, index=(o, c, *reversed(window)))
    return x


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize("fault", [_mirrored, _exchanged], ids=["mirrored", "exchanged"])
@pytest.mark.parametrize("made", [forward, of_data], ids=["forward", "of data"])
def test_weights_that_are_read_elsewhere_are_refused(
    made: Callable[[Image, int], LaunchPlan], fault: Callable[[Expr], Expr], variant: str
) -> None:
    plan = made(IMAGES["even"], 1)
    right = rewrite(plan, {kernel_of(plan).key: variant})
    first, *rest = right.launches
    assert first.name.startswith(f"{variant} weights")
    stages = tuple(replace(s, expr=rebuild(s.expr, fault)) for s in first.kernel.stages)
    assert all(isinstance(s, Store) for s in stages)
    wrong = replace(first, kernel=replace(first.kernel, stages=stages))
    with pytest.raises(WrongPlan, match="is not what the graph says"):
        validated(replace(right, launches=(wrong, *rest)))


def test_a_kernel_of_constant_weights_has_no_launch_more() -> None:
    x, _ = given(IMAGES["even"])
    kernel = kernel_of(only(x.conv2d(constant(OUTPUTS, 4, 3, 3), padding=1)))
    found = match_conv3x3(kernel)
    assert found is not None
    assert found.constant
    assert len(parts_of(kernel, "winograd4")) == 3


def test_each_weight_is_divided_once() -> None:
    """A window of 9 numbers has 36 places in U, of which 32 are thirds or ninths."""
    weights, *_ = parts_of(kernel_of(forward((1, 16, 8, 8), 1)), "winograd4")
    divided = {x for s in weights.stores for x in nodes(s.expr) if getattr(x, "op", "") is Op.DIV}
    assert len(divided) == 9


def test_places_of_transformed_weights_share_no_set_of_a_cache() -> None:
    """36 stores that are a power of two apart would lie in one set of eight lines."""
    x, w = Tensor.input("x", (1, 64, 8, 8)), Tensor.input("w", (64, 64, 3, 3))
    weights, *_ = parts_of(kernel_of(only(x.conv2d(w, padding=1))), "winograd4")
    (out,) = weights.outputs
    apart = out.layout.offset((as_index(1), as_index(0), as_index(0))).const
    assert 4 * apart % 4096 != 0


def test_weights_of_another_type_are_no_tiles() -> None:
    x, _ = given(IMAGES["even"])
    w = Tensor.input("w", (OUTPUTS, 4, 3, 3), "f16").cast("f32")
    assert not any("winograd" in v for v in variants_of(kernel_of(only(x.conv2d(w, padding=1)))))


def test_images_of_a_step_are_expected_to_be_tiles() -> None:
    """The launch that transforms weights counts: a small image's are not worth it."""
    large, small = (
        Tensor.input("x", (n, side, side, c)).permute(0, 3, 1, 2).conv2d(
            Tensor.input("w", (c, c, 3, 3)), padding=1
        ).permute(0, 2, 3, 1)
        for n, side, c in ((32, 16, 128), (1, 2, 256))
    )  # fmt: skip
    assert expected(kernel_of(only(large)), SERVER) in BOTH
    assert expected(kernel_of(only(small)), SERVER) == "direct"
    assert expected(kernel_of(only(large)), SERVER, "strict") == "direct"


def _gradient(g: Any, w: Any) -> Any:
    """The gradient of an image with channels last; it does not depend on the image."""
    at = tg.zeros(g.shape[0], w.shape[1], *g.shape[1:3])
    slope = tg.grad(lambda x: (x.conv2d(w, padding=1) * g.permute(0, 3, 1, 2)).sum())(at)
    return slope.permute(0, 2, 3, 1)


def _forward(x: Any, w: Any) -> Any:
    return x.permute(0, 3, 1, 2).conv2d(w, padding=1).permute(0, 2, 3, 1)


def test_large_tiles_are_for_constant_weights() -> None:
    """What F(4x4) rounds in a step takes another side of a relu."""
    x, w = Tensor.input("x", (2, 9, 7, 20)), Tensor.input("w", (20, 20, 3, 3))
    fixed = Tensor.constant(np.ones((20, 20, 3, 3), np.float32))
    of_step, gradient, fixed_weights = (
        set(allowed(kernel_of(only(y)), "contract")) & set(BOTH)
        for y in (_forward(x, w), _gradient(x, w), _forward(x, fixed))
    )
    assert of_step == gradient == {"winograd2"}
    assert fixed_weights == set(BOTH)
    last = x.permute(0, 3, 1, 2).conv2d(w, padding=1)
    assert not [v for v in allowed(kernel_of(only(last)), "contract") if v.endswith("winograd4")]


@pytest.mark.parametrize(
    ("function", "variant"),
    [(_forward, "winograd2"), (_gradient, "winograd2")],
)
def test_compiled_kernels_agree_with_the_interpreter(
    tmp_path: Path, function: Callable[[Any, Any], Any], variant: str
) -> None:
    rng, wide = np.random.default_rng(0), 20
    x = rng.standard_normal((2, 9, 7, wide), dtype=np.float32)
    w = rng.standard_normal((wide, wide, 3, 3), dtype=np.float32)
    plan = schedule((function(Tensor.input("x", x.shape), Tensor.input("w", w.shape)).node,))
    here = fingerprint(host_target(1))
    with open_store(tmp_path / "s.db", "write") as store, store.session("tune", 0, {}, "0", "s1"):
        store.record_decision(decided("variant", kernel_of(plan).text, variant, here))
    step = tg.compile(function, x, w, store=tmp_path / "s.db", threads=1)
    assert len(step.report()) == 4
    wanted = ran(plan, {"x": x, "w": w}, as_float64=True)
    assert abs(step(x, w) - wanted).max() <= FACTORS[variant] * UNIT * 9 * wide


SIZES: dict[str, tuple[Image, int]] = {
    "few channels": ((1, 3, 32, 24), 4),
    "many channels": ((1, 64, 7, 7), 64),
    "large": ((2, 32, 48, 40), 32),
    "a remainder": ((3, 5, 9, 31), 7),
}


def sized(name: str) -> Kernel:
    image, outputs = SIZES[name]
    x, w = Tensor.input("x", image), Tensor.input("w", (outputs, image[1], 3, 3))
    return kernel_of(only(x.conv2d(w, padding=1)))


@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "cpu16", "gpu"])
@pytest.mark.parametrize("name", SIZES)
def test_a_variant_takes_at_least_what_is_known_before_it_is_made(
    name: str, target: Target
) -> None:
    kernel = sized(name)
    found = [v for v in allowed(kernel, "contract") if v.startswith("winograd")]
    for v in (*found, *BOTH):
        assert 0.0 < least_s(kernel, v, target) <= variant_s(kernel, v, target)


def test_kernels_of_a_variant_that_can_not_pay_are_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[str]()

    def counted(kernel: Kernel, variant: str) -> tuple[Kernel, ...]:
        made.append(variant)
        return parts_of(kernel, variant)

    monkeypatch.setattr(sys.modules["tunegrad.planning.expected"], "parts_of", counted)
    assert expected(sized("few channels"), SERVER) == "direct"
    assert set(made) == {"direct"}
    assert least_s(sized("large"), "direct", SERVER) == 0.0
