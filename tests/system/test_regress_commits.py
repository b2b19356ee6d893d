"""A real repository of models, of which one commit is 15 times slower: built, timed, named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulated_nights import World, stored
from tunegrad.cli.app import run
from tunegrad.errors import ConfigError, UserError
from tunegrad.regress import between, bisecting, load_sweep
from tunegrad.regress.bisecting import revision_of_models
from tunegrad.regress.nights import Night
from tunegrad.regress.report import Alert, Step
from tunegrad.trial import Fingerprint

TOY = """
import tunegrad as tg

class Toy(tg.nn.Module):
    def forward(self, x):
        for _ in range({count}):
            x = x @ x
        return x

def model():
    return tg.Model.of("toy", Toy, [tg.InputSpec("x", (96, 96))])
"""


def git(root: Path, *words: str) -> str:
    about = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=no"]
    done = subprocess.run(
        ["git", "-C", str(root), *about, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Four commits: quick, a file beside it, slow, and one whose subject says nothing."""
    root = tmp_path / "models"
    root.mkdir()
    git(root, "init", "-q")
    (root / "sweep.toml").write_text(
        '[regress]\nmodels = ["toy:model"]\nthreads = 1\nstore = "../nights.db"\n', "utf-8"
    )
    for count, subject in ((2, "quick"), (2, "notes"), (30, "slow it is"), (30, "more notes")):
        (root / "toy.py").write_text(TOY.format(count=count), "utf-8")
        (root / "notes.txt").write_text(subject, "utf-8")
        git(root, "add", "-A")
        git(root, "commit", "-qm", subject)
    return root


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that show a factor of 15: all six of a test, or noise tells equal commits apart."""
    for name, value in (("ALPHA", 0.02), ("SCREEN", 5), ("CONFIRM", 6), ("LEAD", 1)):
        monkeypatch.setattr(bisecting, name, value)


@pytest.mark.timing
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("few")
def test_the_commit_that_is_slow_is_named_also_after_a_stop(repository: Path) -> None:
    settings = load_sweep(repository / "sweep.toml")
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if "is like" in line:
            os.kill(os.getpid(), signal.SIGTERM)

    command = "test ! -e broken && echo made > built.txt"
    assert between(settings, ("HEAD~2", "HEAD"), stop, build=command).interrupted
    more: list[str] = []
    report = between(settings, ("HEAD~2", "HEAD"), more.append, build=command)
    assert more[0].startswith("going on with ")
    (alert,) = report.alerts
    assert (alert.subject, alert.author, alert.others) == ("slow it is", "Ada", ())
    assert alert.commit == git(repository, "rev-parse", "HEAD~1")
    assert alert.before == git(repository, "rev-parse", "HEAD~2")
    series = {row.series: row.ratio for row in alert.rows}
    assert series.keys() == {"toy:model", "toy:model: matmul 96x96x96"}
    assert min(series.values()) > 3.0
    assert report.builds == 3
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--porcelain") == ""


KILLED = """
import sys
from pathlib import Path
from tunegrad.regress.bisecting import _Repository
from tunegrad.regress import load_sweep
root, place, commit, command = sys.argv[1:]
settings = load_sweep(Path(root, "sweep.toml"))
_Repository(Path(root), Path(place), settings, command).build(commit)
"""


def test_a_build_that_outlived_a_killed_run_is_ended(repository: Path, tmp_path: Path) -> None:
    commit, place = git(repository, "rev-parse", "HEAD"), tmp_path / "place"
    place.mkdir()
    words = [sys.executable, "-c", KILLED, str(repository), str(place), commit]
    endless = "echo $$ > begun; while :; do mkdir -p out && echo made > out/file; done"
    begun = place / commit / "begun"
    with subprocess.Popen([*words, endless]) as process:
        while not (begun.exists() and begun.read_text("utf-8").endswith("\n")):
            assert process.poll() is None
        shell = Path("/proc", begun.read_text("utf-8").strip(), "cwd")
        process.kill()
    assert shell.readlink() == place / commit
    subprocess.run([*words, "test ! -e out"], check=True)
    with pytest.raises(OSError, match="No such"):
        shell.readlink()


def test_a_build_is_known_before_its_first_command(repository: Path, tmp_path: Path) -> None:
    commit, place = git(repository, "rev-parse", "HEAD"), tmp_path / "place"
    place.mkdir()
    command = 'test "$(cat "$PWD.pid")" = $$ && exec true'
    subprocess.run([sys.executable, "-c", KILLED, str(repository), str(place), commit, command],
        check=True)  # fmt: skip
    assert (place / f"{commit}.built").exists()


def test_a_tree_that_git_does_not_make_ends_the_run_and_is_tried_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: it says nothing about the commit, so nothing is journaled."""
    settings = load_sweep(repository / "sweep.toml")
    whole = bisecting._git

    def full(root: Path, *words: str) -> str:
        if words[:2] == ("worktree", "add"):
            raise UserError(f"git worktree in {root}: No space left on device")
        return whole(root, *words)

    monkeypatch.setattr(bisecting, "_git", full)
    for _ in range(2):
        with pytest.raises(UserError, match="No space left on device"):
            between(settings, ("HEAD~1", "HEAD"))
    (journal,) = settings.store.parent.rglob("journal.jsonl")
    assert journal.read_text("utf-8").count("\n") == 1


