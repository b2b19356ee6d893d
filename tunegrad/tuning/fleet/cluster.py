"""The fleet on Ray: one actor on every machine that measures.

    ray.init --> every node is asked what it is --> a crew --> actors, pinned --> calls
                                                               to their nodes

Ray is told nothing of retries: an actor that dies stays dead, and the dispatcher starts another. An
actor holds all the CPUs that Ray may use on its node, so that no other work of Ray, another
session's included, runs beside what is timed. This module imports Ray when a cluster is made. Ray
serialises with pickle: any program that can reach the cluster's ports can run code on its machines,
so a cluster belongs into a network where every program may do so.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from tunegrad import devices
from tunegrad.config import Numerics
from tunegrad.devices import Device
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Fingerprint
from tunegrad.version import __version__

from .dispatch import StationLost, StationRaised
from .work import Answer, Call, EngineSpec, Station


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster.

    ``host`` tells nodes of one machine apart from others; ``cpus`` are what Ray may use.

    ``release`` names the tunegrad there.
    """

    node: str
    address: str
    host: str
    cpus: float
    device: Device
    fingerprint: Fingerprint
    release: str


@dataclass(frozen=True, slots=True)
class Crew:
    """The machines of a session by their roles.

    ``measuring`` are all of one ``fingerprint`` and one ``device``. ``left_out``: why, one a line.
    """

    device: Device
    fingerprint: Fingerprint
    measuring: tuple[Machine, ...]
    left_out: tuple[str, ...]


def kind_of(found: Fingerprint) -> str:
    """A short name of a kind of machine: its architecture, six digits for the rest."""
    digest = hashlib.blake2b(found.text.encode(), digest_size=3).hexdigest()
    return f"{dict(found.fields).get('arch', 'machine')}-{digest}"


def choose_crew(
    machines: Sequence[Machine], kind: str | None, release: str, share_hosts: bool = False
) -> Crew:
    """The machines of one kind measure, one node of each host; the others are left out.

    ``kind`` is a start of the kind's name; where it is None, there may be only one. ``share_hosts``
    lets all nodes of a host measure, which is right only where nothing is timed. Raises ConfigError
    for several kinds and none named, and for a name that none or several have; DeviceError where
    nothing is left to measure on.

        machines --group by fingerprint--> kinds --one kind--> measure, one actor for each host
                                                 --others----> left out

    A row says which kind of machine it is from, and answers for that kind alone. So one session
    measures on one kind.
    """
    fit, left_out = _fit(machines, release)
    kinds: dict[str, list[Machine]] = {}
    for m in fit:
        kinds.setdefault(kind_of(m.fingerprint), []).append(m)
    if not kinds:
        raise DeviceError(f"the fleet has no machine to measure on: {'; '.join(left_out)}")
    chosen = _chosen(kinds, kind)
    first, measuring = chosen[0], []
    hosts: dict[str, str] = {}
    for m in chosen:
        if m.host in hosts and not share_hosts:
            left_out.append(
                f"{m.address}: would disturb {hosts[m.host]}, which measures on the same machine"
            )
            continue
        hosts[m.host] = m.address
        measuring.append(m)
    left_out += [
        f"{m.address}: {_other_kind(m, first.fingerprint)}" for m in fit if m not in chosen
    ]
    return Crew(first.device, first.fingerprint, tuple(measuring), tuple(left_out))


def why_not(late: Machine, crew: Crew, hosts: Mapping[str, str], release: str) -> str:
    """Reason for which a machine that came late can not measure with a crew; '' where it can.

    ``hosts`` are those where a machine measures already, and its address.
    """
    if reason := _unfit(late, release):
        return reason
    if late.fingerprint != crew.fingerprint:
        return _other_kind(late, crew.fingerprint)
    if late.host in hosts:
        return f"would disturb {hosts[late.host]}, which measures on the same machine"
    return ""


