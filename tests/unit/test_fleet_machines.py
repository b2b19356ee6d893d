"""Machines that measure, and machines that are left out: kinds of machine are kept apart."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tunegrad.devices import host_device
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.trial import Fingerprint
from tunegrad.tuning.fleet import (
    Crew,
    EngineSpec,
    Machine,
    choose_crew,
    cluster,
    in_flight,
    job_size,
    kind_of,
)

DEVICE = host_device(2)
ZEN = Fingerprint(
    (("arch", "znver4"), ("cores", "8"), ("compiler_version", "20"), ("os", "linux-x86_64"))
)
LAKE = Fingerprint(
    (("arch", "icelake"), ("cores", "4"), ("compiler_version", "20"), ("os", "linux-x86_64"))
)


def node(name, fingerprint=ZEN, host=None, **more):
    given = {"cpus": 8.0, "release": "1"} | more
    return Machine(
        f"id-{name}", name, host or f"host-{name}", given.pop("cpus"), DEVICE, fingerprint, **given
    )


def names(machines):
    return [m.address for m in machines]


def test_crew_of_one_kind_measures_on_all_of_it():
    crew = choose_crew([node("a"), node("b"), node("c")], None, "1")
    assert names(crew.measuring) == ["a", "b", "c"]
    assert (crew.left_out, crew.fingerprint) == ((), ZEN)


def test_crew_of_two_kinds_is_refused_with_a_choice():
    with pytest.raises(ConfigError) as caught:
        choose_crew([node("a"), node("b", LAKE), node("c")], None, "1")
    assert str(caught.value) == (
        "the fleet has 2 kinds of machine, and what one measures does not answer for another: "
        f"{kind_of(LAKE)} (b), {kind_of(ZEN)} (a c); they differ in arch, cores; "
        "name the kind to measure on with --ray-kind; the others are left out"
    )


@pytest.mark.parametrize("kind", ["znver4", kind_of(ZEN)])
def test_crew_of_the_kind_that_is_named_measures_and_the_other_is_left_out(kind):
    crew = choose_crew([node("a", LAKE), node("b"), node("c")], kind, "1")
    assert names(crew.measuring) == ["b", "c"]
    assert crew.left_out == (
        f"a: is not a {kind_of(ZEN)} but a {kind_of(LAKE)}: other arch, cores",
    )
    assert crew.fingerprint == ZEN


def test_crew_kinds_of_one_architecture_are_told_apart():
    other = Fingerprint((*(f for f in ZEN.fields if f[0] != "cores"), ("cores", "4")))
    assert kind_of(other) != kind_of(ZEN)
    with pytest.raises(ConfigError, match="they differ in cores"):
        choose_crew([node("a"), node("b", other)], None, "1")
    with pytest.raises(ConfigError, match="'znver4' is the start of several kinds of machine"):
        choose_crew([node("a"), node("b", other)], "znver4", "1")


def test_crew_kind_that_nobody_has_is_refused():
    with pytest.raises(
        ConfigError,
        match="'m68k' is the start of no kind of machine of the fleet; there are: znver4-",
    ):
        choose_crew([node("a")], "m68k", "1")


def test_crew_measures_on_one_node_of_each_host():
    crew = choose_crew([node("a", host="x"), node("b", host="x"), node("c", host="y")], None, "1")
    assert names(crew.measuring) == ["a", "c"]
    assert crew.left_out == ("b: would disturb a, which measures on the same machine",)
    assert names(
        choose_crew(
            [node("a", host="x"), node("b", host="x")], None, "1", share_hosts=True
        ).measuring
    ) == [
        "a",
        "b",
    ]


def test_crew_leaves_out_other_releases_and_nodes_without_cpus():
    crew = choose_crew([node("a"), node("b", release="0"), node("c", cpus=0.0)], None, "1")
    assert names(crew.measuring) == ["a"]
    assert crew.left_out == (
        "b: has tunegrad 0, not 1",
        "c: was started with no CPUs for Ray, and takes no part",
    )


def test_crew_without_anybody_to_measure_says_why():
    with pytest.raises(DeviceError, match="no machine to measure on: b: has tunegrad 0, not 1"):
        choose_crew([node("b", release="0")], None, "1")


def test_fleet_keeps_every_machine_busy_and_another_job_waiting():
    assert [job_size(n) for n in (1, 4, 8, 16, 64, 1000)] == [8, 8, 8, 4, 4, 4]
    assert [in_flight(n) for n in (2, 4, 1000)] == [32, 64, 8000]
    assert all(in_flight(n) == 2 * n * job_size(n) for n in range(1, 200))


def test_fleet_without_machines_is_waited_for_and_not_asked_again_and_again(monkeypatch):
    slept = []
    monkeypatch.setattr(cluster.time, "sleep", slept.append)
    nobody = SimpleNamespace(ray=None, alive=dict)
    stations = cluster.RayStations(nobody, Crew(DEVICE, ZEN, (), ()), EngineSpec("a:b"))
    assert stations.done((), 1.5) == []
    assert slept == [1.5]


@pytest.mark.parametrize("address", ["10.0.0.2:6379", "local"])
def test_cluster_other_than_the_one_of_this_process_is_refused(monkeypatch, address):
    here = SimpleNamespace(gcs_address="10.0.0.1:6379")
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: here)
    monkeypatch.setattr(cluster, "_import_ray", lambda _: ray)
    with pytest.raises(
        DeviceError, match=f"ray {address}: this process is connected to 10.0.0.1:6379"
    ):
        cluster.RayCluster(address, "cpu", 1, "contract").__enter__()
    for same in ("10.0.0.1:6379", "auto"):
        with (
            pytest.raises(AttributeError, match="nodes"),
            cluster.RayCluster(same, "cpu", 1, "contract") as connected,
        ):
            connected.alive()


class Actor:
    """An actor of a Ray that is played: its methods give references by name."""

    def __init__(self, name):
        self.name = name
        self.call = SimpleNamespace(remote=lambda *_: f"answer of {name}")


def played(alive=dict, warn=lambda _: None, measuring=(), **ray):
    """Stations on a Ray that is played, and the actors that it was told to kill."""
    killed = []
    ray = SimpleNamespace(kill=lambda actor: killed.append(actor.name), **ray)
    nodes = SimpleNamespace(
        ray=ray,
        alive=alive,
        share_hosts=False,
        ask=lambda node: node,
        told=lambda _, ref: COMING[ref],
    )
    return cluster.RayStations(
        nodes, Crew(DEVICE, ZEN, measuring, ()), EngineSpec("a:b"), warn
    ), killed


def test_cluster_kills_the_actor_of_a_machine_that_is_given_up():
    stations, killed = played()
    stations._actors["a"] = Actor("a")
    stations.end("a")
    assert killed == ["a"]
    assert stations._actors == {}
    stations.end("a")
    assert killed == ["a"]


COMING = {
    "id-b": node("b", LAKE, release=cluster.RELEASE),
    "id-c": node("c", host="host-a", release=cluster.RELEASE),
    "id-d": node("d", release="0"),
    "id-f": "can not be asked what it is: it ran out of memory",
    "id-g": node("g", release=cluster.RELEASE),
    "id-h": replace(node("b", LAKE, release=cluster.RELEASE), node="id-h"),
}


def test_cluster_tells_once_why_a_machine_that_came_later_is_left_out():
    present, told = {"id-a": {}}, []
    stations, _ = played(
        alive=lambda: dict(present),
        warn=told.append,
        measuring=(node("a"),),
        wait=lambda refs, **_: (refs, []),
    )
    assert stations.names() == ("a",)
    for name in "bcdfgh":
        present[f"id-{name}"] = {"NodeManagerAddress": "10.0.0.9", "NodeManagerPort": 7}
        stations.names()
        stations.names()
    assert stations.names() == ("a", "g")
    assert told == [
        f"left out: b: is not a {kind_of(ZEN)} but a {kind_of(LAKE)}: other arch, cores",
        "left out: c: would disturb a, which measures on the same machine",
        f"left out: d: has tunegrad 0, not {cluster.RELEASE}",
        "left out: 10.0.0.9:7: can not be asked what it is: it ran out of memory",
    ]
