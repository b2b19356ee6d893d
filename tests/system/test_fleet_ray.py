"""Ray on loopback: clusters of this machine's processes, nodes that are killed, sessions that are
interrupted.
"""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import fleet_engines
import numpy as np
import planted_in_model
import psutil
import pytest
from fleet_sessions import NAMES, InProcess, Session, fleet_of
from planted_in_model import is_evil
from small_models import Listener, settings_of, workload_in

from tunegrad.config import ModelSpec, TuneSettings, resolve_settings
from tunegrad.db import open_store
from tunegrad.devices import Limits
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.events import Warned
from tunegrad.frontend import Tensor
from tunegrad.trial import Policy
from tunegrad.tune import tune
from tunegrad.tuning import executor as executors
from tunegrad.tuning import session
from tunegrad.tuning.fleet import Dispatcher, EngineSpec, FleetBench, cluster
from tunegrad.tuning.fleet.cluster import RayCluster
from tunegrad.tuning.models import Models
from tunegrad.tuning.questions import plan as deciding
from tunegrad.tuning.questions.schedule import Schedules
from tunegrad.tuning.workload import workload_of_function

pytestmark = pytest.mark.timing

pytest.importorskip("ray", reason="Ray is not installed: pip install 'tunegrad[ray]'")

ROOT = Path(__file__).parents[2]
STORE_BYTES = 80 << 20


@pytest.fixture(scope="module", autouse=True)
def paths():
    """Actors import the engines and hooks of the tests; Ray's processes inherit this."""
    before = os.environ.get("PYTHONPATH")
    places = [ROOT, ROOT / "tests", ROOT / "tests" / "system"]
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, places), *([before] if before else [])])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


