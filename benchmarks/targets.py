"""Targets of the suite, to reach or to aim for: best peer's time over ours, as data."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.workloads import SUITES

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A claim about the speed-ups (best peer's time over ours) of some workloads.

    ``geomean``: their geometric mean is at least this. ``each``: so is every one of them. ``peer``
    names the only peer to compare with; empty is the fastest on each row. ``reach_for`` is no
    claim, but where the room is.
    """

    name: str
    workloads: tuple[str, ...]
    geomean: float = 0.0
    each: float = 0.0
    peer: str = ""
    reach_for: str = ""


def _names(suite: str) -> tuple[str, ...]:
    return tuple(w.name for w in SUITES[suite])


_GEMM = ("gemm 512", "gemm 1024", "gemm 2048", "gemm 1024x64x1024")
_MEMORY = ("gemv 4096", "row sum 4096", "column sum 4096", "add 16M", "transpose 2048")

TARGETS: tuple[Target, ...] = (
    Target("gemm", _GEMM, each=1.0, reach_for="97 % of FMA peak"),
    Target("memory", _MEMORY, each=1.0, reach_for="95 % of stream bandwidth"),
    Target("copy", ("copy 64 MB",), each=0.9, peer="memcpy", reach_for="memcpy"),
    Target("convolutions", _names("convs"), geomean=1.0, each=0.75, reach_for="1.3x"),
    Target("rows", _names("rows"), geomean=1.2, reach_for="2x"),
    Target("resnet18", ("resnet18",), each=1.05, reach_for="1.4x"),
    Target("resnet50", ("resnet50",), each=1.0, reach_for="1.2x"),
    Target("encoder", ("encoder",), each=1.0, reach_for="1.2x"),
)
