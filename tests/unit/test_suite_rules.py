"""The suite's own rules: no network, and a list of what fails now and then."""

from __future__ import annotations

import socket
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from tests import no_network, peaks, quarantine

ENTRY = 'test = "tests/a.py::test_a"\nowner = "o"\nreason = "r"\nsince = 2026-01-31\n'
DOCUMENTATION = "192.0.2.1"
"""An address that belongs to nobody (RFC 5737)."""


class Item:
    """What the list needs of a collected test."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.markers: list[pytest.MarkDecorator] = []

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.markers.append(marker)


@pytest.mark.parametrize(
    "reach",
    [
        lambda: socket.create_connection((DOCUMENTATION, 9), timeout=0.1),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (DOCUMENTATION, 9)),
        lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 9)),
        lambda: socket.getaddrinfo("example.invalid", 80),
        lambda: socket.gethostbyname("example.invalid"),
    ],
    ids=["tcp", "udp", "tcp6", "name", "name4"],
)
def test_suite_reaches_no_other_machine(reach):
    with pytest.raises(no_network.NetworkUsed, match="another machine"):
        reach()
    assert no_network.reached  # so the test fails, even if its code catches the error
    no_network.reached.clear()


def test_suite_may_talk_to_itself():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"
    left, right = socket.socketpair()
    left.close()
    right.close()


def test_suite_quarantine_lets_a_listed_test_fail_and_names_its_owner(tmp_path: Path):
    path = tmp_path / "quarantine.toml"
    path.write_text("[[quarantined]]\n" + ENTRY)
    listed = quarantine.entries(path)
    assert listed == [quarantine.Entry("tests/a.py::test_a", "o", "r", date(2026, 1, 31))]
    items = [Item("tests/a.py::test_a"), Item("tests/a.py::test_b")]
    quarantine.apply(items, listed)
    (marker,) = items[0].markers
    assert (marker.name, marker.kwargs["strict"]) == ("xfail", False)
    assert "o mends it: r" in marker.kwargs["reason"]
    assert not items[1].markers


def test_suite_quarantine_refuses_a_test_that_is_gone():
    entry = quarantine.Entry("tests/a.py::test_gone", "o", "r", date(2026, 1, 31))
    with pytest.raises(pytest.UsageError, match="test_gone: there is no such test"):
        quarantine.apply([Item("tests/a.py::test_a")], [entry])
    quarantine.apply([Item("tests/b.py::test_a")], [entry])  # its file was not collected
    quarantine.apply(
        [Item("tests/a.py::test_a")], [entry], whole_files=False
    )  # tests were named one by one


@pytest.mark.parametrize("line", ["owner", "reason", "since"])
def test_suite_quarantine_refuses_an_entry_without(tmp_path: Path, line: str):
    path = tmp_path / "quarantine.toml"
    path.write_text(
        "[[quarantined]]\n" + "".join(x for x in ENTRY.splitlines(True) if not x.startswith(line))
    )
    with pytest.raises(pytest.UsageError, match="an entry has owner, reason, since, test"):
        quarantine.entries(path)


def test_suite_quarantine_of_the_project_can_be_read():
    assert isinstance(quarantine.entries(), list), "an entry that breaks a rule is an error"


def test_suite_counts_the_memory_of_each_test_anew():
    def take():
        assert np.ones(300 << 20, np.uint8)[::4096].sum() == 300 << 8

    peaks.forget()
    least = peaks.own_bytes()
    if not least:
        pytest.skip("this system does not say what a process held")
    for _ in range(2):
        take()
        most = peaks.own_bytes()
        peaks.forget()
        assert most - least > 250 << 20
        assert most - peaks.own_bytes() > 150 << 20
