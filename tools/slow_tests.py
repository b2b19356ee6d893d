"""Runs every slow test to its end, one file after the other, and keeps what came of each.

    python -m tools.slow_tests                 all of them; what this tree's record has is not run
                                               again
    python -m tools.slow_tests tests/unit      those under a path
    python -m tools.slow_tests --again failed  and those of the record that did not pass
    python -m tools.slow_tests --page          run nothing; write the page from the record

The record (``--record``, by default build/slow_tests.jsonl) has one JSON line a test: its name,
outcome and seconds, the revision, whether the tree differs from it, a hash of the files of the
tree, and the machine. A line is written when its test ends, so a run that is stopped goes on where
it was. Beside it (build/slow_tests.md) stands the record as a page. Exit code 1: a test failed, or
did not get to its end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

__all__ = ["Ran", "Recorder", "collect", "main", "page", "read_record", "tree_hash"]

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "build" / "slow_tests.jsonl"
MARKERS = "slow"
_RECORD_VARIABLE = "TUNEGRAD_SLOW_RECORD"


@dataclass(frozen=True, slots=True)
class Ran:
    """One test that came to its end.

    ``seconds`` is set-up, call and tear-down on the wall clock.
    """

    test: str
    outcome: str
    seconds: float
    why: str
    date: str
    revision: str
    dirty: bool
    tree: str
    machine: str


def tree_hash(root: Path = ROOT) -> str:
    """12 hex digits of the content of every file that git tracks or would add."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", root=root)
    digest = hashlib.blake2b(digest_size=6)
    for name in sorted({n for n in listed.split("\0") if n}):
        path = root / name
        if path.is_file():
            digest.update(f"{name}\0".encode() + hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def machine() -> str:
    """The processor, cores, memory and Python, in words."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = psutil.virtual_memory().total / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {memory:.0f} GiB, Linux, Python {platform.python_version()}"


def collect(paths: Sequence[str], marker: str = MARKERS) -> list[str]:
    """The names of the tests under ``paths`` that ``marker`` selects, in the order of their
    files.
    """
    command = _pytest("--collect-only", "-q", "-m", marker, *paths)
    found = subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False
    )
    if found.returncode not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise SystemExit(f"collecting the slow tests failed:\n{found.stdout}{found.stderr}")
    return [line for line in found.stdout.splitlines() if "::" in line]


def read_record(path: Path) -> list[Ran]:
    """Every line of a record; none where there is no file."""
    if not path.exists():
        return []
    return [Ran(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


class Recorder:
    """A pytest plugin that writes one line a test to the record as soon as the test has ended."""

    def __init__(self, path: Path, facts: dict[str, object]) -> None:
        self._path, self._facts = path, facts
        self._seconds: dict[str, float] = {}
        self._worst: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.outcome != "passed":
            text = (
                report.longrepr[2]
                if isinstance(report.longrepr, tuple)
                else str(report.longreprtext)
            )
            self._worst.setdefault(
                name, (report.outcome, text.strip().splitlines()[-1] if text.strip() else "")
            )
        if report.when == "teardown":
            outcome, why = self._worst.pop(name, ("passed", ""))
            seconds = round(self._seconds.pop(name), 2)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            line = {
                "test": name,
                "outcome": outcome,
                "seconds": seconds,
                "why": why,
                "date": now,
                **self._facts,
            }
            with self._path.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder in the pytest process of one file, for ``-p tools.slow_tests``."""
    facts = json.loads(os.environ[_RECORD_VARIABLE])
    config.pluginmanager.register(Recorder(Path(facts.pop("record")), facts))


def page(ran: Iterable[Ran]) -> str:
    """The lines of the record's newest tree as Markdown. ``ran`` has at least one."""
    lines = list(ran)
    newest = lines[-1]
    last = {r.test: r for r in lines if r.tree == newest.tree}
    outcomes = [r.outcome for r in last.values()]
    counts = ", ".join(f"{outcomes.count(o)} {o}" for o in sorted(set(outcomes)))
    state = "with changes that are not committed" if newest.dirty else "as committed"
    minutes = sum(r.seconds for r in last.values()) / 60
    text = [
        "# Slow tests",
        "",
        (
            f"Revision {newest.revision}, {state} (tree {newest.tree}), {newest.date[:10]}: "
            f"{counts}; "
            f"{minutes:.0f} minutes. Made by `python -m tools.slow_tests` on {newest.machine}."
        ),
        "Tests of one function with different parameters are one row; the seconds are their sum.",
        "",
        "| test | cases | outcome | seconds |",
        "|---|---|---|---|",
    ]
    groups: dict[str, list[Ran]] = {}
    for r in last.values():
        groups.setdefault(r.test.partition("[")[0], []).append(r)
    for name, members in sorted(groups.items()):
        outcome = ", ".join(sorted({m.outcome for m in members}))
        text.append(
            f"| `{name}` | {len(members)} | {outcome} | {sum(m.seconds for m in members):.1f} |"
        )
    wrong = [r for r in last.values() if r.outcome != "passed"]
    if wrong:
        text += ["", "Not passed:", "", *(f"- `{r.test}`: {r.outcome}: {r.why}" for r in wrong)]
    return "\n".join(text) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.slow_tests", description="run and record the slow tests"
    )
    parser.add_argument("paths", nargs="*", default=["tests"])
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument(
        "--marker", default=MARKERS, help="a pytest -m expression (default: %(default)s)"
    )
    parser.add_argument(
        "--again", choices=["failed", "all"], help="run these once more, though the record has them"
    )
    parser.add_argument(
        "--page", action="store_true", help="run nothing; write the page from the record"
    )
    options = parser.parse_args(argv)
    options.record.parent.mkdir(parents=True, exist_ok=True)
    tree = tree_hash()
    names = [] if options.page else collect(options.paths, options.marker)
    left = _left(names, [r for r in read_record(options.record) if r.tree == tree], options.again)
    facts = {
        "record": str(options.record.resolve()),
        "revision": _git("rev-parse", "--short=12", "HEAD").strip(),
        "dirty": bool(_git("status", "--porcelain").strip()), "tree": tree, "machine": machine(),
    }  # fmt: skip
    unfinished = [
        name
        for file, tests in _by_file(left).items()
        for name in _run_file(file, tests, facts, options.record)
    ]
    ran = read_record(options.record)
    if ran:
        options.record.with_suffix(".md").write_text(page(ran), encoding="utf-8")
    last = {r.test: r.outcome for r in ran if r.tree == tree}
    failed = [name for name in names if last.get(name) == "failed"]
    for name in unfinished:
        print(f"did not get to its end: {name}", file=sys.stderr)
    print(
        f"{len(names)} slow tests, {len(left)} run now, {len(failed)} failed, "
        f"{len(unfinished)} did not end",
        file=sys.stderr,
    )
    return 1 if failed or unfinished else 0