def _other_kind(m: Machine, chosen: Fingerprint) -> str:
    """Reason for which a machine of another kind does not measure."""
    fields = ", ".join(name for name, *_ in chosen.differences(m.fingerprint))
    return f"is not a {kind_of(chosen)} but a {kind_of(m.fingerprint)}: other {fields}"


def _fit(machines: Sequence[Machine], release: str) -> tuple[list[Machine], list[str]]:
    fit, left_out = [], []
    for m in machines:
        if reason := _unfit(m, release):
            left_out.append(f"{m.address}: {reason}")
        else:
            fit.append(m)
    return fit, left_out


def _unfit(m: Machine, release: str) -> str:
    """Reason for which a machine can do nothing at all; '' where it can."""
    if m.release != release:
        return f"has tunegrad {m.release}, not {release}"
    return "was started with no CPUs for Ray, and takes no part" if m.cpus < 1 else ""


def _chosen(kinds: dict[str, list[Machine]], kind: str | None) -> list[Machine]:
    named = {name: found for name, found in kinds.items() if name.startswith(kind or "")}
    if len(named) == 1:
        return next(iter(named.values()))
    listed = ", ".join(f"{name} ({_addresses(found)})" for name, found in sorted(kinds.items()))
    if kind is not None:
        many = "several kinds of machine" if named else "no kind of machine"
        raise ConfigError(f"kind {kind!r} is the start of {many} of the fleet; there are: {listed}")
    (_, a), (_, b), *_ = sorted(kinds.items())
    fields = ", ".join(name for name, *_ in a[0].fingerprint.differences(b[0].fingerprint))
    raise ConfigError(
        f"the fleet has {len(kinds)} kinds of machine, and what one measures does not answer "
        f"for another: {listed}; "
        f"they differ in {fields}; name the kind to measure on with --ray-kind; the others "
        "are left out"
    )


def _addresses(machines: Sequence[Machine]) -> str:
    return " ".join(m.address for m in machines)


LOCAL = "local"
"""The address that means: a cluster of this machine alone, gone when the session ends."""

_RUNNING = "auto"
"""Ray's word for the cluster that this process, or this machine, is connected to."""

RELEASE = f"{__version__} (space {SPACE_VERSION})"

_OBJECT_STORE_BYTES = 100 << 20

_SURVEY_S = 60.0

_CLOSE_S = 3.0

_REACH_S = 5.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _host() -> str:
    """Identity of this machine, the same in all of its containers."""
    return _BOOT_ID.read_text().strip()


def survey(device: str, threads: int, numerics: Numerics) -> tuple[str, str, Any, Any]:
    """Describe this machine: its release of tunegrad, host, device and fingerprint."""
    found = devices.open(device, threads)
    return RELEASE, _host(), found, found.fingerprint(numerics)


