"""A GPU that is not there: tune compiles every kernel for it, runs nothing, and stores nothing."""

import json

import pytest

from tests.nvrtc_builds import require_nvrtc
from tunegrad.cli.app import run
from tunegrad.config import resolve_settings
from tunegrad.devices import Device, registry
from tunegrad.devices.cuda.device import AbsentGpu
from tunegrad.errors import CompileFailure
from tunegrad.tune import compile_models


@pytest.fixture(autouse=True)
def _nvrtc():
    require_nvrtc()


def test_tune_compiles_all_kernels_and_stores_nothing(tmp_path, capsys):
    store = tmp_path / "none.db"
    words = ["tune", "mlp", "--device", "null:sm_80", "--dtype", "f16", "--store", str(store)]
    assert run([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device"] == "null:sm_80"
    assert len(report["rows"]) == 3
    for row in report["rows"]:
        assert row["error"] == ""
        assert 0 < row["resources"]["registers"] <= 255
        assert row["resources"]["spilled_bytes"] == 0
        assert row["groups"] * row["items"] > 0
    assert not store.exists()
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "mlp f16 on null:sm_80: 3 kernels by their default schedules, 0 refused" in text


def test_convolutions_in_16_bits_are_for_matrix_units():
    (report,) = compile_models(resolve_settings("resnet18", device="null:sm_90a", dtype="f16"))
    convolutions = [r for r in report.rows if r.kernel.startswith("conv")]
    assert len(convolutions) > 10
    others = [r.kernel for r in convolutions if "tensorcore(" not in r.actions]
    assert others == ["conv7x7s2 3->64 112x112 +relu"], "three channels are no k of 16"
    assert {r.resources.spilled_bytes for r in report.rows if r.resources} == {0}


@pytest.mark.parametrize(
    ("dtype", "numerics"), [("f16", "contract"), ("bf16", "contract"), ("f32", "tf32")]
)
def test_all_products_of_an_encoder_are_for_matrix_units(dtype, numerics):
    """Those of its f32 input too, and that of what heads are joined to."""
    (report,) = compile_models(
        resolve_settings("encoder", device="null:sm_90a", dtype=dtype, numerics=numerics)
    )
    products = [r for r in report.rows if r.kernel.startswith("matmul")]
    assert len(products) == 6
    assert [r.kernel for r in products if "tensorcore(" not in r.actions] == []


@pytest.mark.slow
def test_resnet50_in_16_bits_compiles_with_all_but_its_first_convolution_on_matrix_units():
    (report,) = compile_models(resolve_settings("resnet50", device="null:sm_90a", dtype="f16"))
    assert report.failed == 0
    convolutions = [r for r in report.rows if r.kernel.startswith("conv")]
    assert len(convolutions) > 20
    others = [r.kernel for r in convolutions if "tensorcore(" not in r.actions]
    assert others == ["conv7x7s2 3->64 112x112 +relu"]
    assert {r.resources.spilled_bytes for r in report.rows if r.resources} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize(
    ("model", "dtype", "numerics"),
    [("resnet50[batch=32]", "f16", "contract"), ("encoder", "f16", "contract"),
     ("resnet50[batch=32]", "f32", "tf32"), ("encoder", "f32", "tf32")],
)  # fmt: skip
def test_no_default_schedule_spills(model, dtype, numerics, arch):
    (report,) = compile_models(
        resolve_settings(model, device=f"null:{arch}", dtype=dtype, numerics=numerics)
    )
    assert report.failed == 0
    assert [r.kernel for r in report.rows if r.resources and r.resources.spilled_bytes] == []
    products = [r for r in report.rows if r.kernel.startswith(("conv", "matmul"))]
    others = {r.kernel for r in products if "tensorcore(" not in r.actions}
    assert len(products) > 3
    assert others <= {"conv7x7s2 3->64 112x112 +relu"}, "three channels"


def test_a_kernel_that_is_refused_is_a_row_and_the_exit_code(monkeypatch, capsys):
    class Refusing(AbsentGpu):
        def inspect(self, lowered):
            raise CompileFailure("no such register")

    def refusing(part: str, threads: int | None) -> Device:
        return Refusing(registry._null(part, threads).target)

    monkeypatch.setitem(registry._FAMILIES, "null", refusing)
    assert run(["tune", "mlp", "--device", "null:sm_80"]) == 1
    found = capsys.readouterr().out
    assert "3 refused" in found
    assert "no such register" in found


@pytest.mark.parametrize("command", ["run", "explain"])
def test_nothing_runs_there(command, capsys):
    assert run([command, "mlp", "--device", "null:sm_80"]) == 1
    assert capsys.readouterr().err.strip() == (
        "error: device null:sm_80: it compiles and runs nothing"
    )
