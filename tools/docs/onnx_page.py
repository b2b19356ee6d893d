"""The blocks of docs/ONNX.md: operators that are there, and what came of ONNX's own node tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from textwrap import fill, wrap

from tunegrad.frontend.onnx import OPERATORS

from .fences import table
from .onnx_cases import Row, cases, run_cases

__all__ = ["BLOCKS", "case_table"]

_SHOWN = 90
"""Letters of a reason."""


def _operators() -> str:
    domain = "com.microsoft."
    own = sorted(n for n in OPERATORS if "." not in n)
    theirs = sorted(n.removeprefix(domain) for n in OPERATORS if n.startswith(domain))
    return (
        f"{len(own)} operators:\n{_listed(own)}\n\n"
        f"And {len(theirs)} of com.microsoft, which ONNX Runtime's optimiser and quantiser write:\n"
        f"{_listed(theirs)}"
    )


def _listed(names: Sequence[str]) -> str:
    ticked = " ".join(f"`{n}`" for n in names)
    return "\n".join(wrap(ticked, 100, break_long_words=False, break_on_hyphens=False))


def _cases() -> str:
    import onnx

    names = list(cases())
    return f"Of onnx {onnx.__version__}:\n\n{case_table(run_cases(names))}"


def case_table(rows: Sequence[Row]) -> str:
    """Table of the cases that pass, and of the reasons of the others, the most frequent first, each
    case with one reason.
    """
    passed = [r for r in rows if not r.why]
    held = sum(r.constants > 0 for r in passed)
    known = sum(r.kernels == 0 for r in passed)
    text = fill(
        f"{len(passed)} of {len(rows)} node tests pass ({100 * len(passed) / len(rows):.1f} %). In "
        f"{held} of those some inputs were constants of the program, since shapes, positions or "
        f"conditions depend on them; in {known} nothing was left for a kernel.",
        100,
    )
    reasons: dict[str, list[str]] = defaultdict(list)
    for r in rows:
        if r.why:
            reasons[r.lacks].append(r.why)
    if not reasons:
        return text
    found = [
        (lacks, str(len(whys)), "" if lacks.startswith(("operator", "type")) else _usual(whys))
        for lacks, whys in sorted(reasons.items(), key=lambda kv: (-len(kv[1]), kv[0]))
    ]
    return f"{text}\n\n{table(('what is missing', 'cases', 'most often'), found)}"


def _usual(whys: Sequence[str]) -> str:
    """The reason that most cases have, in one line."""
    ((why, _),) = Counter(w.rpartition("): ")[2] for w in whys).most_common(1)
    return why if len(why) < _SHOWN else f"{why[:_SHOWN]} ..."


BLOCKS: dict[str, Callable[[], str]] = {"operators": _operators, "cases": _cases}
