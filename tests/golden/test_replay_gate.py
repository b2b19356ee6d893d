"""The gate for refactors: what the compiler makes of the corpus is what the repository keeps."""

from __future__ import annotations

from tools.process_replay import GATE, differences, gate, read_gate


def test_code_of_every_case_is_what_the_repository_keeps() -> None:
    found = differences(read_gate(), gate())
    assert found == [], "where that is meant: python -m tools.process_replay gate --write"


def test_the_gate_has_five_hundred_cases_on_four_targets_and_is_small() -> None:
    cases = read_gate()
    assert len({c.name for c in cases}) == len(cases) >= 500
    assert {c.target for c in cases} == {"avx512", "sse", "gpu", "sm_90a"}
    assert all(c.program or c.illegal for c in cases)
    assert GATE.stat().st_size < 1 << 20


def test_the_gate_sees_another_text(monkeypatch) -> None:
    from tools import process_replay

    machine, render = process_replay._TARGETS["gpu"]
    monkeypatch.setitem(
        process_replay._TARGETS, "gpu", (machine, lambda p: render(p).replace("+", "-"))
    )
    kept = [c for c in read_gate() if c.name.startswith("row_sum.")]
    found = differences(kept, gate(("row_sum",)))
    assert found
    assert all(line.endswith(": text changed") and ".gpu." in line for line in found)
