"""``tunegrad explain`` as text and JSON: what the library's call is given, and what is made of its
answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tunegrad.cli.app import run
from tunegrad.config import TuneSettings
from tunegrad.db import open_store
from tunegrad.errors import ConfigError
from tunegrad.events import KernelStarted, Observer, Warned
from tunegrad.reports import (
    CodeFacts,
    ExplainReport,
    ExplainRow,
    ExplainStep,
    Promotion,
    StepTime,
    VariantOption,
    VariantRow,
)

STEPS = (
    ExplainStep(
        "tile(axis=a, size=4)",
        StepTime(90.0, off=0.02),
        1.25,
        StepTime(note="not legal: no axis a0"),
        None,
    ),
    ExplainStep(
        "vectorize(axis=a1)", StepTime(2.0, off=0.01), 45.0, StepTime(3000.0, over=True), 1500.0
    ),
)
CONV = ExplainRow(
    kernel="conv3x3", key="k1", uses=2, operations=("conv", "relu"), share=0.8, flops=200_000_000,
    executed_flops=220_000_000, unique_bytes=4_000_000, const_bytes=1_000_000, flops_ms=1.0,
    bytes_ms=0.02,
    level="cache", ms=2.0, stored_ms=1.9, outcome="hit", origin="beam", session="s1", differs=(),
    promotion=Promotion("mannwhitneyu", 0.0004, 3.0, 2.1, cold=True),
    actions="tile(axis=a, size=4) "
        "vectorize(axis=a1)",
    registers="a1:4v", unscheduled=StepTime(112.5, off=0.25), steps=STEPS,
    code=CodeFacts(512, 24, 14, 0, 0, 0, 40, 0, 519), hot_loop="\tvfmadd231ps\t%zmm0, %zmm1, "
        "%zmm2\n",
)  # fmt: skip
SUM = ExplainRow(
    kernel="sum", key="k2", uses=1, operations=(), share=0.2, flops=1_000, executed_flops=None,
    unique_bytes=8_000,
    const_bytes=0, flops_ms=0.001, bytes_ms=0.5, level="memory", ms=1.0, stored_ms=None,
    outcome="miss",
    origin="default", session="", differs=("arch: a != b",), promotion=None, actions="",
    registers="",
    note="its actions were not timed: the budget is spent",
)  # fmt: skip
VARIANT = VariantRow(
    "conv", "k0", 2, "winograd4", True,
    (VariantOption("direct", 1, 4.0, 5.0, 5.0), VariantOption("winograd4", 3, 1.0, 2.5, None)),
)  # fmt: skip
REPORT = ExplainReport(
    "net", "cpu", 2, "tuned.db", 234.0, 187.0, 35.0, (SUM, CONV), (VARIANT,), 9.0, 20.0, 21.0
)
SUMS = (
    "all kernels: 5.0000 ms; the sum of their bounds is 2.5000 ms, so they stand at 50.0 % of it; "
    "with every kernel direct it would be 9.0000 ms"
)
SOURCE = (
    "schedule: hit; from beam, session s1, 1.9000 ms then; "
    "promoted by mannwhitneyu, p = 0.0004: 3.0000 to 2.1000 ms cold"
)
CODE = (
    "hot loop: 40 instructions, 24 FMA of 512 bits, 14 loads, 0 stores, 0 spills, 0 calls; "
    "in all 519 instructions, 0 spills"
)


class Explainer:
    """Stands for ``explain``: keeps what it was given, says a few things, returns a report or
    raises.
    """

    def __init__(self, outcome: ExplainReport | Exception = REPORT) -> None:
        self.outcome = outcome
        self.given: dict[str, object] = {}

    def __call__(
        self, settings: TuneSettings, observers: Sequence[Observer], **given: object
    ) -> ExplainReport:
        self.given = {"settings": settings, **given}
        for observer in observers:
            for _ in range(2):
                observer.observe(KernelStarted("conv3x3", "k1", 2, 1, 1))
            observer.observe(Warned("1 of 2 kernels were not taken apart"))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[[Explainer], Explainer]:
    """Put an explainer in the library's place."""

    def put(explainer: Explainer) -> Explainer:
        module = ModuleType("tunegrad.tune")
        module.explain = explainer  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tunegrad.tune", module)
        return explainer

    return put


def text_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_explain_passes_on_what_the_command_line_says(
    library: Callable[[Explainer], Explainer],
) -> None:
    explainer = library(Explainer())
    words = "mlp --kernel conv3x3 --budget 2m --asm --dump forms --threads 1"
    words += " --numerics strict --dtype f16 --store t.db"
    assert run(["explain", *words.split()]) == 0
    given = explainer.given
    assert (given["kernel"], given["budget_s"], given["asm"]) == ("conv3x3", "2m", True)
    assert given["dump"] == Path("forms")
    settings = given["settings"]
    assert isinstance(settings, TuneSettings)
    assert (settings.threads, settings.numerics, settings.store) == (1, "strict", Path("t.db"))
    assert settings.dtype == "f16"
    assert given["store"] == settings.store


