"""Loaded models run the variants that are stored, strict ones never, and what no variant is falls
back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_decisions import decided

import tunegrad as tg
from tunegrad.config import Numerics
from tunegrad.db import open_store
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.errors import ConfigError, MissError
from tunegrad.frontend import Model, Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import parts_of, variants_of
from tunegrad.models import resnet18
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Measurement, Policy, Status, Trial

Array = np.ndarray[Any, np.dtype[np.float32]]
THREADS = 1
SEED = 3
RESNET = resnet18(image=32, classes=10)
RNG = np.random.default_rng(7)
X = RNG.standard_normal((1, 3, 32, 32), dtype=np.float32)
PIXELS = RNG.standard_normal((1, 9, 7, 6), dtype=np.float32)
W = RNG.standard_normal((8, 6, 3, 3), dtype=np.float32)


def small() -> Model:
    """One convolution, channels last: its exact variant is the direct one."""

    def function(x: Tensor) -> Tensor:
        return (
            x.permute(0, 3, 1, 2).conv2d(Tensor.constant(W), padding=1).relu().permute(0, 2, 3, 1)
        )

    return Model.of_function("small", function, [PIXELS])


def convolutions(model: Model) -> list[Kernel]:
    outputs = model.build(model.weights(seed=SEED))
    plan = schedule(fold_constants(tuple(t.node for t in outputs)))
    return [k for k, _ in plan.kernels().values() if len(variants_of(k)) > 1]


def chosen(path: Path, model: Model, variant: str, numerics: Numerics = "contract") -> Path:
    """A store that has decided on a variant for every 3x3 convolution of stride 1."""
    here = fingerprint(host_target(THREADS), numerics)
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        for k in convolutions(model):
            store.record_decision(decided("variant", k.text, variant, here))
    return path


def stored(path: Path, model: Model, actions: str, numerics: Numerics = "contract") -> Path:
    """A store whose winner of every 3x3 convolution of stride 1 is ``actions``."""
    here = fingerprint(host_target(THREADS), numerics)
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        for k in convolutions(model):
            ok = Measurement(Status.OK, (1e-6,) * 3)
            store.add(
                Trial(
                    k.key,
                    k.text,
                    here,
                    actions,
                    "",
                    SPACE_VERSION,
                    Policy(),
                    ok,
                    "s1",
                    "variant",
                    1.0,
                )
            )
    return path


def loaded(model: Model, **more: Any) -> tg.LoadedModel:
    return tg.load(model, threads=THREADS, seed=SEED, **more)


def winograds(model: tg.LoadedModel) -> list[str]:
    return [row.kernel for row in model.report() if "winograd" in row.kernel]


@pytest.fixture(scope="module")
def wanted() -> Array:
    outputs = RESNET.build(RESNET.weights(seed=SEED))
    (value,) = evaluate(tuple(t.node for t in outputs), {RESNET.inputs[0].name: X})
    return np.asarray(value, np.float32)


@pytest.mark.parametrize(("variant", "factor"), [("winograd2", 5e-6), ("winograd4", 2e-5)])
def test_a_network_of_winograd_convolutions_agrees_with_the_strict_one_and_its_graph(
    tmp_path: Path, wanted: Array, variant: str, factor: float
) -> None:
    store = chosen(tmp_path / "v.db", RESNET, variant)
    contract = loaded(RESNET, store=store)
    strict = loaded(RESNET, store=store, numerics="strict")
    assert len(winograds(contract)) >= 6
    assert winograds(strict) == []
    scale = factor * float(abs(wanted).max())
    results = contract(X), strict(X)
    np.testing.assert_allclose(results[0], wanted, rtol=0, atol=scale)
    np.testing.assert_allclose(results[1], wanted, rtol=0, atol=scale)
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=scale)
    assert (results[0] != results[1]).any(), "other kernels round otherwise"


def test_a_stored_direct_schedule_keeps_a_convolution_direct(tmp_path: Path) -> None:
    model = loaded(small(), store=stored(tmp_path / "d.db", small(), "tile(axis=a, size=4)"))
    assert [(r.outcome, r.actions) for r in model.report()] == [("hit", "tile(axis=a, size=4)")]


def test_winners_of_a_variant_s_kernels_are_found_by_their_own_keys(tmp_path: Path) -> None:
    path = chosen(tmp_path / "p.db", small(), "winograd2")
    (kernel,) = convolutions(small())
    here, ok = fingerprint(host_target(THREADS)), Measurement(Status.OK, (1e-6,) * 3)
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s2"):
        for k in parts_of(kernel, "winograd2"):
            store.add(
                Trial(k.key, k.text, here, "", "", SPACE_VERSION, Policy(), ok, "s2", "beam", 2.0)
            )
    assert [r.outcome for r in loaded(small(), store=path, on_miss="error").report()] == ["hit"] * 3


def test_a_variant_without_winners_for_its_kernels_is_a_miss(tmp_path: Path) -> None:
    path = chosen(tmp_path / "m.db", small(), "winograd2")
    assert [r.outcome for r in loaded(small(), store=path).report()] == ["miss"] * 3
    with pytest.raises(
        MissError,
        match=r"kernel winograd2 input 5x4x6 .*: no stored winner: kernel: not in the store",
    ):
        loaded(small(), store=path, on_miss="error")


def test_rows_of_another_setting_are_misses_that_name_it(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", small(), "tile(axis=a, size=4)")
    (row,) = loaded(small(), store=path, numerics="strict").report()
    assert (row.outcome, row.differs) == ("miss", ("numerics: strict != contract",))


def test_strict_refuses_a_variant_that_a_store_claims_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No tuner writes such a row; the decision is passed over, and a schedule of such a text does
    not parse.
    """
    path = chosen(tmp_path / "s.db", small(), "winograd4", "strict")
    assert winograds(loaded(small(), store=path, numerics="strict")) == []
    path = stored(tmp_path / "t.db", small(), "variant(winograd4)", "strict")
    with caplog.at_level(logging.WARNING):
        model = loaded(small(), store=path, numerics="strict")
    assert winograds(model) == []
    assert [(r.outcome, r.differs) for r in model.report()] == [
        ("miss", ("actions: the stored winner is not legal here",))
    ]
    assert "the stored schedule can not be used" in caplog.text


