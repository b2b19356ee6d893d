"""The server of a watched page: who reaches it, what it answers, and what it costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse
from importlib import import_module
from pathlib import Path
from socket import socket

import pytest

from tests.browser import served
from tests.report_stores import GEMM, KEY, WINNER, store_of, trial, write_session
from tunegrad.cli.app import run
from tunegrad.cli.html import Watched
from tunegrad.db import open_store


def answer(port: int, method: str = "GET", path: str = "/", **headers: str) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers={n.replace("_", "-"): v for n, v in headers.items()})
    found = connection.getresponse()
    found.body = found.read().decode()  # type: ignore[attr-defined]  # kept beside
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_of(tmp_path / "a.db", "s1")


def test_page_of_the_newest_session_is_served_and_known_by_its_version(store: Path) -> None:
    with served(Watched(store)) as port:
        first = answer(port)
        assert first.status == 200
        assert "<h1>small</h1>" in first.body
        assert first.getheader("X-Frame-Options") == "DENY"
        version = first.getheader("ETag") or ""
        assert f'name="version" content="{version}"' in first.body
        again = answer(port, If_None_Match=version)
        assert (again.status, again.body) == (304, "")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1"]
)
def test_other_hosts_are_refused(store: Path, host: str) -> None:
    with served(Watched(store)) as port:
        found = answer(port, Host=host.format(port=port))
        assert found.status == 403
        assert "small" not in found.body
        assert answer(port, Host=f"localhost:{port}").status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/other", 404), ("GET", "/../a.db", 404), ("POST", "/", 501), ("PUT", "/", 501),
     ("DELETE", "/", 501)],
)  # fmt: skip
def test_nothing_else_is_answered(store: Path, method: str, path: str, status: int) -> None:
    before = store.read_bytes()
    with served(Watched(store)) as port:
        assert answer(port, method, path).status == status
    assert store.read_bytes() == before


def test_newer_rows_of_an_open_store_are_shown(store: Path) -> None:
    with served(Watched(store, used=lambda: 0.0)) as port:  # pages cost nothing
        first = answer(port).getheader("ETag") or ""
        with open_store(store, "write") as writer:
            write_session(writer, "s2", "another")
            newer = answer(port, If_None_Match=first)
            assert newer.status == 200
            assert "<h1>another</h1>" in newer.body


def test_making_pages_takes_a_part_of_the_time_alone(store: Path) -> None:
    now, cpu_s, made = [0.0], [0.0], []

    class Counted(Watched):
        def _made(self, version: str) -> bytes:
            made.append(now[0])
            cpu_s[0] += 0.5
            now[0] += 5.0  # it waits for others
            return version.encode()

    watched = Counted(store, clock=lambda: now[0], used=lambda: cpu_s[0])
    for n in range(1, 180):
        os.utime(store, ns=(n, n))  # it changes all the time
        watched.newest()
        now[0] += 0.25
    assert made == [0.0, 15.0, 30.0, 45.0, 60.0]  # half a second of CPU time in fifteen


def test_store_without_a_session_says_that_it_waits(tmp_path: Path) -> None:
    open_store(tmp_path / "a.db", "write").close()
    with served(Watched(tmp_path / "a.db")) as port:
        found = answer(port)
        assert found.status == 200
        assert "no session that measured anything" in found.body


def test_session_that_runs_is_shown_and_has_no_code_compiled_for_it(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def code_of(text: str, *_: object) -> tuple[str, str]:
        asked.append(text)
        return "", ""

    monkeypatch.setattr(import_module("tunegrad.explain"), "code_of", code_of)
    Watched(store).newest()
    assert asked
    asked.clear()
    text = str(GEMM.canonical())
    with (
        open_store(store, "write") as writer,
        writer.session("tune", 7, {"model": "running"}, "0.1.0", "s9") as row,
    ):
        for n, actions in enumerate(("", WINNER)):
            at_s = row.started_s + n
            writer.add(trial(KEY, text, actions, 1e-3, at_s, "default", "s9"))
        _, page = Watched(store).newest()
    assert b"<h1>running</h1>" in page
    assert b"it has not ended, 2 candidates" in page
    assert asked == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere/a.db",), "nowhere does not exist"),
        (("nowhere.db",), "nowhere.db: does not exist"),
        (("{store}", "--store", "{store}"), "a store is given twice"),
        (("--store", "{store}", "--port", "{taken}"), "can not be used"),
    ],
)
def test_errors_are_one_line_before_anything_is_served(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = [a.format(store=store, taken=taken.getsockname()[1]) for a in arguments]
        assert run(["watch", *given]) in (1, 2)
    found = capsys.readouterr()
    assert (found.out, said in found.err) == ("", True)


@pytest.mark.timing
def test_interrupt_ends_it_in_one_line(store: Path) -> None:
    program = "import sys; from tunegrad.cli.app import run; sys.exit(run(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", program, "watch", str(store)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    address = child.stdout.readline()
    assert address.startswith("http://127.0.0.1:")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "", "watch: ended\n")
