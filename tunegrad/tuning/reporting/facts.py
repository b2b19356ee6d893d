"""Facts of a session at its end, beside the state of the machine in its row: those that a report
needs and no trial holds.

    peak_gflops, cache_gb_per_s, memory_gb_per_s     the machine's limits, as it measured them
    seconds.asking, seconds.timing, ...              its parts; they add up to all of it
    kernel.KEY.uses, .layers                         how often the models launch a kernel, and for
                                                     which of their layers
    kernel.KEY.default_s, .tuned_s                   one launch in the whole model, in turns
    kernel.KEY.gain, .low, .high                     by turns, and where it lies at 95 %
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from tunegrad.db import Properties, Session
from tunegrad.ir.fusion import layers_of
from tunegrad.paired import Interval

from ..budget.costs import Costs
from ..end_to_end import EndToEnd
from ..machine.roofline import Roofline
from ..workload import Workload, shared_kernels

__all__ = ["KernelFacts", "SessionFacts", "facts_of", "session_facts"]

_MOST_CHARACTERS = 180
"""Of the layers of a kernel; files of a store hold words of 200."""

_LIMITS = ("peak_gflops", "cache_gb_per_s", "memory_gb_per_s")


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of a session's models. Times are of one launch, in seconds; None where the whole
    model did not run.
    """

    uses: int
    layers: str = ""
    default_s: float | None = None
    tuned_s: float | None = None
    gain: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The recorded facts of a session. A limit that was not measured is None, and older sessions
    have no facts at all.
    """

    peak_gflops: float | None
    cache_gb_per_s: float | None
    memory_gb_per_s: float | None
    seconds: dict[str, float]
    kernels: dict[str, KernelFacts]


def session_facts(
    roofline: Roofline, costs: Costs, works: Sequence[Workload], wholes: Sequence[EndToEnd | None]
) -> Properties:
    """The facts of a session about these models, as the store keeps them."""
    limits = (
        roofline.peak_flops_per_s,
        roofline.cache_bytes_per_s,
        roofline.memory_bytes_per_s,
    )
    found: dict[str, float | str] = {
        name: value / 1e9 for name, value in zip(_LIMITS, limits, strict=True) if isfinite(value)
    }
    found |= {f"seconds.{part}": seconds for part, seconds in costs.seconds.items()}
    layers = {key: _short(said) for work in works for key, said in layers_of(work.plan).items()}
    for use in shared_kernels(works):
        found[f"kernel.{use.key}.uses"] = float(use.uses)
        found[f"kernel.{use.key}.layers"] = layers[use.key]
    for whole in wholes:
        for key, weighed in whole.weighed.items() if whole else ():
            found[f"kernel.{key}.default_s"] = weighed.default_s
            found[f"kernel.{key}.tuned_s"] = weighed.winner_s
            if weighed.gain is not None:
                found[f"kernel.{key}.gain"] = weighed.gain
            if weighed.interval is not None:
                found[f"kernel.{key}.low"], found[f"kernel.{key}.high"] = weighed.interval
    return tuple(sorted(found.items()))


def facts_of(session: Session) -> SessionFacts:
    """The facts in a session's row; whatever is there that is none of them is passed over."""
    state = dict(session.state)
    peak, cache, memory = (_number(state.get(name)) for name in _LIMITS)
    seconds = {
        name.removeprefix("seconds."): value
        for name, value in state.items()
        if name.startswith("seconds.") and isinstance(value, float)
    }
    kernels: dict[str, dict[str, float | str]] = defaultdict(dict)
    for key, what, value in _kernel_facts(state):
        kernels[key][what] = value
    return SessionFacts(
        peak, cache, memory, seconds, {key: _kernel(said) for key, said in kernels.items()}
    )


def _kernel_facts(state: dict[str, float | str]) -> Iterator[tuple[str, str, float | str]]:
    for name, value in state.items():
        head, _, rest = name.partition(".")
        key, _, what = rest.partition(".")
        if head == "kernel" and what:
            yield key, what, value


def _kernel(said: dict[str, float | str]) -> KernelFacts:
    low, high = _number(said.get("low")), _number(said.get("high"))
    return KernelFacts(
        int(_number(said.get("uses")) or 1),
        str(said.get("layers", "")),
        _number(said.get("default_s")),
        _number(said.get("tuned_s")),
        _number(said.get("gain")),
        None if low is None or high is None else (low, high),
    )


def _number(value: float | str | None) -> float | None:
    """A finite number above 0, or None."""
    return value if isinstance(value, float) and 0.0 < value < float("inf") else None


def _short(layers: Sequence[str]) -> str:
    """Layers in one line of bounded length."""
    text = "; ".join(layers)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 4]} ..."
