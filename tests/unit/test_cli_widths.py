"""Every table of the commands stays one on terminals of 80 and of 120 columns, with rows as long as
real ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tunegrad.cli.output import wrapped
from tunegrad.cli.tables import (
    compiled_text,
    doctor_text,
    explain_text,
    history_text,
    printer,
    run_text,
    stats_text,
    tune_text,
    why_text,
)
from tunegrad.db import History, Stats, Why
from tunegrad.db.views.histories import DecisionRow, LatencyRow, MeasurementRow
from tunegrad.db.views.reasons import FieldRow, PromotionRow
from tunegrad.reports import (
    CompiledReport,
    CompiledRow,
    CompilerRow,
    DeviceRow,
    DoctorReport,
    ExplainReport,
    ExplainRow,
    ExplainStep,
    IsolationRow,
    KernelResources,
    LookupRow,
    Neighbour,
    PlaceRow,
    RunReport,
    StepTime,
    TuneReport,
    TuneRow,
    VariantOption,
    VariantRow,
)
from tunegrad.trial import Status

KERNEL = "winograd4 output of conv3x3 256->256 14x14 +add +relu"
ACTIONS = (
    "tile(axis=c, size=64) tile(axis=b, size=6) reorder(order=(a0, b0, c0, a1, b1, c1, ra, rb)) "
    "upcast(axis=b1) vectorize(axis=c1) thread(axis=a0, count=2)"
)
KEY, MACHINE, AT = "c599fee7d499bf7ceeb225c327a4dda7", "a262969212988880", 1_780_000_000.0

TUNED = TuneRow(
    KERNEL, KEY, 16, 0.282, 1.2474, 0.9994, 99.2, {"ok": 108, "wrong": 3, "crashed": 1},
    interval=(1.21, 1.29), layers=("layer1.0.conv1+bn1", "a", "b"),
)  # fmt: skip
TUNE = TuneReport(
    "resnet18", "cpu", 2, "portfolio", "tuned.db", "s", (TUNED, TUNED), 11.58, 10.13, False, 58.0,
    26.8, interval=(1.04, 1.12),
)  # fmt: skip

RUN = RunReport(
    "resnet18", "cpu", 2, "tuned.db", 10.13, 11.58, 60,
    (LookupRow(KERNEL, KEY, 16, "miss", ("arch: znver4 != sapphirerapids", "threads: 2 != 8")),),
    interval=(1.04, 1.12),
)  # fmt: skip

TIME = StepTime(14.382, off=0.01)
STEPS = (
    ExplainStep("reorder(order=(a0, b0, c0, a1, b1, c1, c2, ra, rb, rc))", TIME, 1.76,
        StepTime(note="not legal: x"), None),
    ExplainStep("vectorize(axis=c2)", TIME, 2.32, TIME, 8.32),
)  # fmt: skip
EXPLAINED = ExplainRow(
    kernel=KERNEL, key=KEY, uses=16, operations=(), share=0.282, flops=231_000_000,
    executed_flops=None, unique_bytes=10_500_000, const_bytes=0, flops_ms=0.9914, bytes_ms=0.0069,
    level="cache", ms=0.9994, stored_ms=0.9994, outcome="hit", origin="beam", session="s",
    differs=(), promotion=None, actions=ACTIONS, registers="", unscheduled=TIME, steps=STEPS,
    neighbours=(
        Neighbour("with stage(param=p2, at=load, layout=(c0, ra, rb, rc, c1, c2)) instead",
            "tried", 1.7016, 3.40, origin="portfolio:beam"),
    ),
)  # fmt: skip
OPTION = VariantOption("winograd4", 3, 0.4321, 0.6524, 0.7013)
EXPLAIN = ExplainReport(
    "resnet18", "cpu", 2, "tuned.db", 234.0, 187.0, 35.0, (EXPLAINED, EXPLAINED),
    (VariantRow("conv3x3 256->256 14x14 +add +relu", KEY, 3, "winograd4", True, (OPTION, OPTION)),),
    9.0, 20.0, 21.0,
)  # fmt: skip

COMPILED = CompiledReport("resnet18", "null:sm_90a", 9.0, (
    CompiledRow(KERNEL, KEY, 16, ACTIONS, 12544, 256, 0.31, KernelResources(168, 1024, 49152, 2)),
))  # fmt: skip

DOCTOR = DoctorReport(
    (DeviceRow("opencl", False, "pyopencl is not installed: " + "no reason " * 8),),
    (CompilerRow("llvmlite", "0.50.0, LLVM 22.1.0"),), (), 2, 234.0, 117.0, 35.0, 20.0,
    (IsolationRow("seccomp", True, "calls that reach files and sockets " * 3),),
    (PlaceRow("store", "/home/somebody/.local/share/tunegrad/store.db", "12 kernels, 4 MB"),), 2,
)  # fmt: skip

STATS = Stats(
    123_456, ((Status.OK, 123_000), (Status.WRONG, 456)), 0, 24, 2, 17, 48, 0, 31, 12, 5400.0,
    12_345_678, 5,
)  # fmt: skip

DECISION = DecisionRow(
    AT, MACHINE, "variant", "winograd4", True, "mannwhitneyu", 0.00012, 0.6524, 0.4321, Status.OK,
    "", False, "s",
)  # fmt: skip
LATENCY = LatencyRow(
    AT, "default", MACHINE, 10.13, 11.58, 1.14, (1.04, 1.24), 1.05, 200,
    {"compiler": "llvmlite-0.50.0 llvm-22.1.0 passes-5", "tunegrad": "0.1.0"}, {"load_1m": 1.68},
    True, "s",
)  # fmt: skip
MEASURED = MeasurementRow(
    AT, MACHINE, ACTIONS, Status.OK, 0.6524, 1.012, True, False, "portfolio:beam", "s", "",
    {"instructions": 815.0, "code_bytes": 4096.0}, {"sm_mhz": 1980.0, "power_w": 312.0},
)  # fmt: skip
HISTORIES = (
    History("resnet18", "", latencies=(LATENCY, LATENCY)),
    History(KERNEL, KEY, measurements=(MEASURED,), decisions=(DECISION,)),
)
WHY = Why(
    KERNEL, KEY, "", "miss", "arch differs",
    (FieldRow("features", "avx512f,avx512bw,avx512vl", "avx2,fma"),), None, "", "", "", (), None,
    (PromotionRow(ACTIONS, "mannwhitneyu", 0.00012, 0.6524, 0.4321, 200, True, False, "s", AT),),
    (), (), (DECISION,),
)  # fmt: skip

TEXTS: dict[str, tuple[Callable[[], str], int]] = {
    "tune": (lambda: tune_text(TUNE), 1),
    "run": (lambda: run_text(RUN), 1),
    "explain": (lambda: explain_text(EXPLAIN), 1 + 1 + 2 * 2),
    "compiled": (lambda: compiled_text(COMPILED), 1),
    "doctor": (lambda: doctor_text(DOCTOR), 5),
    "stats": (lambda: stats_text(Path("/home/somebody/" + "a_long_folder/" * 8), STATS), 1),
    "latencies": (lambda: history_text(HISTORIES[0]), 1),
    "measurements": (lambda: history_text(HISTORIES[1]), 2),
    "why": (lambda: why_text(WHY), 3),
}
RULE = re.compile(r" *-+( +-+)+")


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", TEXTS)
def test_table_of_a_command_stays_one_on_a_terminal(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, tables = TEXTS[name]
    monkeypatch.setattr(printer, "page_width", lambda: columns)
    lines = text().splitlines()
    assert sum(RULE.fullmatch(line) is not None for line in lines) == tables
    for at in (i for i, line in enumerate(lines) if RULE.fullmatch(line)):
        beside = lines[at - 1 : at + 2]
        assert max(map(len, beside)) <= columns
        assert wrapped("\n".join(beside), columns) == "\n".join(beside)


def test_table_of_a_tune_keeps_its_figures_at_80_and_all_at_120(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(printer, "page_width", lambda: 80)
    found = tune_text(TUNE)
    assert found.splitlines()[:5] == [
        "                                 share  default   tuned                     % of",
        "kernel                     uses      %       ms      ms        gain (95 %)  peak",
        "-------------------------- ----- ------ -------- ------- ------------------ ----",
        "winograd4 output of          16   28.2   1.2474  0.9994  1.25x (1.21-1.29)  99.2",
        "conv3x3 256->256 14x14",
    ]
    assert "candidates" not in found.split("\n\n")[0]
    monkeypatch.setattr(printer, "page_width", lambda: 120)
    widest = tune_text(TUNE).split("\n\n")[0]
    assert all(part in widest for part in ("candidates", "112 (1", "in the model", "layer1.0"))
