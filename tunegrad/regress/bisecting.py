"""The commit that made models slower, between two nights or commits, by paired measurement.

    confirm   A, B in turns: is anything slower?             else: no difference
    bisect    lo, mid, hi in turns: is mid like lo or hi?    log2(commits) builds
    confirm   lo, commit before, commit, hi in turns         one alert a commit; next side

A *round* starts a process for each commit and times them in turns, with yardsticks beside each. A
process has its own luck (where its memory lies), so rounds are what is counted, by the signed-rank
test. The rounds that choose a series are others than those that test it. All series that a commit
made slower are one alert. A row has to move by more than the yardsticks beside it.

Every build and round is a line of a journal. What is decided depends on these alone, so a run that
was killed goes on by reading them.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import exp, ulp
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TextIO

import msgspec
import numpy as np

from tunegrad.db import open_store
from tunegrad.errors import CandidateFailure, ConfigError, UserError
from tunegrad.paired import shift_interval, signed_rank_p
from tunegrad.tuning import Interrupt

from .nights import YARDSTICK, ago, nights_of, split_series
from .report import Alert, BetweenReport, Step
from .settings import Served, SweepSettings

Round = Mapping[str, Mapping[str, Sequence[float]]]
"""Seconds turn by turn, by commit, by series, of one process a commit. Yardsticks are series."""

ALPHA = 1e-3
"""The probability at which noise alone is called slower, of two commits that do not differ."""

SCREEN, CONFIRM = 6, 12
"""Rounds that choose a series, where 5 % is enough, and that test it: ALPHA needs ten, and twelve
allow that the luck of one process hides a slowdown in one of them.
"""

LEAD, MOST = 3, 9
"""A commit is like one end when that many rounds more say so: where one round in ten errs, this
errs in 1 of 700 (a random walk). At most so many rounds.
"""

_MISSES = 2
"""Times that halving ends at a commit that is not slower than the one before, until a slowdown is
called spread over its range.
"""

_TURNS, _TURN_S = 5, 0.01


class CommitError(Exception):
    """A commit that does not run, and why."""

    def __init__(self, commit: str, why: str) -> None:
        super().__init__(why)
        self.commit, self.why = commit, why


class Measurer(Protocol):
    """Builds commits and times them."""

    def build(self, commit: str) -> None:
        """Make a commit ready to be timed. Raises CommitError where it can not be built."""

    def round(self, commits: Sequence[str]) -> Round:
        """Time these in turns, each in a fresh process. Raises CommitError for one that fails."""


@dataclass
class Bisection:
    """Decides which of the commits, oldest first, made something slower. Mutable.

    The first one and the last are the ends, which have to run.
    """

    commits: Sequence[str]
    measurer: Measurer
    tell: Callable[[str], None] = lambda _: None
    built: dict[str, str] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    rounds: int = 0

    def run(self) -> tuple[Step, ...]:
        """Fill ``alerts``; how every series differs between the ends.

        Raises CommitError where an end does not run.
        """
        lo, hi = 0, len(self.commits) - 1
        for end in (lo, hi):
            if not self._runs(end):
                raise CommitError(self.commits[end], self.built[self.commits[end]])
        first = self._rounds((lo, hi), SCREEN)
        row = _strongest(first, *self._pair(lo, hi), 0.05)
        more = self._tested(lo, hi, row) if row else None
        if row and more:
            self._find(lo, hi, row, more, 0)
        self.alerts.sort(key=lambda a: self.commits.index(a.commit))
        return _compared(more or first, *self._pair(lo, hi))

    def _find(self, lo: int, hi: int, row: str, proof: Sequence[Round], misses: int) -> None:
        """Alerts for what made ``row`` slower from ``lo`` to ``hi``, as ``proof`` shows."""
        before, commit = self._halve(lo, hi, row)
        seen = self._rounds(sorted({lo, before, commit, hi}), CONFIRM)
        alerts = len(self.alerts)
        if _chance(_steps(seen, row, *self._pair(before, commit))) <= ALPHA:
            self._alert(before, commit, _slower(seen, *self._pair(before, commit)))
        else:
            misses += 1
        for a, b in ((lo, before), (commit, hi)):
            rest = _strongest(seen, *self._pair(a, b), ALPHA) if a < b and misses < _MISSES else ""
            if rest and (more := self._tested(a, b, rest)):
                self._find(a, b, rest, more, misses)
        if len(self.alerts) == alerts:  # spread over them: no single one is surely slower
            self._alert(lo, hi, _slower(proof, *self._pair(lo, hi)))

    def _halve(self, lo: int, hi: int, row: str) -> tuple[int, int]:
        """Neighbours that run and have the series, with most of the slowdown between them."""
        without: list[int] = []
        while (mid := self._middle(lo, hi, without)) is not None:
            try:
                slower = self._like_slower(lo, mid, hi, row)
            except CommitError as error:
                if error.commit != self.commits[mid]:
                    raise
                self._failed(error)
                continue
            if slower is None:
                without.append(mid)
                self.tell(f"{_short(self.commits[mid])} has no {row}")
                continue
            lo, hi = (lo, mid) if slower else (mid, hi)
            self.tell(
                f"{_short(self.commits[mid])} is like {'B' if slower else 'A'}: "
                f"{hi - lo} commits are left"
            )
        return lo, hi

    def _like_slower(self, lo: int, mid: int, hi: int, row: str) -> bool | None:
        """True where mid is like hi; None where it has no such series: kernels come and go."""
        lead, seen = 0, []
        for _ in range(MOST):
            one = self._rounds((lo, mid, hi), 1)
            if row not in one[0]:
                return None
            (up,) = _steps(one, row, *self._pair(lo, mid))
            (down,) = _steps(one, row, *self._pair(mid, hi))
            seen.append(up - down)
            lead += 1 if up > down else -1
            if abs(lead) >= LEAD:
                break
        return median(seen) > 0.0

    def _middle(self, lo: int, hi: int, without: Sequence[int]) -> int | None:
        """The commit in the middle, or the nearest to it that can be built, but ``without``."""
        for at in sorted(range(lo + 1, hi), key=lambda at: (abs(2 * at - lo - hi), at)):
            if at not in without and self._runs(at):
                return at
        return None

    def _runs(self, at: int) -> bool:
        commit = self.commits[at]
        if commit not in self.built:
            self.tell(f"building {_short(commit)}")
            self.built[commit] = ""
            try:
                self.measurer.build(commit)
            except CommitError as error:
                self._failed(error)
        return not self.built[commit]

    def _failed(self, error: CommitError) -> None:
        self.built[error.commit] = error.why
        self.tell(f"{_short(error.commit)} is skipped: {error.why}")

    def _rounds(self, places: Sequence[int], count: int) -> list[Round]:
        self.rounds += count
        return [self.measurer.round([self.commits[p] for p in places]) for _ in range(count)]

    def _tested(self, lo: int, hi: int, row: str) -> list[Round]:
        """Rounds of their own that show a series slower at ``hi``; none where they do not."""
        seen = self._rounds((lo, hi), CONFIRM)
        steps = _steps(seen, row, *self._pair(lo, hi))
        sure = _chance(steps) <= ALPHA and _beyond(seen, steps, *self._pair(lo, hi))
        return seen if sure else []

    def _alert(self, before: int, commit: int, rows: tuple[Step, ...]) -> None:
        others = tuple(self.commits[before + 1 : commit])
        self.alerts.append(Alert(self.commits[commit], self.commits[before], rows, others))

    def _pair(self, a: int, b: int) -> tuple[str, str]:
        return self.commits[a], self.commits[b]


def _steps(rounds: Sequence[Round], series: str, a: str, b: str) -> list[float]:
    """log(b / a) of a series, round by round of those that have it: the median over turns."""
    return [
        float(np.median(np.log(np.array(r[series][b]) / np.array(r[series][a]))))
        for r in rounds
        if series in r
    ]


def _chance(steps: Sequence[float]) -> float:
    """Probability of steps so far above 0, of two commits that do not differ."""
    return signed_rank_p([-step or ulp(0.0) for step in steps])


def _compared(rounds: Sequence[Round], a: str, b: str) -> tuple[Step, ...]:
    """The difference of every series."""
    found = []
    for name in _series(rounds):
        middle, within = shift_interval(_steps(rounds, name, a, b))
        found.append(Step(name, exp(middle), within and (exp(within[0]), exp(within[1]))))
    return tuple(found)


def _slower(rounds: Sequence[Round], a: str, b: str) -> tuple[Step, ...]:
    """The series that are slower at b, at 95 %: of a commit of which one surely is."""
    return tuple(s for s in _compared(rounds, a, b) if s.interval and s.interval[0] > 1.0)


def _series(rounds: Sequence[Round]) -> list[str]:
    """Series in all rounds, whole models first; without yardsticks."""
    common = set(rounds[0]).intersection(*rounds)
    return sorted((s for s in common if not s.startswith(YARDSTICK)), key=lambda s: (": " in s, s))


def _beyond(rounds: Sequence[Round], steps: Sequence[float], a: str, b: str) -> bool:
    """True where a series moved by more than each of the yardsticks beside it."""
    sticks = [s for s in rounds[0] if s.startswith(YARDSTICK)]
    return all(
        shift_interval(_steps(rounds, s, a, b))[0] < shift_interval(steps)[0] for s in sticks
    )


def _strongest(rounds: Sequence[Round], a: str, b: str, most: float) -> str:
    """The series that is most surely slower at b; empty where none is, at this probability."""
    best = ("", most, 0.0)
    for name in _series(rounds):
        steps = _steps(rounds, name, a, b)
        chance, (_, interval) = _chance(steps), shift_interval(steps)
        least = interval[0] if interval else 0.0
        if (chance, -least) < (best[1], -best[2]):
            best = (name, chance, least)
    return best[0]


# ---- the journal


_Result = str | dict[str, str | dict[str, list[float]]]
"""Reason why a build fails, or nothing; times of a round, or its ``failed`` commit and ``why``."""


class Journal:
    """Measures, writes each result to a file, and reads what an earlier run wrote. Mutable."""

    def __init__(self, path: Path, begun: object, inner: Measurer, *, fresh: bool) -> None:
        self._inner, self._places = inner, dict[str, int]()
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise UserError(f"{path}: another `regress --between` of these is running") from error
        self._file.seek(0)
        text = b"" if fresh else self._file.read()
        whole = text[: text.rfind(b"\n") + 1]  # a line that a kill cut off is no result
        first, *lines = whole.splitlines() or [b""]
        goes_on = first == msgspec.json.encode(begun)
        self._file.truncate(len(whole) if goes_on else 0)
        self._known: dict[str, list[_Result]] = {}
        self.known = len(lines) if goes_on else 0
        try:
            for line in lines[: self.known]:
                name, found = msgspec.json.decode(line, type=tuple[str, _Result])
                self._known.setdefault(name, []).append(found)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._file.close()
            raise UserError(f"{path}: it is damaged, and --fresh begins anew: {error}") from error
        if not goes_on:
            self._write(begun)

    def build(self, commit: str) -> None:
        """Build, or read what came of it."""
        why = self._taken(f"build {commit}")
        if why is None:
            try:
                self._inner.build(commit)
                why = ""
            except CommitError as error:
                why = error.why
            self._write((f"build {commit}", why))
        if why:
            raise CommitError(commit, why)

    def round(self, commits: Sequence[str]) -> Round:
        """Measure, or read what was measured."""
        name = f"round {' '.join(commits)}"
        found = self._taken(name)
        if found is None:
            try:
                for commit in commits:  # an earlier run may have removed what it built
                    self._inner.build(commit)
                found = self._inner.round(commits)
            except CommitError as error:
                found = {"failed": error.commit, "why": error.why}
            self._write((name, found))
        if "failed" in found:
            raise CommitError(found["failed"], found["why"])
        measured: Round = found
        return measured

    def close(self) -> None:
        """Let another run have it."""
        self._file.close()

    def _taken(self, name: str) -> Any:
        at = self._places.get(name, 0)
        self._places[name] = at + 1
        known = self._known.get(name, [])
        return known[at] if at < len(known) else None

    def _write(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


# ---- commits of a repository


def _probe(asked: Any, said: TextIO) -> None:
    """Time models whenever a line comes, in the process of a commit: by the public names that each
    commit of tunegrad has. Its text runs there, not this module.
    """
    import json
    import statistics
    import sys

    import tunegrad as tg

    models = {}
    for row, model, options in asked["models"]:
        models[row] = tg.load(model, **options)
    print(json.dumps(tg.__file__), file=said, flush=True)
    for _ in sys.stdin:
        found = {}
        for row, loaded in models.items():
            count = 3 + min(50, int(asked["turn_s"] / max(min(loaded.benchmark_s(3)), 1e-6)))
            found[row] = statistics.median(loaded.benchmark_s(count))
            for kernel, seconds in loaded.profile_s(5) if hasattr(loaded, "profile_s") else ():
                name = f"{row}: {kernel}"
                found[name] = found.get(name, 0.0) + seconds
        print(json.dumps(found), file=said, flush=True)


_START = """
import json, os, sys
said = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
_probe(json.loads(sys.argv[1]), said)
"""


_BUILD = 'echo $$ >"$0" && exec /bin/sh -c "$1"'
"""The shell notes its number before it builds: the next run finds one that outlived a run."""


@dataclass
class _Repository:
    """Builds commits in work trees of a repository, and times them. Mutable."""

    root: Path
    place: Path
    settings: SweepSettings
    command: str

    def build(self, commit: str) -> None:
        """A work tree of its own, and the build command in it. Raises UserError where git makes no
        tree, which says nothing about the commit.
        """
        tree = self.place / commit
        if (self.place / f"{commit}.built").exists() and tree.is_dir():
            return
        _end_build(self.place / f"{commit}.pid", tree)
        self._drop(commit)
        _git(self.root, "worktree", "add", "--force", "--detach", "--quiet", str(tree), commit)
        if self.command:
            words = ["/bin/sh", "-c", _BUILD, str(self.place / f"{commit}.pid"), self.command]
            with (self.place / f"{commit}.log").open("wb") as log:
                process = subprocess.Popen(
                    words, cwd=tree, env=_environment(tree), stdout=log, stderr=log,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
                try:
                    code = process.wait()
                except BaseException:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    raise
            if code:
                raise CommitError(commit, f"its build exits with {code}: {self._last(commit)}")
        (self.place / f"{commit}.built").touch()

    def _last(self, commit: str) -> str:
        text = (self.place / f"{commit}.log").read_text("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else "it says nothing"

    def round(self, commits: Sequence[str]) -> Round:
        """Time commits in turns that each begin with another one."""
        found: dict[str, dict[str, list[float]]] = {}
        with ExitStack() as stack:
            probes = [stack.enter_context(self._started(c)) for c in commits]
            for turn in range(_TURNS):
                for n in range(len(commits)):
                    at = (turn + n) % len(commits)
                    for series, seconds in self._turn(commits[at], probes[at]).items():
                        found.setdefault(series, {}).setdefault(commits[at], []).append(seconds)
        return {s: by for s, by in found.items() if len(by) == len(commits)}

    def _started(self, commit: str) -> Served:
        tree = self.place / commit
        own = tree / ".venv" / "bin" / "python"
        code = f"from __future__ import annotations\n{inspect.getsource(_probe)}{_START}"
        asked = {"models": list(self._models(tree)), "turn_s": _TURN_S}
        command = [
            str(own) if own.exists() else sys.executable,
            "-c",
            code,
            msgspec.json.encode(asked).decode(),
        ]
        try:
            served = Served(_short(commit), command, tree, _environment(tree))
        except CandidateFailure as error:
            raise CommitError(commit, str(error)) from error
        source = Path(msgspec.json.decode(served.ready, type=str)).resolve()
        if (tree / "tunegrad" / "__init__.py").exists() and not source.is_relative_to(
            tree.resolve()
        ):
            served.close()
            raise CommitError(commit, f"its tunegrad is not what runs: {source} does")
        return served

    def _models(self, tree: Path) -> Iterator[tuple[str, str, dict[str, object]]]:
        """Series, model and options of ``tg.load``; only options that are no default."""
        s = self.settings
        store = str(s.store.resolve()) if s.store.exists() else False
        numerics = None if s.numerics == "contract" else s.numerics
        options = {"threads": s.threads, "dtype": s.dtype, "numerics": numerics}
        given = {name: value for name, value in options.items() if value is not None}
        for device in s.devices:
            on = f" on {device}" if len(s.devices) > 1 else ""
            for model in s.models:
                path = Path(model).resolve()
                inside = model.endswith(".toml") and path.is_relative_to(self.root)
                there = str(tree / path.relative_to(self.root)) if inside else model
                name = Path(model).stem if model.endswith(".toml") else model
                yield f"{name}{on}", there, {"device": device, "store": store, **given}

    def _turn(self, commit: str, probe: Served) -> dict[str, float]:
        try:
            found = msgspec.json.decode(probe.ask(b""), type=dict[str, float])
        except CandidateFailure as error:
            raise CommitError(commit, str(error)) from error
        return found | _yardsticks()

    def _drop(self, commit: str) -> None:
        tree = self.place / commit
        shutil.rmtree(tree, ignore_errors=True)
        _git(self.root, "worktree", "prune")
        (self.place / f"{commit}.built").unlink(missing_ok=True)

    def clean(self, commits: Sequence[str]) -> None:
        """Remove the work trees."""
        for commit in commits:
            self._drop(commit)


def _end_build(path: Path, tree: Path) -> None:
    """End a build that outlived the run that began it and was killed: it writes to the tree."""
    try:
        pid = int(path.read_text("utf-8"))
        place = Path("/proc", f"{pid}", "cwd")
        while place.readlink().is_relative_to(tree):
            os.killpg(pid, signal.SIGKILL)
            time.sleep(0.01)
    except (OSError, ValueError):  # it is no more
        pass
    for _ in range(100):  # others of its group may take a moment
        shutil.rmtree(tree, ignore_errors=True)
        if not tree.exists():
            break
        time.sleep(0.01)


_STREAM = np.zeros(1 << 22, np.float32)
_PRODUCT = np.ones((64, 64), np.float32)
"""So small that no library starts threads for it, which would spin beside the next commit."""


def _yardsticks() -> dict[str, float]:
    """Seconds of what no commit changes."""
    began_s = time.perf_counter()
    np.multiply(_STREAM, 2.0, out=_STREAM)
    middle_s = time.perf_counter()
    for _ in range(50):
        np.matmul(_PRODUCT, _PRODUCT)
    end_s = time.perf_counter()
    return {f"{YARDSTICK}stream": middle_s - began_s, f"{YARDSTICK}product": end_s - middle_s}


def _plain() -> dict[str, str]:
    """The environment, without the repository that a hook of git names."""
    hidden = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _environment(tree: Path) -> dict[str, str]:
    """The environment in which a work tree's own packages are found first."""
    places = [str(tree), str(tree / "src"), os.environ.get("PYTHONPATH", "")]
    return _plain() | {"PYTHONPATH": os.pathsep.join(p for p in places if p)}


