"""``cuda``, ``cuda:1`` and ``cuda:NAME`` where a name of a device may stand: recorded spaces,
fleets, sweeps and tunes. GPUs are NVIDIA's bindings without one, and cuda-host behind them.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recorded.bench import find_spaces
from benchmarks.recorded.files import read_recording, write_recording
from tests.cuda_host import cuda_host
from tests.fake_cuda import FakeBindings, NamedGpu, real
from tunegrad import devices, tune
from tunegrad.config import resolve_settings
from tunegrad.db import open_store
from tunegrad.devices import registry
from tunegrad.devices.cuda import bindings
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.regress import SweepSettings, regress
from tunegrad.regress import measured as measuring
from tunegrad.regress import sweep as running
from tunegrad.trial import Fingerprint
from tunegrad.tuning.fleet import Machine, choose_crew
from tunegrad.tuning.fleet.cluster import survey

pytestmark = pytest.mark.timing

SPACES = Path(__file__).parents[1] / "data" / "spaces"
NAMES = ("cuda", "cuda:1", "cuda:h100")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs that can be named, and not opened."""
    made = FakeBindings()
    monkeypatch.setattr(bindings, "api", lambda: made)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that run, under the names of two."""
    cuda_host()
    real("driver")

    def gpu(part: str, threads: int | None) -> NamedGpu:
        number = {"": 0, "0": 0, "h100": 0, "1": 1, "l4": 1}[part]
        return NamedGpu(number=number)

    monkeypatch.setitem(registry._FAMILIES, "cuda", gpu)


# ---- recorded spaces


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    """One space, as four devices would have recorded it."""
    known = read_recording(SPACES / "softmax.jsonl.gz").recording
    for name in ("cpu", "cuda", "cuda-host", "cuda-host:lazy:3"):
        fields = dict(known.fingerprint.fields) | {"device": name}
        here = Fingerprint(tuple(sorted(fields.items())))
        path = tmp_path / f"{name.replace(':', ' ')}.jsonl.gz"
        write_recording(path, replace(known, fingerprint=here))
    return tmp_path


def found(spaces: Path, device: str) -> set[str]:
    return {dict(s.recording.fingerprint.fields)["device"] for s in find_spaces([spaces], device)}


@pytest.mark.parametrize("name", NAMES)
def test_spaces_of_a_gpu_are_found_by_each_of_its_names(spaces: Path, name: str) -> None:
    assert found(spaces, name) == {"cuda"}


@pytest.mark.parametrize("name", ["cuda-host", "cuda-host:lazy:3", "cuda-host:7"])
def test_spaces_of_the_cpu_as_a_gpu_are_apart_and_of_every_order(spaces: Path, name: str) -> None:
    assert found(spaces, name) == {"cuda-host", "cuda-host:lazy:3"}


def test_spaces_of_no_gpu_name_what_there_is(spaces: Path) -> None:
    (spaces / "cuda.jsonl.gz").unlink()
    with pytest.raises(
        ConfigError, match="'cuda:1': no space was recorded there, but on cpu, cuda"
    ):
        find_spaces([spaces], "cuda:1")


# ---- fleets


def machine(address: str, name: str) -> Machine:
    release, host, device, here = pickle.loads(pickle.dumps(survey(name, 1, "tf32")))
    assert isinstance(here, Fingerprint)
    return Machine(address, address, f"{host} {address}", 8.0, device, here, release)


@pytest.mark.usefixtures("fake")
def test_fleet_of_one_kind_of_gpu_measures_on_all_of_them() -> None:
    crew = choose_crew([machine("a", "cuda"), machine("b", "cuda:h100")], None, release())
    assert [m.address for m in crew.measuring] == ["a", "b"]
    assert crew.device.name == "cuda:0"
    assert dict(crew.fingerprint.fields)["numerics"] == "tf32"


@pytest.mark.usefixtures("fake")
def test_fleet_of_two_kinds_of_gpu_wants_to_be_told_which() -> None:
    both = [machine("a", "cuda"), machine("b", "cuda:1")]
    with pytest.raises(ConfigError, match=r"2 kinds of machine.*they differ in arch, cuda_"):
        choose_crew(both, None, release())
    crew = choose_crew(both, "sm_89", release())
    assert [m.address for m in crew.measuring] == ["b"]
    assert [reason.partition(":")[0] for reason in crew.left_out] == ["a"]


@pytest.mark.usefixtures("fake")
def test_machine_without_that_gpu_says_so() -> None:
    with pytest.raises(DeviceError, match="device cuda:a100: no GPU has that in the name"):
        survey("cuda:a100", 1, "contract")


def release() -> str:
    return survey("cpu", 1, "contract")[0]


# ---- sweeps and tunes


TINY = """
[model]
name = "tiny"
builder = "tunegrad.models.mlp:mlp"
batch = 2
[model.args]
sizes = [16, 16, 8]
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.mark.usefixtures("gpus")
def test_sweep_of_two_gpus_has_rows_of_each_with_its_clocks(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "busy", lambda: "")
    small: dict[str, Any] = {"stream": (lambda a: a * 2.0 + 1.0, ((64,),))}
    monkeypatch.setattr(measuring, "YARDSTICKS", small)
    asked = ("cuda", "cuda:1")
    settings = SweepSettings((str(tiny),), asked, tmp_path / "store.db", turns=2)
    report = regress(settings)
    assert report.failed == ()
    assert {row.device for row in report.rows} == set(asked)
    with open_store(settings.store) as store:
        rows = store.latencies("tiny")
    assert {dict(r.state)["asked"]: dict(r.state)["power_w"] for r in rows} == {
        "cuda": 300.0, "cuda:1": 301.0,
    }  # fmt: skip
    assert {dict(r.fingerprint.fields)["cuda_number"] for r in rows} == {"0", "1"}


@pytest.mark.usefixtures("gpus")
def test_session_keeps_the_state_of_the_gpu(tiny: Path, tmp_path: Path) -> None:
    report = tune(
        str(tiny), device="cuda:1", budget_s=600.0, max_trials=2, store=tmp_path / "store.db"
    )
    assert report.default_ms is not None
    with open_store(tmp_path / "store.db") as store:
        (session,) = (s for s in store.sessions() if s.command == "tune")
        (whole,) = store.latencies("tiny")
    for state in (dict(session.state), dict(whole.state)):
        assert state["power_w"] == 301.0
        assert {"governor", "load_1m", "sm_mhz"} <= state.keys()


@pytest.mark.usefixtures("gpus")
def test_settings_take_a_name_as_it_is(tiny: Path) -> None:
    assert resolve_settings(str(tiny), device="cuda:l4").device == "cuda:l4"
    assert devices.open("cuda:l4").name == "cuda:1"
