"""Roles of the machines of a fleet: some measure, the others are left out.

    machines --group by fingerprint--> kinds --one kind--> measure, one actor for each host
                                             --others----> left out

A row says which kind of machine it is from, and answers for that kind alone. So one session
measures on one kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunegrad.devices import Device
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.trial import Fingerprint

__all__ = ["Crew", "Machine", "choose_crew", "kind_of", "why_not"]


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
    """A short name of a kind of machine, the same everywhere: its architecture, and six digits for
    all the rest.
    """
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
