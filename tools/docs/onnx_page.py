"""The blocks of docs/ONNX.md: operators that are there, and what came of ONNX's own node tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from textwrap import fill, wrap

from tunegrad.frontend.onnx import OPERATORS

from .fences import table
from .onnx_cases import Row, cases, run_cases
from .onnx_modes import UNREAD, refused_types, unread_attributes

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


def _modes() -> str:
    count, unread = unread_attributes()
    tried, refused = refused_types()
    attributes = [
        (op, f"`{a}` is not read", UNREAD.get((op, a), "it is not there")) for op, a in unread
    ]
    types = defaultdict[tuple[str, str], list[str]](list)
    for op, kind, why in refused:
        types[op, why if len(why) < _SHOWN else f"{why[:_SHOWN]} ..."].append(kind)
    text = fill(
        f"{count - len(unread)} of the {count} attributes that schemas of opset 7 and later have "
        f"are read, and operands run in {tried - len(refused)} of the {tried} types that the "
        "schemas allow in the first node test of each operator. The others:",
        100,
    )
    rows = [*attributes, *((op, ", ".join(k), why) for (op, why), k in types.items())]
    return f"{text}\n\n{table(('operator', 'what', 'why'), sorted(rows))}"


BLOCKS: dict[str, Callable[[], str]] = {
    "operators": _operators,
    "modes": _modes,
    "cases": _cases,
}