def _left(names: Sequence[str], known: Sequence[Ran], again: str | None) -> list[str]:
    """The tests that the record of this tree lacks, or that are to be run again."""
    last = {r.test: r.outcome for r in known}
    done = {"failed": {"passed", "skipped"}, "all": set()}.get(
        again or "", {"passed", "skipped", "failed"}
    )
    return [name for name in names if last.get(name) not in done]


def _by_file(names: Iterable[str]) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for name in names:
        files.setdefault(name.partition("::")[0], []).append(name)
    return files


def _run_file(file: str, tests: Sequence[str], facts: dict[str, object], record: Path) -> list[str]:
    """Run the tests of one file in a pytest of its own; returns those that left no line."""
    start, before = time.monotonic(), len(read_record(record))
    command = _pytest("-m", "", "-q", "-n", "0", "-p", "tools.slow_tests", *tests)
    environment = _environment() | {_RECORD_VARIABLE: json.dumps(facts)}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    lines = read_record(record)[before:]
    print(
        f"--- {file}: {len(lines)} of {len(tests)}, exit code {code}, "
        f"{time.monotonic() - start:.0f} s",
        file=sys.stderr,
    )
    return sorted(set(tests) - {r.test for r in lines})


def _environment() -> dict[str, str]:
    """This process's, where the checkout is what is imported, whether or not it is installed."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _pytest(*arguments: str) -> list[str]:
    # In the order of the files: a resumed run does the rest of what the first one would have done.
    return [sys.executable, "-m", "pytest", "-p", "no:randomly", *arguments]


def _git(*arguments: str, root: Path = ROOT) -> str:
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(
            f"git {arguments[0]}: {ran.stderr.strip()}: the record needs a git checkout"
        )
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