class Nodes:
    """A cluster of nodes on loopback, gone at the end."""

    def __init__(self, count):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args=self.arguments())
        self.nodes = [self.cluster.head_node, *(self.add() for _ in range(count - 1))]

    @staticmethod
    def arguments():
        return {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}

    def add(self, **more):
        return self.cluster.add_node(**self.arguments() | more)

    def kill(self, number):
        self.cluster.remove_node(self.nodes[number], allow_graceful=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cluster.shutdown()


def on_ray(nodes, trials, machines, at=None, act=None, marker="", delay_s=0.004, together=(0, 0)):
    """A session on a cluster; ``act`` happens once ``at`` trials were told. What was said, too.

    ``together``: how many machines must have measured before one goes on, and after how many
    measurements of its own it asks.
    """
    said = []

    def observe(told):
        if told == at:
            act()

    with RayCluster(nodes.cluster.address, "cpu", 1, "contract", share_hosts=True) as ray:
        crew = ray.crew(None)
        assert len(crew.measuring) == machines
        stations = ray.open(
            crew, EngineSpec("fleet_engines:recorded", (NAMES, delay_s, str(marker), together))
        )
        measurer, dispatcher = fleet_of(stations, machines, warn=said.append)
        session = Session(measurer, machines, trials, observe=observe).run()
        return session, said, dispatcher.machines


def processes_of_ray():
    found = []
    for p in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(p.info["cmdline"] or [])
        if (
            "raylet" in line
            or "gcs_server" in line
            or line.startswith("ray::")
            or "default_worker.py" in line
        ):
            found.append(p)
    return found


def gone(before, but=(), within_s=15.0):
    """The processes of Ray that stay, ``before`` and those called as ``but`` says left out."""
    deadline_s = time.monotonic() + within_s
    while (
        left := {
            p.pid
            for p in processes_of_ray()
            if not "".join(p.info["cmdline"]).startswith(but or "\0")
        }
        - before
    ):
        if time.monotonic() > deadline_s:
            return left
        time.sleep(0.2)
    return set()


def test_fleet_two_nodes_decide_what_this_process_decides(tmp_path):
    marker = tmp_path / "who"
    with Nodes(2) as nodes:
        session, said, _ = on_ray(nodes, 200, 2, marker=marker, together=(2, 100))
    alone = Session(InProcess(), 2, 200).run()
    assert session.told == alone.told
    assert session.rows == alone.rows
    assert len(alone.told) >= 200
    assert said == []
    assert len(fleet_engines.who_measured(marker)) == 2


@pytest.mark.slow
def test_fleet_four_nodes_one_killed_midway_lose_no_trial_and_decide_the_same(tmp_path):
    marker = tmp_path / "who"
    with Nodes(4) as nodes:
        session, said, left = on_ray(
            nodes,
            600,
            4,
            at=200,
            act=lambda: nodes.kill(2),
            marker=marker,
            delay_s=0.02,
            together=(4, 40),
        )
    alone = Session(InProcess(), 4, 600).run()
    assert session.told == alone.told
    assert session.rows == alone.rows
    assert len(alone.told) >= 600
    assert left == 3
    assert len(said) == 1
    assert "was lost" in said[0]
    assert len(fleet_engines.who_measured(marker)) == 4


@pytest.mark.slow
def test_fleet_a_node_that_comes_later_is_taken_in(tmp_path):
    marker = tmp_path / "who"
    with Nodes(2) as nodes:
        session, _, left = on_ray(nodes, 700, 2, at=100, act=nodes.add, marker=marker, delay_s=0.05)
    assert session.told == Session(InProcess(), 2, 700).run().told
    assert left == 3
    assert len(fleet_engines.who_measured(marker)) == 3


# ---- whole models


def images(x):
    """Two convolutions of several variants, and a softmax that can be cut."""
    y = x.permute(0, 3, 1, 2).conv2d(Tensor.constant(CONVOLVED[0]), padding=1).relu()
    y = y.conv2d(Tensor.constant(CONVOLVED[1]), padding=1) + y
    return y.permute(0, 2, 3, 1).softmax(-1)


RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((1, 14, 14, 32), dtype=np.float32)
CONVOLVED = [RNG.standard_normal((32, 32, 3, 3), dtype=np.float32) / 16 for _ in range(2)]


@pytest.fixture
def another_kind(monkeypatch):
    """The nodes say that they are of a kind that this machine is not."""
    monkeypatch.setattr(cluster, "survey", fleet_engines.narrow)
    there = fingerprint(fleet_engines.narrow_target(1))
    assert there.differences(fingerprint(host_target(1)))
    return there


def noted(monkeypatch):
    """What machines are asked from now on, and in races of schedules, which have no deadline."""
    names, in_races = [], []
    call, settle = FleetBench._call, Schedules.promote_proved

    def noting(self, method, arguments, *more):
        names.append(arguments[0] if method == "run" else method)
        return call(self, method, arguments, *more)

    def settled(self, searches, works, _deadline_s):
        before = len(names)
        settle(self, searches, works)
        in_races.extend(names[before:])

    monkeypatch.setattr(FleetBench, "_call", noting)
    monkeypatch.setattr(Schedules, "promote_proved", settled)
    return names, in_races


@pytest.mark.slow
def test_fleet_of_another_kind_decides_in_whole_models(tmp_path, another_kind, monkeypatch):
    """Forms of images, a cut, a variant, and schedules. Here no device can be opened."""

    def refused(*_, **__):
        raise AssertionError("this machine is of another kind")

    names, in_races = noted(monkeypatch)
    for name in ("DeviceMeasurer", "LocalBench"):
        monkeypatch.setattr(executors, name, refused)
    monkeypatch.setattr(deciding, "RACE_SHARE", 1.0)
    work = workload_of_function(images, (IMAGES,))
    store, heard = tmp_path / "s.db", Listener()
    spec = ModelSpec("images", f"kernels:{work.key}", source="a function")
    with Nodes(1) as nodes:
        settings = TuneSettings(spec, "cpu", 1, 20.0, "beam", store, 3, ray=nodes.cluster.address)
        report = session.run_session(settings, work, [heard])
    assert [e.message for e in heard.of(Warned)] == []
    assert min(report.tuned_ms, report.default_ms) > 0.0, "the whole model was timed there"
    assert report.mismatch == ""
    assert in_races.count("profiled") >= 2
    assert {"check", "judged", "paired", "profiled"} <= set(names)
    with open_store(store, "read") as opened:
        found = [t for key, _ in opened.kernels() for t in opened.trials(key)]
        decided = opened.decisions()
    assert {t.fingerprint for t in (*found, *decided)} == {another_kind}
    met = {d.kind for d in decided if d.evidence.challenger_samples_s}
    assert {"images", "variant"} <= met, "cuts are raced only where a model expects something"


@pytest.mark.slow
def test_fleet_withdraws_who_writes_outside_its_buffers_in_a_model(tmp_path, another_kind):
    """What is planted is right in the search; some sessions have none of it in their models."""
    work = workload_in(tmp_path)
    with Nodes(1) as nodes:
        address = nodes.cluster.address
        found = (withdrawn(tmp_path, work, another_kind, address, seed) for seed in range(3, 9))
        assert any(found), "what is planted was met"


def withdrawn(directory, work, there, address, seed):
    """The rows that a session withdrew; in any case it ends with a model that is right."""
    settings = settings_of(directory, 6.0, directory / f"s{seed}.db", "random")
    settings = replace(settings, seed=seed, ray=address)
    report = session.run_session(settings, work, [], planted_in_model.hooks("outside"))
    assert report.mismatch == ""
    assert report.tuned_ms is not None
    evil = {r.key for r in report.rows if r.origin != "default" and is_evil(r.actions)}
    assert evil <= {work.kernels[0].key}, "it reads the caller's input, where nothing happens"
    with open_store(settings.store, "read") as store:
        stored = [w for u in work.kernels for w in store.withdrawals(u.key, there)]
        assert store.verify() == []
    assert all(is_evil(w.trial.actions) for w in stored), "nobody innocent"
    assert all(w.reason.startswith("in the whole model: wrong") for w in stored)
    return stored


@pytest.mark.slow
def test_fleet_a_machine_that_is_killed_while_it_profiles_is_replaced(tmp_path):
    """Really killed: the actor's process, in the midst of the runs of a model."""
    work = workload_of_function(images, (IMAGES,))
    said = []
    with (
        Nodes(1) as nodes,
        RayCluster(nodes.cluster.address, "cpu", 1, "contract", share_hosts=True) as ray,
        open_store(":memory:", "write") as store,
    ):
        crew = ray.crew(None)
        arguments = str(tmp_path / "pid"), crew.device, "contract", Policy(), Limits(), 0
        stations = ray.open(crew, EngineSpec("fleet_engines:with_pid", arguments))
        dispatcher = Dispatcher(stations, crew.fingerprint, time.monotonic, said.append)
        bench = FleetBench(dispatcher)
        model = Models(store, crew.device.target, crew.fingerprint, bench).of(work)
        bench.profiled([model], 10)
        began_s = time.monotonic()
        bench.profiled([model], 100)
        rounds = math.ceil(100 * 6.0 / (time.monotonic() - began_s))
        actor = int((tmp_path / "pid").read_text())
        killing = threading.Timer(1.5, os.kill, (actor, signal.SIGKILL))
        killing.start()
        (turns,) = bench.profiled([model], rounds)
        killing.join()
    assert [len(turn) for turn in turns] == [len(work.plan.launches)] * rounds
    assert len(said) == 1
    assert said[0].startswith(f"machine {crew.measuring[0].address} was lost: ")
    assert int((tmp_path / "pid").read_text()) != actor


@pytest.mark.slow
def test_fleet_stops_once_the_whole_model_is_as_fast_as_wanted(tmp_path):
    store = tmp_path / "s.db"
    report = tune("mlp", budget_s=60.0, threads=1, store=store, ray="local", target_ms=1e3)
    assert report.stopped == "target"
    assert report.saved_s > 30.0


def command(store, *more):
    tune_mlp = [
        sys.executable,
        "-m",
        "tunegrad.cli",
        "tune",
        "mlp",
        "--threads",
        "1",
        "--store",
        str(store),
    ]
    return [*tune_mlp, "--ray", "local", *more]


@pytest.mark.slow
def test_fleet_tunes_a_model_for_real(tmp_path):
    before = {p.pid for p in processes_of_ray()}
    report = tune("mlp", budget_s=8.0, threads=1, store=tmp_path / "s.db", ray="local")
    assert report.tuned_ms is not None
    assert gone(before) == set()
    with open_store(tmp_path / "s.db", "read") as store:
        assert 10 < sum(report.candidates.values()) <= store.stats().trials


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_fleet_leaves_no_process_behind(tmp_path, how):
    before = {p.pid for p in processes_of_ray()}
    store = tmp_path / "s.db"
    log = tmp_path / "log.jsonl"
    with (tmp_path / "err").open("w") as err:
        running = subprocess.Popen(
            command(store, "--budget", "60s", "--log", str(log)),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        deadline_s = time.monotonic() + 60.0
        while not (log.is_file() and log.read_text().count("CandidateMeasured") > 20):
            assert running.poll() is None, (tmp_path / "err").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert {p.pid for p in processes_of_ray()} - before
        running.send_signal(how)
        code = running.wait(60)
    assert code == (130 if how is signal.SIGINT else -9)
    # Two agents of a Ray that was killed with its driver look for it for a minute more.
    agents = () if how is signal.SIGINT else ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
    assert gone(before, agents) == set()
    with open_store(store, "read") as opened:
        assert opened.stats().trials > 20


def test_fleet_without_a_cluster_at_the_address_says_so():
    with pytest.raises(DeviceError, match=r"^ray 127\.0\.0\.1:1: no cluster answers there"):
        RayCluster("127.0.0.1:1", "cpu", 1, "contract").__enter__()


def test_fleet_refuses_the_address_of_a_client():
    with pytest.raises(DeviceError, match="run on a node of the cluster and give its HOST:6379"):
        RayCluster("ray://127.0.0.1:10001", "cpu", 1, "contract")


def test_fleet_kind_without_a_cluster_is_refused():
    with pytest.raises(
        ConfigError, match="ray_kind 'znver4' chooses among the machines of a cluster"
    ):
        resolve_settings("mlp", ray_kind="znver4")


def test_fleet_without_ray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DeviceError, match=r"Ray is not installed: pip install 'tunegrad\[ray\]'"):
        RayCluster("local", "cpu", 1, "contract")