def test_ends_that_are_none_are_errors(repository: Path) -> None:
    settings = load_sweep(repository / "sweep.toml")
    with pytest.raises(ConfigError, match="--between nightly: neither a night of"):
        between(settings, ("HEAD", "nightly"))
    with pytest.raises(ConfigError, match=r"is no ancestor of .*; the older one comes first"):
        between(settings, ("HEAD", "HEAD~1"))
    with pytest.raises(ConfigError, match="both are commit"):
        between(settings, ("HEAD", "HEAD"))
    with pytest.raises(UserError, match=r"git rev-parse in .*not a git repository"):
        between(replace(settings, folder=repository.parent), ("HEAD~1", "HEAD"))
    with pytest.raises(UserError, match="does not run: its build exits with 3: no compiler"):
        between(settings, ("HEAD~1", "HEAD"), build="echo no compiler; exit 3")


def test_commits_that_change_nothing_that_is_timed_are_left_out(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["regress", str(repository / "sweep.toml"), "--json", "--only", "nothing.py"]
    assert run([*words, "--between", "HEAD~3", "HEAD"]) == 0
    assert json.loads(capsys.readouterr().out)["commits"] == 0
    assert run(words) == 1
    assert "go with --between" in capsys.readouterr().err


def test_a_commit_on_a_branch_is_followed_by_its_merge_and_any_message_is_read(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "checkout", "-q", "-b", "side", "HEAD~2")
    git(repository, "commit", "-q", "--allow-empty", "-m", "on a branch")
    git(repository, "checkout", "-q", "-")
    git(repository, "merge", "-q", "--no-ff", "-m", "merged", "side")
    git(repository, "commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "")
    git(repository, "commit", "-q", "--allow-empty", "-m", "a\x0bb \u2028 c")
    git(repository, "-c", "i18n.commitEncoding=none", "commit", "-q", "--allow-empty", "-F",
        str(latin(repository)))  # fmt: skip
    ran: list[list[str]] = []

    def run(self: bisecting.Bisection) -> tuple[Step, ...]:
        ran.append([*self.commits])
        self.alerts += [Alert(c, c, ()) for c in self.commits[1:]]
        return ()

    monkeypatch.setattr(bisecting.Bisection, "run", run)
    settings = load_sweep(repository / "sweep.toml")
    report = between(settings, ("side", "HEAD"))
    assert ran == [[git(repository, "rev-parse", c) for c in ("side", *names("HEAD", 4))]]
    said = [a.subject for a in report.alerts]
    assert said == ["merged", "", "a\x0bb \u2028 c", "sl\ufffdw"]
    between(settings, ("side", "HEAD"), paths=("toy.py",))
    assert ran[1] == [git(repository, "rev-parse", c) for c in ("side", "HEAD~3")]


def names(last: str, count: int) -> list[str]:
    return [f"{last}~{n}" for n in reversed(range(count))]


def latin(folder: Path) -> Path:
    """A message that is no UTF-8."""
    path = folder.parent / "message"
    path.write_bytes("slöw".encode("latin-1"))
    return path


def test_a_night_names_the_commit_that_it_ran(repository: Path) -> None:
    settings = load_sweep(repository / "sweep.toml")
    stored(settings.store, World(nights=2).run(1))
    with pytest.raises(ConfigError, match="night night1 ran no known revision; name a commit"):
        between(settings, ("HEAD~1", "last"))
    with pytest.raises(ConfigError, match="has 2 nights"):
        between(settings, ("last~2", "last"))


def test_a_night_on_several_devices_is_one_end(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_sweep(repository / "sweep.toml")
    commits = [git(repository, "rev-parse", c) for c in names("HEAD", 4)]
    nights = World(nights=3, kernels=1).run(1)
    stored(settings.store, [on_two(n, c[:12]) for n, c in zip(nights, commits, strict=False)])
    ran: list[list[str]] = []

    def run(self: bisecting.Bisection) -> tuple[Step, ...]:
        ran.append([*self.commits])
        return ()

    monkeypatch.setattr(bisecting.Bisection, "run", run)
    between(settings, ("last~2", "last~1"))
    between(settings, ("night0", "night1"))
    between(settings, ("night1", "last"))
    assert ran == [commits[:2], commits[:2], commits[1:3]]


def on_two(night: Night, revision: str) -> Night:
    """A night that ran a revision of models, on one device more."""
    other = Fingerprint((("cpu_name", "one"), ("device", "opencl")))
    rows = {
        (series, key + more): replace(
            row,
            fingerprint=other if more else row.fingerprint,
            versions=tuple(sorted({**dict(row.versions), "models": revision}.items())),
        )
        for more in ("", "2")
        for (series, key), row in night.rows.items()
    }
    return replace(night, rows=rows)


def test_the_revision_of_models_is_their_repository_s(repository: Path, tmp_path: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert revision_of_models(repository) == head[:12]
    (repository / "toy.py").write_text("", "utf-8")
    assert revision_of_models(repository) == f"{head[:12]}-dirty"
    assert revision_of_models(Path(bisecting.__file__).parent) == ""
    assert revision_of_models(tmp_path) == ""