def _git(root: Path, *words: str) -> str:
    """Output of git. Raises UserError with what it says, and where there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, check=False, env=_plain(),
            encoding="utf-8", errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"git can not be started: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UserError(f"git {words[0]} in {root}: {lines[-1] if lines else 'it fails'}")
    return done.stdout.strip()


def revision_of_models(folder: Path) -> str:
    """The revision of the repository that a sweep's file is in, ``-dirty`` with changes of its own;
    empty where that is tunegrad's, whose revision each row has, or none.
    """
    try:
        if _is_own(Path(_git(folder, "rev-parse", "--show-toplevel"))):
            return ""
        return _git(folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except UserError:
        return ""


def _is_own(root: Path) -> bool:
    return (root / "tunegrad" / "regress" / "__init__.py").exists()


def _short(commit: str) -> str:
    return commit[:12]


def _commit(root: Path, name: str, settings: SweepSettings, place: str) -> str:
    """The commit that a night ran, or that git knows by this name."""
    if settings.store.exists():
        with open_store(settings.store) as store:
            nights, _ = nights_of(store)
        sweeps = list(dict.fromkeys(n.sweep for n in nights))  # each has a night on each device
        if (back := ago(name)) is not None:
            if back >= len(sweeps):
                raise ConfigError(
                    f"--between {name}: store {settings.store} has {len(sweeps)} nights"
                )
            found = [sweeps[-1 - back]]
        else:
            found = [s for s in sweeps if len(name) > 3 and s.startswith(name)]
        if len(found) == 1:
            mine = (r for n in nights if n.sweep == found[0] for r in n.rows.values())
            rows = [r for r in mine if not split_series(r.model)[1]]
            said = str(dict(rows[-1].versions).get(place, "")) if rows else ""
            if not said or said.endswith("-dirty"):
                raise ConfigError(
                    f"--between {name}: night {found[0]} ran {said or 'no known revision'}; "
                    "name a commit"
                )
            name = said
    try:
        return _git(root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except UserError as error:
        raise ConfigError(
            f"--between {name}: neither a night of {settings.store} nor a commit of {root}"
        ) from error


def between(
    settings: SweepSettings,
    ends: tuple[str, str],
    tell: Callable[[str], None] = lambda _: None,
    *,
    repository: Path | None = None,
    build: str = "",
    paths: Sequence[str] = (),
    fresh: bool = False,
) -> BetweenReport:
    """Find the commits between two nights or commits that made a sweep's models slower.

    ``repository`` is the one that the sweep's file is in, tunegrad's own where that ships. Each
    commit is a work tree, in which ``build``, a line of the shell, runs first; commits that change
    none of ``paths`` are left out. Raises UserError for ends that git does not know, are in the
    wrong order, or do not run.
    """
    began_s = time.monotonic()
    root = Path(_git(repository or settings.folder, "rev-parse", "--show-toplevel")).resolve()
    own = _is_own(root)
    a, b = (_commit(root, e, settings, "revision" if own else "models") for e in ends)
    if a == b:
        raise ConfigError(f"--between {ends[0]} {ends[1]}: both are commit {_short(a)}")
    listed = ["rev-list", "--first-parent", "--reverse", f"{a}..{b}"]
    if not (after := _git(root, *listed).split()) or _git(root, "merge-base", a, b) != a:
        raise ConfigError(
            f"--between {ends[0]} {ends[1]}: {_short(a)} is no ancestor of {_short(b)}; the older "
            "one comes first"
        )
    chosen = tuple(paths) or (("tunegrad",) if own else ())
    after = _descended(root, a, b, after)
    if chosen:
        merge = after[:1] if _git(root, "rev-parse", f"{after[0]}^1") != a else []
        touched = {*_git(root, *listed, "--", *chosen).split(), *merge}
        after = [c for c in after if c in touched]
    if not after:
        return BetweenReport(a, b, str(root), 0, 0, 0, 0.0, (), ())
    begun = {
        "a": a, "commits": after, "sweep": settings.record(), "store": str(settings.store),
        "build": build, "python": sys.executable, "root": str(root),
    }  # fmt: skip
    key = hashlib.sha256(msgspec.json.encode(begun)).hexdigest()[:16]
    place = settings.store.with_name(f"{settings.store.name}.between").resolve() / key
    place.mkdir(parents=True, exist_ok=True)
    trees = _Repository(root, place, settings, build)
    journal = Journal(place / "journal.jsonl", begun, trees, fresh=fresh)
    decision = Bisection([a, *after], journal, tell)
    interrupted, rows = False, tuple[Step, ...]()
    try:
        if journal.known:
            tell(f"going on with {journal.known} results of {place / 'journal.jsonl'}")
        with Interrupt() as interrupt, interrupt.breakable():  # by SIGTERM and SIGHUP, too
            rows = decision.run()
        trees.clean(list(decision.built))
    except KeyboardInterrupt:
        interrupted = True
    except CommitError as error:
        raise UserError(f"commit {_short(error.commit)} does not run: {error.why}") from error
    finally:
        journal.close()
    return BetweenReport(
        a, b, str(root), len(after), len(decision.built), decision.rounds,
        time.monotonic() - began_s, rows,
        tuple(_described(root, alert) for alert in decision.alerts),
        tuple((c, why) for c, why in decision.built.items() if why), interrupted,
    )  # fmt: skip


def _descended(root: Path, a: str, b: str, commits: Sequence[str]) -> list[str]:
    """Those that have ``a`` in them: one on a branch is followed by the merge of that branch."""
    path = {*_git(root, "rev-list", "--ancestry-path", f"{a}..{b}").split()}
    return [c for c in commits if c in path]


def _described(root: Path, alert: Alert) -> Alert:
    """With the subject, the author and the day of the commit."""
    said = _git(root, "show", "--no-patch", "--format=%cs%x00%an%x00%s", alert.commit)
    day, author, subject = said.split("\0", 2)
    return replace(alert, subject=subject, author=author, day=day)
