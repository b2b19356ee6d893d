"""Peers beside a sweep: timed in processes of their own, stored, and no regressions of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunegrad.db import open_store
from tunegrad.errors import CandidateCrashed
from tunegrad.regress import SweepReport, SweepSettings, measured, regress, settings
from tunegrad.regress import sweep as running
from tunegrad.regress.settings import Peer

pytestmark = pytest.mark.timing


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers stand in the checkout, also where the package that is tested is installed."""
    monkeypatch.setattr(settings, "_ROOT", Path(__file__).parents[2])


def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str) -> SweepReport:
    monkeypatch.setattr(running, "busy", lambda: "")
    monkeypatch.setattr(measured, "lacking_cpus", lambda *_: 0.0)
    store = tmp_path / "store.db"
    return regress(SweepSettings(("mlp",), store=store, turns=6, threads=1, peers=(peer,)))


def test_a_peer_is_a_row_beside_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    report = swept(tmp_path, monkeypatch, "ort")
    assert report.failed == ()
    (row,) = [r for r in report.rows if r.schedule == "peer"]
    assert (row.series, row.nights, row.noise) == ("mlp: peer ort", 1, None)
    with open_store(tmp_path / "store.db") as store:
        (stored,) = store.latencies("mlp: peer ort")
    assert len(stored.samples_s) == 6
    assert all(s > 0 for s in stored.samples_s)


def test_a_peer_that_there_is_not_is_named_and_the_sweep_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = swept(tmp_path, monkeypatch, "nobody")
    (failed,) = report.failed
    assert (failed.model, failed.kernel) == ("mlp", "peer nobody")
    assert "peer 'nobody' is unknown; valid: ours, torch" in failed.why
    assert len(report.rows) == 5


def test_a_peer_has_no_model_that_is_not_in_its_suite() -> None:
    with pytest.raises(CandidateCrashed, match="'resnet81': the models suite has resnet18"):
        Peer("memcpy", "resnet81", 1)
