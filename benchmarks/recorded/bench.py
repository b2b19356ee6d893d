"""Every searcher on every recorded space with many seeds, and how much better than random search it
was.

    spaces x searchers x seeds  -->  curves of best  -->  areas  -->  scores against
                                     times so far                     random search

Nothing is measured: the recordings answer. Scores are defined in ``replay`` and in
docs/SEARCH_BENCH.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from statistics import fmean, median_low, stdev

from benchmarks.recorded import Read, read_recording
from tunegrad.errors import ConfigError, StoreError
from tunegrad.search import check_searcher, make_searcher, searcher_names

from .replay import ReplayMeasurer, area, excess, play, score, trials_within
from .space import RecordedSpace, Recording

__all__ = [
    "BASELINE",
    "NEAR",
    "SPACES",
    "BenchReport",
    "BenchRow",
    "BenchSpace",
    "BenchTotal",
    "LoadedSpace",
    "find_spaces",
    "search_bench",
]

BASELINE = "random"
SPACES = Path(__file__).parents[2] / "tests" / "data" / "spaces"
"""Twelve recorded spaces of a checkout."""

NEAR = 0.05
"""Part above the optimum that counts as having found it, nearly."""

_NOTHING = 1e-12
_FARTHEST = 100.0
"""Factor to random search that counts at most, better or worse, over all spaces: one space is not
to decide.
"""


@dataclass(frozen=True, slots=True)
class LoadedSpace:
    """A recorded space under the name of its file, and how many of its rows were broken."""

    name: str
    recording: Recording
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BenchSpace:
    """A space as the report names it.

    Times are in ms; ``trials`` is what each search was given on it.
    """

    name: str
    kernel: str
    points: int
    programs: int
    best_ms: float
    trials: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One searcher on one space, over all seeds.

    ``area`` is the mean and ``area_error`` its standard error, infinity for one seed. ``score`` is
    1 - area / area of random search, None where random search has no area and this one has.
    ``near_trials`` is the median number of trials until the best was within 5 % of the optimum,
    None where half of the searches never were; ``near_share`` the part that were. ``curve`` is the
    mean excess after 0, 1 ... trials.
    """

    space: str
    searcher: str
    area: float
    area_error: float
    score: float | None
    near_trials: int | None
    near_share: float
    trials_per_s: float
    curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BenchTotal:
    """One searcher over all spaces.

    ``score`` is 1 - the geometric mean of its areas over random search's.

    ``better`` is on how many spaces its area is smaller than random's, ``clearly`` on how many by
    more than two standard errors of the difference.
    """

    searcher: str
    score: float | None
    better: int
    clearly: int
    spaces: int


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The table that ``benchmarks.search_bench`` prints."""

    seeds: int
    trials: int
    batch: int
    spaces: tuple[BenchSpace, ...]
    rows: tuple[BenchRow, ...]
    totals: tuple[BenchTotal, ...]
    wall_s: float


def find_spaces(places: Sequence[Path], device: str | None = None) -> tuple[LoadedSpace, ...]:
    """The recorded spaces that ``places`` name: files, or directories of ``*.jsonl``,
    ``*.jsonl.gz`` and ``*.t4.json``.

    Where none is named, those of the tests. ``device`` leaves those that were recorded
    on devices of its family. Raises ConfigError for two of one name, and where none is of that
    family. Raises StoreError where there are none, or a file has no sound row.
    """
    places = places or (SPACES,)
    files = [
        file for place in places for file in (_files_of(place) if place.is_dir() else (place,))
    ]
    if not files:
        raise StoreError(
            f"{', '.join(map(str, places))}: no recorded space there (*.jsonl, *.jsonl.gz, "
            "*.t4.json)"
        )
    found: list[LoadedSpace] = []
    for file in files:
        try:
            told = file.stat()
            read = _read(file, told.st_mtime_ns, told.st_size, told.st_ino)
        except OSError:
            read = read_recording(file)
        name = _name_of(file)
        if any(space.name == name for space in found):
            raise ConfigError(f"{file}: another recorded space is called {name}, too")
        found.append(LoadedSpace(name, read.recording, tuple(map(str, read.problems))))
    return tuple(found if device is None else _of_device(found, device))


@lru_cache(maxsize=12)
def _read(file: Path, *_state: int) -> Read:
    """A recording, read once for as long as its file stays as it is."""
    return read_recording(file)


def _of_device(spaces: Sequence[LoadedSpace], device: str) -> list[LoadedSpace]:
    fields = (dict(space.recording.fingerprint.fields) for space in spaces)
    families = [known.get("device", "").partition(":")[0] for known in fields]
    wanted = device.partition(":")[0]
    if wanted not in families:
        raise ConfigError(
            f"device {device!r}: no space was recorded there, but on "
            f"{', '.join(sorted(set(families)))}"
        )
    return [space for space, family in zip(spaces, families, strict=True) if family == wanted]


_ENDINGS = (".jsonl.gz", ".jsonl", ".t4.json.gz", ".t4.json")


def _files_of(place: Path) -> tuple[Path, ...]:
    return tuple(sorted(f for f in place.iterdir() if f.name.endswith(_ENDINGS)))


def _name_of(file: Path) -> str:
    ending = next((e for e in _ENDINGS if file.name.endswith(e)), "")
    return file.name.removesuffix(ending)


def search_bench(
    spaces: Sequence[LoadedSpace],
    searchers: Sequence[str] = (),
    *,
    seeds: int = 20,
    trials: int = 100,
    batch: int = 8,
    observe: Callable[[str], None] = lambda _line: None,
    clock: Callable[[], float] = time.monotonic,
) -> BenchReport:
    """Play every searcher (all that are usable, if none is named) on every space, with seeds 0, 1
    ... and compare.

    A space with fewer different programs than ``trials`` is played for as many trials as it has
    programs beside its default. Random search is always played: it is what the others are compared
    with. Raises ConfigError.
    """
    names = _searchers(searchers)
    for what, value in (("seeds", seeds), ("trials", trials), ("batch", batch)):
        if value < 1:
            raise ConfigError(f"{what} {value} is not a positive whole number")
    begun_s = clock()
    rows: list[BenchRow] = []
    described = []
    for space in spaces:
        r = space.recording
        count = max(1, min(trials, r.programs - 1))
        best_ms = 1e3 * r.best_s if r.times_s else 0.0
        described.append(
            BenchSpace(
                space.name, r.kernel_name, r.points, r.programs, best_ms, count, space.problems
            )
        )
        played = []
        for name in names:
            played.append(_play_all(space, name, seeds, count, batch, clock))
            observe(
                f"{space.name}: {name}: area {played[-1].area:.4f}, "
                f"{played[-1].trials_per_s:,.0f} trials/s"
            )
        rows += _scored(played)
    totals = tuple(_total(name, [r for r in rows if r.searcher == name], rows) for name in names)
    return BenchReport(
        seeds, trials, batch, tuple(described), tuple(rows), totals, clock() - begun_s
    )


def _searchers(given: Sequence[str]) -> tuple[str, ...]:
    """Random search, and the searchers that are asked for; without a wish all."""
    for name in given:
        check_searcher(name)
    return tuple(dict.fromkeys((BASELINE, *(given or searcher_names()))))


def _play_all(
    space: LoadedSpace, name: str, seeds: int, trials: int, batch: int, clock: Callable[[], float]
) -> BenchRow:
    recorded, measurer = RecordedSpace(space.recording), ReplayMeasurer(space.recording)
    begun_s = clock()
    runs = []
    for seed in range(seeds):
        searcher = make_searcher(name, recorded, Random(f"{seed} {space.recording.kernel_key}"))
        runs.append(excess(play(searcher, recorded, measurer, trials, batch), space.recording))
    took_s = max(clock() - begun_s, 1e-9)
    areas = [area(run) for run in runs]
    near = [trials_within(run, NEAR) for run in runs]
    return BenchRow(
        space=space.name,
        searcher=name,
        area=fmean(areas),
        area_error=stdev(areas) / math.sqrt(seeds) if seeds > 1 else math.inf,
        score=None,
        near_trials=_median(near),
        near_share=sum(n is not None for n in near) / seeds,
        trials_per_s=seeds * trials / took_s,
        curve=tuple(fmean(step) for step in zip(*runs, strict=True)),
    )


def _median(found: Sequence[int | None]) -> int | None:
    """The lower median; a search that never got there comes last."""
    middle = median_low(math.inf if n is None else n for n in found)
    return None if middle == math.inf else int(middle)


def _scored(played: Sequence[BenchRow]) -> list[BenchRow]:
    random_area = next(row.area for row in played if row.searcher == BASELINE)
    return [replace(row, score=_finite(score(row.area, random_area))) for row in played]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _total(name: str, mine: Sequence[BenchRow], rows: Sequence[BenchRow]) -> BenchTotal:
    """Ratios of areas are averaged as their logarithms: half and double cancel out."""
    random = {row.space: row for row in rows if row.searcher == BASELINE}
    pairs = [(row, random[row.space]) for row in mine]
    mean = math.exp(fmean(math.log(_ratio(a.area, b.area)) for a, b in pairs))
    better = sum(a.area < b.area for a, b in pairs)
    clearly = sum(b.area - a.area > 2.0 * math.hypot(a.area_error, b.area_error) for a, b in pairs)
    return BenchTotal(name, _finite(1.0 - mean), better, clearly, len(pairs))


def _ratio(mine: float, random: float) -> float:
    """Area over random search's, within bounds that keep logarithms finite."""
    if random < _NOTHING:
        return 1.0 if mine < _NOTHING else _FARTHEST
    return min(max(mine / random, 1.0 / _FARTHEST), _FARTHEST)
