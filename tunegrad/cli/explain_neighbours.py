"""What ``explain`` says of the schedules next to the one that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tunegrad.cli.store.tables import plain
from tunegrad.cli.tables import UNKNOWN, ms, table
from tunegrad.reports import Neighbour

__all__ = ["neighbour_lines"]

_TRIED, _RULES, _WIDTH = 8, 6, 100


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
        yield from table(header, rows, left=("one action away", "from")).splitlines()
        if len(tried) > _TRIED:
            yield f"and {len(tried) - _TRIED} slower ones"
    for kind in ("failed", "illegal"):
        rules: dict[str, list[str]] = {}
        for n in (n for n in found if n.kind == kind):
            rules.setdefault(n.why, []).append(n.change)
        by_count = sorted(rules.items(), key=lambda rule: -len(rule[1]))
        for why, changes in by_count[:_RULES]:
            more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
            yield f"{kind}: {plain(why)}  [{_short(plain(changes[0]))}{more}]"
        if len(by_count) > _RULES:
            yield f"{kind}: and {len(by_count) - _RULES} other rules"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
