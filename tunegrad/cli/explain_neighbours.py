"""The part of ``explain`` about the schedules next to the one that runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tunegrad.cli.store.tables import plain
from tunegrad.cli.tables import UNKNOWN, ms, table
from tunegrad.reports import Neighbour

__all__ = ["neighbour_lines"]

_TRIED, _RULES, _WIDTH = 8, 6, 72
_NUMBER = re.compile(r"\d+")
"""Rules that are alike but for their numbers are one."""


def neighbour_lines(found: Sequence[Neighbour]) -> Iterator[str]:
    """A table of those that were timed, the fastest first; then why others failed or are not legal,
    by the rule; then how many are left. ``--json`` has all.
    """
    if not found:
        return
    tried = [n for n in found if n.kind == "tried"]
    counts = Counter(n.kind for n in found)
    said = ", ".join(f"{counts[k]} {k}" for k in ("tried", "failed", "illegal", "not tried")
        if counts[k])  # fmt: skip
    yield f"one action away: {said}"
    if tried:
        rows = [
            (_short(plain(n.change)), ms(n.ms), UNKNOWN if n.cost is None else f"{n.cost:.2f}x",
                plain(n.origin))
            for n in tried[:_TRIED]
        ]  # fmt: skip
        header = ("one action away", "ms in the search", "of this", "from")
        left = ("one action away", "from")
        yield from table(header, rows, left, indent=4, spare=("from",)).splitlines()
        if len(tried) > _TRIED:
            yield f"and {len(tried) - _TRIED} slower ones"
    for kind in ("failed", "illegal"):
        rules: dict[str, list[Neighbour]] = {}
        for n in (n for n in found if n.kind == kind):
            rules.setdefault(_NUMBER.sub("N", n.why), []).append(n)
        by_count = sorted(rules.values(), key=lambda alike: -len(alike))
        for first, *others in by_count[:_RULES]:
            more = f", and {len(others)} more" if others else ""
            yield f"{kind}: {plain(first.why)}  [{_short(plain(first.change))}{more}]"
        if len(by_count) > _RULES:
            yield f"{kind}: and {len(by_count) - _RULES} other rules"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
