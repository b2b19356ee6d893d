"""Recordings made of numbers: a surface of ``search_surface``, every point of it, as if a device
had measured them.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_surface import MACHINE, Surface, SurfaceSpace, kernel

from benchmarks.recorded import Question, RecordedTrial, Recording
from benchmarks.recorded.points import points_of
from tunegrad.trial import Policy

__all__ = ["GATED", "KERNEL", "recording_of", "small_recording"]

KERNEL = kernel("surface")
GATED = SurfaceSpace(
    {"gate": 2, "tile": 5, "extra": 3, "order": 3}, illegal=((("tile", 4), ("order", 2)),)
)
"""A decision that another one brings up, and one pair of choices that is not legal."""


def recording_of(
    space: SurfaceSpace, surface: Surface, vary: Mapping[str, int] | None = None
) -> Recording:
    """Every point of a space (or of the part that ``vary`` names), its times from the surface."""
    points = list(points_of(space, dict.fromkeys(space.sizes, 0) if vary is None else vary))
    numbers: dict[Question, int] = {}
    paths: dict[str, list[tuple[tuple[int, int], ...]]] = {}
    schedules = {}
    for point in points:
        schedules[point.schedule.text] = point.schedule
        path = tuple((numbers.setdefault(q, len(numbers)), choice) for q, choice in point.answers)
        paths.setdefault(point.schedule.text, []).append(path)
    trials = tuple(
        RecordedTrial(
            text, surface.program(schedules[text]), surface.measure(schedules[text]), tuple(found)
        )
        for text, found in paths.items()
    )
    return Recording(
        KERNEL.name,
        KERNEL.key,
        KERNEL.text,
        MACHINE,
        Policy(),
        space.version,
        len(points),
        tuple(numbers),
        trials,
    )


def small_recording() -> Recording:
    """56 points: times that differ, and wrong results where ``tile`` is 3."""
    from tunegrad.trial import Status

    factors = {("tile", i): 1.0 + 0.25 * i for i in (1, 2, 3)} | {
        ("extra", 1): 0.5,
        ("order", 2): 1.5,
        ("gate", 1): 0.9,
    }
    return recording_of(GATED, Surface(factors, fails={("tile", 3): Status.WRONG}))
