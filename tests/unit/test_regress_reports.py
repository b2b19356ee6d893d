"""What people and machines read of a sweep, which settings a file may have, and two runs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.simulated_nights import HERE, MODEL, World, busy, stored
from tunegrad.cli.app import run
from tunegrad.cli.tables import junit_text, sweep_text
from tunegrad.db import Latency, merge_stores, open_store
from tunegrad.errors import ConfigError, ModelError
from tunegrad.paired import unpaired_interval
from tunegrad.regress import (
    Failed,
    Finding,
    SeriesRow,
    SweepReport,
    SweepSettings,
    bless,
    compare,
    load_sweep,
)
from tunegrad.regress.changes import scatter
from tunegrad.regress.nights import DEFAULTS, SWEEP, changed_clocks, changed_fields, place_of
from tunegrad.regress.verdict import judge
from tunegrad.trial import Fingerprint

SLOWER = Finding(
    "regression", "cpu", "mlp: matmul", "k1", 1.1, (1.08, 1.12), "s1", 0.0, 3, 1.0, 1.1,
    ("compiler: 21 -> 22",),
)  # fmt: skip
ROWS = (
    SeriesRow("mlp: matmul", "k1", "cpu", 1.1, 2.0, 1.8, (1.7, 1.9), 30, 0.008, 1.03, "stored"),
    SeriesRow("mlp", "g", "cpu", 2.0, 2.0, 1.0, (0.99, 1.01), 30, 0.01, 1.04, ""),
)
REPORT = SweepReport(
    "s3", "nightly.toml", "a.db", "abc", 61.0, ROWS, (SLOWER,),
    (Failed("cpu", "encoder", "softmax", "CandidateCrashed: <signal 11>"),), ("before: busy",),
)  # fmt: skip


def test_text_says_what_got_slower_since_when_and_what_changed_with_it() -> None:
    text = sweep_text(REPORT)
    assert (
        "slower: mlp: matmul on cpu: 1.100x (1.080 to 1.120), 1.0000 to 1.1000 ms\n"
        "  since sweep s1, 1970-01-01 00:00, 3 nights\n"
        "  with it changed compiler: 21 -> 22"
    ) in text
    assert "failed: kernel softmax of encoder on cpu: CandidateCrashed: <signal 11>" in text
    assert text.splitlines()[-1].endswith("1 models, 1 kernels in 1:01: 1 slower; 1 failed")
    assert max(map(len, text.splitlines()[:4])) <= 80


def test_junit_has_a_case_a_series_and_fails_what_got_slower() -> None:
    suite = ET.fromstring(junit_text(REPORT).encode())
    assert dict(suite.attrib) == {
        "name": "tunegrad regress nightly.toml", "tests": "3", "failures": "1", "errors": "1",
        "time": "61.000",
    }  # fmt: skip
    failed = [c.get("name") for c in suite if c.find("failure") is not None]
    assert failed == ["mlp: matmul"]
    (error,) = suite.iter("error")
    assert error.get("message", "").endswith("<signal 11>")


def test_junit_leaves_out_what_no_xml_may_hold() -> None:
    odd = replace(REPORT, failed=(Failed("cpu", "mlp", "", "bell \x07 \ud800"),))
    (error,) = ET.fromstring(junit_text(odd).encode()).iter("error")
    assert error.get("message", "").endswith("bell ? ?")


# ---- settings


def sweep_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(f"[regress]\n{text}\n", encoding="utf-8")
    return path


def test_a_sweep_file_is_read_and_a_store_stands_beside_it(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, 'models = ["mlp"]\nstore = "nights.db"\nturns = 12')
    read = SweepSettings(("mlp",), ("cpu",), tmp_path / "nights.db", 12, folder=tmp_path.resolve())
    assert load_sweep(path) == read
    assert load_sweep(path, tmp_path / "b.db").store == tmp_path / "b.db"


def test_the_shipped_sweep_goes_by_its_name() -> None:
    assert load_sweep("nightly", "a.db").models == ("mlp", "resnet18", "encoder")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models = []", r"regress.models = \[\] must name some"),
        ('models = ["mlp", "mlp"]', "each once"),
        ('models = ["mlp"]\nturns = 2', "regress.turns = 2 is below 6"),
        ('models = ["mlp"]\nthreads = 0', "regress.threads = 0 is not positive"),
        ('models = ["mlp"]\nquiet = "maybe"', r"regress.quiet = 'maybe': Invalid enum value"),
        ('models = "mlp"', "regress.models = 'mlp': Expected `array`, got `str`"),
        (
            'models = ["mlp"]\nturn = 2',
            r"regress: unknown key 'turn', did you mean 'turns'\?; valid: models, devices",
        ),
        ("turns = 12", "regress.models is missing"),
        ("models = [", "sweep.toml"),
        (
            'models = ["mlp"]\ndevices = ["cpu", "opencll:1"]',
            r"regress.devices: device 'opencll:1' is unknown, did you mean 'opencl'\?; valid: cpu",
        ),
        ('models = ["mlp"]\ndevices = ["cuda:"]', "'cuda:': a number or a name must follow"),
        (
            'models = ["mlp"]\npeers = ["torhc"]',
            r"regress.peers: peer 'torhc' is unknown, did you mean 'torch'\?; valid: torch, ",
        ),
    ],
)
def test_a_sweep_file_that_breaks_a_rule_is_one_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_sweep(sweep_file(tmp_path, text))


@pytest.mark.parametrize(
    "data", [b"a = " + b"[" * 100_000, b"\xff\xfe[regress]"], ids=["nested", "no text"]
)
def test_a_sweep_file_that_is_no_text_or_nested_too_deeply_is_one_error(
    tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "sweep.toml").write_bytes(data)
    with pytest.raises(ConfigError, match=r"sweep\.toml: is not TOML"):
        load_sweep(tmp_path / "sweep.toml")


def test_unknown_models_and_missing_files_are_errors_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'resnet81' is unknown"):
        load_sweep(sweep_file(tmp_path, 'models = ["resnet81"]'))
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_sweep(tmp_path / "none.toml")
    assert run(["regress", str(tmp_path / "none.toml")]) == 1
    with pytest.raises(ConfigError, match=r"^nightlly: No such file .*, did you mean 'nightly'\?$"):
        load_sweep("nightlly")
    with pytest.raises(ConfigError, match=r"^mlpp: No such file or directory$"):
        load_sweep("mlpp")


# ---- a store of nights


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty nights of six kernels; the third is 8 % slower since the 16th, by another revision."""
    world = World(nights=20, kernels=6, step=(15, 2, 1.08))
    return stored(tmp_path_factory.mktemp("nights") / "a.db", world.run(11))