ROWS = RNG.standard_normal((1, 8, 9, 7), dtype=np.float32)
WIDE = RNG.standard_normal((8, 8, 3, 3), dtype=np.float32)


def rows() -> Model:
    """One convolution, its input and output row-major."""

    def function(x: Tensor) -> Tensor:
        return x.conv2d(Tensor.constant(WIDE), padding=1).relu()

    return Model.of_function("rows", function, [ROWS])


MADE = {
    "direct": ["conv3x3"],
    "channels_last": ["to", "conv3x3", "to"],
    "winograd4": ["winograd4", "winograd", "winograd4"],
    "channels_last_winograd4": ["to", "winograd4", "winograd", "winograd4", "to"],
}


@pytest.mark.parametrize("numerics", ["contract", "strict"])
@pytest.mark.parametrize("variant", MADE)
def test_a_row_major_convolution_runs_as_stored_and_strict_only_exactly(
    tmp_path: Path, variant: str, numerics: Numerics
) -> None:
    direct = loaded(
        rows(), store=chosen(tmp_path / "d.db", rows(), "direct", numerics), numerics=numerics
    )
    model = loaded(
        rows(), store=chosen(tmp_path / "v.db", rows(), variant, numerics), numerics=numerics
    )
    names = [row.kernel.split(" ")[0] for row in model.report()]
    exactly = variant in ("direct", "channels_last")
    if exactly or numerics == "contract":
        assert names == MADE[variant]
    else:
        assert names in (MADE["direct"], MADE["channels_last"])
    want = direct(ROWS)
    atol = (1e-6 if exactly or numerics == "strict" else 2e-5) * float(abs(want).max())
    np.testing.assert_allclose(model(ROWS), want, rtol=0, atol=atol)


GARBAGE: dict[str, Callable[[Path], str]] = {
    "a call": lambda mark: f"variant(__import__('pathlib').Path('{mark}').touch())",
    "an expression": lambda mark: f"__import__('pathlib').Path('{mark}').touch()",
    "a path": lambda mark: f"variant({mark})",
    "an unknown name": lambda _: "variant(winograd8)",
    "no name": lambda _: "variant()",
    "two": lambda _: "variant(winograd2) variant(winograd4)",
    "a variant and a schedule": lambda _: "variant(winograd2) tile(axis=a, size=4)",
    "direct": lambda _: "variant(direct)",
    "long": lambda _: f"variant({'w' * 100_000})",
    "deep": lambda _: "variant(" * 5000 + ")" * 5000,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_choice_of_garbage_runs_nothing_and_falls_back(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    path = chosen(tmp_path / "g.db", small(), GARBAGE[name](mark))
    model = loaded(small(), store=path)
    assert [r.key for r in model.report()] == [r.key for r in loaded(small(), store=False).report()]
    assert not mark.exists()


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("numerics", ["contract", "strict"])
def test_garbage_runs_nothing_and_falls_back(tmp_path: Path, name: str, numerics: Numerics) -> None:
    mark = tmp_path / "mark"
    path = stored(tmp_path / "g.db", small(), GARBAGE[name](mark), numerics)
    model = loaded(small(), store=path, numerics=numerics)
    np.testing.assert_allclose(
        model(PIXELS), loaded(small(), store=False, numerics="strict")(PIXELS), rtol=0, atol=1e-3
    )
    assert all(row.outcome == "miss" for row in model.report())
    assert not mark.exists()


def test_compiled_functions_take_the_setting() -> None:
    def function(x: Tensor) -> Tensor:
        return x.permute(0, 3, 1, 2).conv2d(Tensor.constant(W), padding=1).permute(0, 2, 3, 1)

    (row,) = tg.compile(function, PIXELS, store=False, threads=THREADS, numerics="strict").report()
    assert row.kernel.startswith("conv3x3")


def test_unknown_setting_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"^numerics 'fast' is unknown; valid: contract, strict, bf16-dot, tf32$"
    ):
        tg.load(small(), store=False, numerics="fast")  # type: ignore[arg-type]