def test_table_has_the_heaviest_kernel_first_and_the_blocks_launch_order(
    library: Callable[[Explainer], Explainer], capsys: pytest.CaptureFixture[str]
) -> None:
    library(Explainer())
    run(["explain", "mlp"])
    lines = text_of(capsys)
    assert lines[0] == (
        "net on cpu, 2 threads, store tuned.db; measured: FMA peak 234.0 GFLOP/s, caches "
        "187.0 GB/s, memory 35.0 GB/s"
    )
    assert lines[2:8] == [
        "kernel   uses  share %  MFLOP    KB  bound by    bound ms      ms  % of bound  lost ms",
        "-------  ----  -------  -----  ----  ----------  --------  ------  ----------  -------",
        "conv3x3     2     80.0    200  4000  arithmetic    1.0000  2.0000        50.0   2.0000",
        "sum         1     20.0   0.00  8.00  traffic       0.5000  1.0000        50.0   0.5000",
        "",
        SUMS,
    ]
    assert lines.index("sum  k2") < lines.index("conv3x3  k1")


def test_block_says_what_is_needed_where_it_is_from_and_what_each_action_bought(
    library: Callable[[Explainer], Explainer], capsys: pytest.CaptureFixture[str]
) -> None:
    library(Explainer())
    run(["explain", "mlp"])
    lines = text_of(capsys)
    assert lines[lines.index("conv3x3  k1") + 1 :] == [
        "    made of conv, relu",
        "    needs 200 MFLOP, 1.10x executed; 4000 KB, 1000 KB of it constants; 50.00 FLOP/byte",
        (
            "    arithmetic 1.0000 ms, traffic to caches 0.0200 ms; takes 2.0000 ms, 50.0 % of "
            "the bound"
        ),
        f"    {SOURCE}",
        "    register tile a1:4v",
        f"    {CODE}",
        "    action                ms after it           gain (95 %)  ms without it  worth (95 %)",
        "    --------------------  -----------  --------------------  -------------  ------------",
        "    (no actions)                112.5",
        "    tile(axis=a, size=4)        90.00         no difference      not legal             -",
        "    vectorize(axis=a1)         2.0000  45.00x (43.66-46.36)       > 3000.0    > 1500.00x",
        "        vfmadd231ps %zmm0, %zmm1, %zmm2",
    ]


def test_explain_json_has_the_records_and_what_follows_from_them(
    library: Callable[[Explainer], Explainer], capsys: pytest.CaptureFixture[str]
) -> None:
    library(Explainer())
    assert run(["explain", "mlp", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["total_ms"], data["floor_ms"], data["pct_floor"], data["direct_floor_ms"]) == (
        5.0,
        2.5,
        50.0,
        9.0,
    )
    assert [(r["kernel"], r["bound"], r["bound_ms"], r["lost_ms"]) for r in data["rows"]] == [
        ("sum", "bytes", 0.5, 0.5), ("conv3x3", "flops", 1.0, 2.0),
    ]  # fmt: skip
    assert data["rows"][1]["steps"][1]["without"] == {
        "ms": 3000.0, "over": True, "note": "", "off": None,
    }  # fmt: skip


def test_unknown_kernel_is_one_line_and_exit_code_1(
    library: Callable[[Explainer], Explainer], capsys: pytest.CaptureFixture[str]
) -> None:
    library(Explainer(ConfigError("kernel 'x' is not one of model mlp; valid: 'a', 'b', or a key")))
    assert run(["explain", "mlp", "--kernel", "x"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err.splitlines()[-1]
        == "error: kernel 'x' is not one of model mlp; valid: 'a', 'b', or a key"
    )


def test_only_the_heaviest_kernels_have_a_block_where_top_says_so(
    library: Callable[[Explainer], Explainer], capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = replace(SUM, note="")
    explainer = library(Explainer(replace(REPORT, rows=(quiet, CONV), top=1)))
    assert run(["explain", "mlp", "--top", "1"]) == 0
    assert explainer.given["top"] == 1
    lines = text_of(capsys)
    assert "conv3x3  k1" in lines
    assert "sum  k2" not in lines
    assert any(line.startswith("sum ") for line in lines)  # it is still in the table


def test_forms_of_one_kernel_are_printed_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "one.toml"
    head = '[model]\nname = "one"\nbuilder = "tunegrad.models.mlp:mlp"\n'
    model.write_text(f"{head}[model.args]\nsizes = [16, 32]\n", encoding="utf-8")
    words = ["explain", str(model), "--threads", "1", "--store", str(tmp_path / "none.db")]
    begins = {
        "graph": "graph\n", "kernel": "kernel\n  param p0", "loops": "", "program": "program ",
        "source": "define ",
    }  # fmt: skip
    open_store(tmp_path / "none.db", "write").close()
    for stage, begin in begins.items():
        assert run([*words, "--stage", stage]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(begin)
        assert len(out.splitlines()) > 3
        assert err.startswith("matmul 32x16  ")
    assert run([*words, "--trace", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [s["name"] for s in steps if s["kind"] == "pass"] == [
        "loops", "lower", "races", "limit", "render",
    ]  # fmt: skip
    assert run([*words, "--trace"]) == 0
    assert capsys.readouterr().out.startswith("== pass loops: a new form\nfor a in 32:\n")


def test_a_form_needs_one_kernel_and_excludes_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "mlp", "--stage", "loops", "--trace"]) == 2
    assert "--stage and --trace exclude each other" in capsys.readouterr().err
    assert run(["explain", "mlp", "--stage", "loops"]) == 1
    assert "error: model mlp has 3 kernels; name one: 'matmul" in capsys.readouterr().err