class RayCluster:
    """A connection to Ray.

    Use it as a context manager: what it started is stopped however that ends.

    ``share_hosts`` takes the nodes of one machine for machines of their own: only right where
    nothing is timed.
    """

    def __init__(
        self, address: str, device: str, threads: int, numerics: Numerics, share_hosts: bool = False
    ) -> None:
        self.address, self.device, self.threads, self.numerics = address, device, threads, numerics
        self.share_hosts = share_hosts
        self.ray = _import_ray(address)
        self.stations: RayStations | None = None
        self._connected = False

    def __enter__(self) -> Self:
        if self.ray.is_initialized():
            there = self.ray.get_runtime_context().gcs_address
            if self.address not in (there, _RUNNING):
                raise DeviceError(
                    f"ray {self.address}: this process is connected to {there}: name that, or "
                    "disconnect"
                )
            return self
        options: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "namespace": "tunegrad",
        }
        if self.address == LOCAL:
            options |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
        _check_reachable(self.address)
        try:
            self.ray.init(self.address, **options)
        except (
            OSError,
            RuntimeError,
            ValueError,
            self.ray.exceptions.RayError,
        ) as error:  # it can not connect
            raise DeviceError(f"ray {self.address}: {_first_line(error)}") from error
        self._connected = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the actors, and Ray where it was started here."""
        if self.stations is not None:
            self.stations.close()
        if self._connected:
            self._connected = False
            self.ray.shutdown()

    def crew(self, kind: str | None) -> Crew:
        """The machines that measure.

        Raises ConfigError or DeviceError where that can not be said.
        """
        nodes = self.alive()
        asked = {node: self.ask(node) for node in nodes}
        self.ray.wait(list(asked.values()), num_returns=len(asked), timeout=_SURVEY_S)
        machines, silent = [], []
        for node, ref in asked.items():
            found = self.told(nodes[node], ref)
            if isinstance(found, Machine):
                machines.append(found)
            else:
                silent.append(f"{nodes[node]['NodeManagerAddress']}: {found}")
        if not machines:
            raise DeviceError(
                f"ray {self.address}: no machine could be asked what it is: {'; '.join(silent)}"
            )
        crew = choose_crew(machines, kind, RELEASE, self.share_hosts)
        return replace(crew, left_out=(*silent, *crew.left_out))

    def open(
        self, crew: Crew, spec: EngineSpec, warn: Callable[[str], None] = lambda _: None
    ) -> RayStations:
        """Actors for a crew; they start when they are opened.

        ``warn`` is told of machines that come in vain.
        """
        self.stations = RayStations(self, crew, spec, warn)
        return self.stations

    def is_here(self, machine: Machine) -> bool:
        """True for the machine that this process runs on."""
        return machine.host == _host()

    # ---- nodes

    def alive(self) -> dict[str, dict[str, Any]]:
        """Ray's table of the nodes that it takes for alive, by their ids."""
        return {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"]}

    def pinned(self, node: str) -> Any:
        """The scheduling strategy: on this node and on no other."""
        strategies = import_module("ray.util.scheduling_strategies")
        return strategies.NodeAffinitySchedulingStrategy(node, soft=False)

    def ask(self, node: str) -> Any:
        """Ask a node what it is; a reference to what it says."""
        remote = self.ray.remote(survey)
        options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": self.pinned(node)}
        return remote.options(**options).remote(self.device, self.threads, self.numerics)

    def told(self, node: dict[str, Any], ref: Any) -> Machine | str:
        """The machine behind a node; a reason where it did not answer, or can not be used."""
        try:
            release, host, target, found = self.ray.get(ref, timeout=0)
        except self.ray.exceptions.RayError as error:
            return f"can not be asked what it is: {_first_line(error)}"
        address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        cpus = node["Resources"].get("CPU", 0.0)
        return Machine(node["NodeID"], address, host, cpus, target, found, release)


class RayStations:
    """``Stations`` of a crew: an actor for each machine.

    Machines of the crew's kind that come later are taken in; ``warn`` is told once of each other
    one.
    """

    def __init__(
        self,
        cluster: RayCluster,
        crew: Crew,
        spec: EngineSpec,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cluster, self._ray, self._crew = cluster, cluster.ray, crew
        self._spec, self._warn = spec, warn
        self._machines = {m.address: m for m in crew.measuring}
        self._seen = set(cluster.alive())
        self._asked: dict[str, Any] = {}
        self._actors: dict[str, Any] = {}
        self._left_out: set[str] = set()

    def names(self) -> tuple[str, ...]:
        """The machines that measure and are alive, new ones of the same kind included."""
        nodes = self._cluster.alive()
        for node in nodes.keys() - self._seen:
            self._seen.add(node)
            self._asked[node] = self._cluster.ask(node)
        ready, _ = (
            self._ray.wait(list(self._asked.values()), num_returns=len(self._asked), timeout=0)
            if self._asked
            else ([], [])
        )
        for node in [n for n, ref in self._asked.items() if ref in ready]:
            ref = self._asked.pop(node)
            if node in nodes:
                self._welcome(nodes[node], self._cluster.told(nodes[node], ref))
        return tuple(name for name, m in self._machines.items() if m.node in nodes)

    def open(self, name: str) -> bool:
        """Start a machine's actor, anew where there is one."""
        self.end(name)
        machine = self._machines[name]
        if machine.node not in self._cluster.alive():
            return False
        self._actors[name] = self._actor(machine)
        return True

    def end(self, name: str) -> None:
        """Kill a machine's actor; its processes go with it."""
        if (actor := self._actors.pop(name, None)) is not None:
            self._ray.kill(actor)

    def send(self, name: str, call: Call) -> Any:
        """Begin a call."""
        return self._actors[name].call.remote(call.method, call.arguments)

    def done(self, tickets: Collection[Any], timeout_s: float) -> list[Any]:
        """The calls that ended; waits for one."""
        refs = list(tickets)
        if not refs:
            time.sleep(timeout_s)  # no machine is left: one may come
            return []
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        found: list[Any] = ready
        return found

    def take(self, ticket: Any) -> Answer:
        """The answer of a call. Raises StationLost or StationRaised."""
        errors = self._ray.exceptions
        try:
            answer: Answer = self._ray.get(ticket)
        except errors.RayTaskError as error:
            raise StationRaised(error) from error
        except errors.RayError as error:
            raise StationLost(_first_line(error)) from error
        return answer

    def close(self) -> None:
        """Stop every actor; those that do not stop by themselves are killed."""
        actors, self._actors = list(self._actors.values()), {}
        if not self._ray.is_initialized():
            return
        closing = [actor.close.remote() for actor in actors]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for actor in actors:
            self._ray.kill(actor)

    def _actor(self, machine: Machine) -> Any:
        strategy = self._cluster.pinned(machine.node)
        remote = self._ray.remote(Station)
        options = {
            "num_cpus": machine.cpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": strategy,
        }
        return remote.options(**options).remote(self._spec)

    def _welcome(self, node: dict[str, Any], found: Machine | str) -> None:
        """Take in a machine that came later, where it can measure with the crew."""
        if isinstance(found, Machine):
            reason = why_not(found, self._crew, self._hosts(), RELEASE)
            address = found.address
        else:
            reason, address = found, f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        if isinstance(found, Machine) and not reason:
            self._machines[address] = found
        elif address not in self._left_out:
            self._left_out.add(address)
            self._warn(f"left out: {address}: {reason}")

    def _hosts(self) -> dict[str, str]:
        """Hosts on which a machine measures now that no other may disturb, with its address."""
        nodes = self._cluster.alive()
        measuring = {} if self._cluster.share_hosts else self._machines
        return {m.host: m.address for m in measuring.values() if m.node in nodes}


def _import_ray(address: str) -> ModuleType:
    """Ray, told to report nothing to its makers. Raises DeviceError where it is not installed."""
    if address.startswith("ray://"):
        raise DeviceError(
            f"ray {address}: a client's address; run on a node of the cluster and give its "
            "HOST:6379"
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault(
        "RAY_DEDUP_LOGS_SKIP_REGEX", ".*"
    )  # what Ray prints of machines that are lost, we say
    try:
        return import_module("ray")
    except ImportError as error:
        raise DeviceError(
            f"ray {address}: Ray is not installed: pip install 'tunegrad[ray]'"
        ) from error


def _check_reachable(address: str) -> None:
    """Raises DeviceError where nothing listens at ``HOST:PORT``; Ray takes minutes."""
    host, _, port = address.rpartition(":")
    if not host:
        return  # a word, such as local or auto
    try:
        socket.create_connection((host, int(port)), _REACH_S).close()
    except (OSError, ValueError) as error:
        raise DeviceError(
            f"ray {address}: no cluster answers there ({error}); `ray start --head --port "
            "6379` starts one"
        ) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