def test_a_store_of_nights_is_judged_and_blessed(nights: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    merge_stores(path, [nights])
    with open_store(path) as store:
        assert (f"{MODEL}: k2", "key2", "night15") in judge(store, "night19").levels
    accepted = bless(SweepSettings((), store=path), "meant")
    assert f"{MODEL}: k2" in {f.series for f in accepted.levels}
    with open_store(path) as store:
        assert judge(store, "night19").levels == []
        (row,) = [s for s in store.sessions() if s.command == "regress bless"]
    assert json.loads(row.settings)["reason"] == "meant"


def test_a_level_is_accepted_for_a_reason_and_of_a_sweep(nights: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for a reason"):
        bless(SweepSettings((), store=nights), " ")
    with pytest.raises(ConfigError, match="no sweep whose levels"):
        bless(SweepSettings((), store=tmp_path / "new.db"), "meant")


def test_two_revisions_compare_with_the_scatter_of_nights(nights: Path) -> None:
    found = compare("aaaa", "bbbb", nights)
    assert found.noise
    assert found.changed == ("revision: aaaa -> bbbb",)
    rows = {row.series: row for row in found.rows}
    changed = rows[f"{MODEL}: k2"]
    assert changed.nights == (15, 5)
    assert changed.different
    assert changed.interval is not None
    assert changed.interval[0] < 1.08 < changed.interval[1]
    same = [row.different for name, row in rows.items() if name.startswith(f"{MODEL}: k")]
    assert sum(same) == 1


def test_two_stores_compare_by_their_newest_sweeps(nights: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other.db", World(nights=1, kernels=6).run(12))
    found = compare(str(nights), str(other), tmp_path / "unused.db")
    assert {row.nights for row in found.rows} == {(1, 1)}
    assert compare("last~1", "last", nights).changed == ()


def test_sweeps_of_two_devices_compare_each_with_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second device is ten times as slow, and got a newer driver."""
    fields = dict(HERE.fields)
    drivers = ("570", "571")
    with open_store(tmp_path / "a.db", "write") as store:
        for number, night in enumerate(World(nights=2, kernels=3).run(3)):
            newer = {**fields, "device": "cuda", "cuda_driver": drivers[number]}
            gpu = Fingerprint(tuple(sorted(newer.items())))
            with store.session(SWEEP, 0, {}, "0.1.0", night.sweep):
                for row in night.rows.values():
                    if DEFAULTS in row.model:
                        continue
                    store.record_latency(row)
                    state = (("asked", "cuda"), *row.state[1:])
                    slow = tuple(10 * s for s in row.samples_s)
                    store.record_latency(replace(row, samples_s=slow, state=state, fingerprint=gpu))
    found = compare("last~1", "last", tmp_path / "a.db")
    rows = {row.series: row for row in found.rows}
    here, there = rows[f"{MODEL} on cpu: k0"], rows[f"{MODEL} on cuda: k0"]
    assert len(rows) == 2 * (3 + 2)
    assert there.a_ms == pytest.approx(10 * here.a_ms)
    assert there.ratio == pytest.approx(here.ratio)
    assert found.changed == ("cuda_driver: 570 -> 571",)
    assert found.only_a == found.only_b == ()
    assert {row.nights for row in found.rows} == {(1, 1)}
    by_name = compare("night0", "night1", tmp_path / "a.db")
    assert by_name.rows == found.rows
    assert run(["compare", "last~1", "last", "--store", str(tmp_path / "a.db")]) == 0
    assert f"{MODEL} on cuda: k0" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="'last~2': neither"):
        compare("last~2", "last", tmp_path / "a.db")


def test_nights_that_do_not_count_are_said_and_state_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = World(nights=2, kernels=3, everything=(1, 1.8)).run(3)
    path = stored(tmp_path / "a.db", [busy(n) for n in two])
    found = compare("last~1", "last", path)
    assert not any(row.counts or row.different for row in found.rows)
    assert {row.interval for row in found.rows} == {None}
    assert found.uncounted == (f"A, model {MODEL}", f"B, model {MODEL}")
    assert run(["compare", "last~1", "last", "--store", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"A, model {MODEL}: a night does not count" in out
    assert out.count("does not count") == 2 + len(found.rows)
    quiet = compare("last~1", "last", stored(tmp_path / "b.db", two))
    assert all(row.counts for row in quiet.rows)
    assert not quiet.uncounted


def test_a_night_that_does_not_count_is_left_out_beside_one_that_does(tmp_path: Path) -> None:
    nights = World(nights=4, kernels=3, step=(2, 0, 1.8)).run(3)
    path = stored(tmp_path / "a.db", [*nights[:3], busy(nights[3])])
    found = compare("aaaa", "bbbb", path)
    assert {row.nights for row in found.rows} == {(2, 1)}
    assert found.uncounted == (f"B, model {MODEL}",)


def test_yardsticks_that_disagree_are_in_the_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others took the memory of A alone: one yardstick was slow there, the other one and the model
    were not.
    """
    first, second = World(nights=2, kernels=3).run(3)
    rows = {
        key: replace(r, samples_s=tuple(3.7 * s for s in r.samples_s))
        if key[0].endswith("yardstick stream")
        else r
        for key, r in first.rows.items()
    }
    path = stored(tmp_path / "a.db", [replace(first, rows=rows), second])
    found = compare("last~1", "last", path)
    assert not any(row.different for row in found.rows)
    moved = {m.yardstick: m.ratio for m in found.yardsticks}
    assert moved["stream"] < 0.4
    assert moved["product"] == pytest.approx(1.0, abs=0.2)
    assert run(["compare", "last~1", "last", "--store", str(path)]) == 0
    out = capsys.readouterr().out
    assert "B/A is how many times as long B takes as A, freed of what the machine did" in out
    assert f"yardstick stream of {MODEL}: {moved['stream']:.3f}x" in out


def tuned(
    path: Path, seconds: float, *models: str, session: str = "t1", at_s: float = 1.0,
    here: Fingerprint = HERE,
) -> None:  # fmt: skip
    """A store with a tune session of these models."""
    samples = tuple(seconds * x for x in (1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01))
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0.1.0", session):
        for model in models:
            row = Latency(model, session, "tuned", here, samples, (2e-3,) * 8, session, at_s)
            store.record_latency(row)


def test_tuned_stores_compare_by_what_their_tune_sessions_measured(
    nights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    tuned(a, 9e-3, "mlp", session="t0")
    tuned(a, 1e-3, "mlp", "encoder", session="t1", at_s=2.0)
    tuned(b, 1.3e-3, "mlp", session="t2")
    found = compare(str(a), str(b), tmp_path / "unused.db")
    assert found.tuned
    rows = {row.series: row for row in found.rows}
    assert rows.keys() == {"mlp", "mlp: default schedules"}
    assert rows["mlp"].ratio == pytest.approx(1.3)
    assert rows["mlp"].different
    assert not rows["mlp: default schedules"].different
    assert set(found.only_a) == {"encoder", "encoder: default schedules"}
    assert run(["compare", str(a), str(b), "--store", str(nights)]) == 0
    out = capsys.readouterr().out
    assert f"A  {a}: the newest tune session of each model" in out
    assert "compared are whole models, as tune sessions measured them" in out


def test_tuned_store_compares_with_a_sweep_by_its_whole_models(
    nights: Path, tmp_path: Path
) -> None:
    tuned(tmp_path / "a.db", 1e-3, MODEL)
    found = compare(str(nights), str(tmp_path / "a.db"), nights)
    assert {row.series for row in found.rows} == {MODEL, f"{MODEL}: default schedules"}
    assert found.a == f"{nights}: sweep night19"
    (row,) = [row for row in found.rows if row.series == MODEL]
    assert row.ratio == pytest.approx(1.0 / row.a_ms, rel=0.02)


def test_a_tuned_store_is_of_the_device_that_a_sweep_asked_for_by_its_number(
    tmp_path: Path,
) -> None:
    gpu = Fingerprint(tuple(sorted({**dict(HERE.fields), "device": "cuda"}.items())))
    with open_store(tmp_path / "a.db", "write") as store:
        (night,) = World(nights=1, kernels=1).run(3)
        with store.session(SWEEP, 0, {}, "0.1.0", night.sweep):
            for row in night.rows.values():
                if DEFAULTS not in row.model:
                    store.record_latency(row)
                    state = (("asked", "cuda:1"), *row.state[1:])
                    store.record_latency(replace(row, state=state, fingerprint=gpu))
    tuned(tmp_path / "b.db", 1e-3, MODEL, here=gpu)
    found = compare(str(tmp_path / "a.db"), str(tmp_path / "b.db"), tmp_path / "a.db")
    names = {f"{MODEL} on cuda:1", f"{MODEL} on cuda:1: default schedules"}
    assert {row.series for row in found.rows} == names


# ---- the parts


def test_an_unpaired_interval_holds_the_ratio_and_needs_six() -> None:
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(200):
        a, b = (np.exp(rng.normal(m, 0.05, 12)).tolist() for m in (0.0, 0.1))
        found = unpaired_interval(a, b)
        assert found is not None
        inside += found[0] <= np.exp(0.1) <= found[1]
    assert inside >= 180
    assert unpaired_interval([1.0] * 5, [1.0] * 9) is None


def test_the_scatter_is_neither_that_of_a_step_nor_of_a_few_bad_nights() -> None:
    values = np.random.default_rng(4).normal(0, 0.01, 200)
    values[::20] += 0.3
    values[190:] += 0.1
    assert scatter(values) == pytest.approx(0.01, rel=0.3)


def test_software_makes_no_other_place_and_hardware_does() -> None:
    def here(**fields: str) -> Fingerprint:
        return Fingerprint(tuple(sorted({"cpu_name": "one", "device": "cpu", **fields}.items())))

    assert place_of(here(compiler_version="1", cuda_driver="2")) == place_of(here(thp="never"))
    assert place_of(here(threads="2")) != place_of(here(threads="4"))


def test_clocks_are_named_where_their_ranges_do_not_meet() -> None:
    row = World(nights=1).run(1)[0].rows[MODEL, "graph"]

    def at(sm: float, memory: float = 2619.0, cpu: float = 3000.0) -> Latency:
        state = (("clock_mhz", cpu), ("memory_mhz", memory), ("power_w", sm), ("sm_mhz", sm))
        return replace(row, state=state)

    before = [at(1965.0), at(1980.0)]
    assert changed_clocks(before, [at(1410.0, cpu=2000.0), at(1425.0, cpu=2000.0)]) == (
        "clock_mhz: 3000 -> 2000", "sm_mhz: 1965 to 1980 -> 1410 to 1425",
    )  # fmt: skip
    assert changed_clocks(before, [at(1980.0), at(1995.0)]) == ()
    assert changed_clocks([row], before) == ()


def test_fields_that_overlap_say_nothing() -> None:
    (first, *_, last) = [n.rows[MODEL, "graph"] for n in World(nights=9, step=(5, 1, 1.0)).run(1)]
    assert changed_fields([first], [last]) == ("revision: aaaa -> bbbb",)
    assert changed_fields([first, last], [last]) == ()
    governed = replace(last, state=(("governor", "powersave"), ("load_1m", 7.0)))
    assert changed_fields([last], [governed])[0] == "asked: cpu -> (none)"
    assert "governor: performance -> powersave" in changed_fields([last], [governed])
