"""The sections of a sweep: what it found, and the other libraries beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.cli.tables import ms

from .markup import Html, element

if TYPE_CHECKING:
    from tunegrad.tuning import SessionPage

__all__ = ["findings_section", "peers_section"]


def findings_section(page: SessionPage) -> Html | None:
    """Section on what changed, since when, and what changed with it; nothing of a session that is
    no sweep.
    """
    if page.findings is None:
        return None
    items = []
    for found in page.findings:
        what, *details = found.splitlines()
        items.append(element("li", element("p", what, css="name"),
            *(element("p", line.strip(), css="note") for line in details)))  # fmt: skip
    return element(
        "section",
        element("h2", "What the sweep found"),
        element("ul", *items) if items else element("p", "No change of level.", css="note"),
    )


def peers_section(page: SessionPage) -> Html | None:
    """A line each; nothing where none ran."""
    if not page.peers:
        return None
    own = {x.model: x.tuned_s for x in page.line.latencies}
    rows = [
        element(
            "tr",
            element("td", p.peer, css="words", data_label="peer"),
            element("td", p.model, css="words", data_label="model"),
            element("td", ms(1e3 * p.seconds), css="right", data_label="ms"),
            element("td", ms(1e3 * own[p.model]) if p.model in own else "-", css="right",
                data_label="ours, ms"),
        )
        for p in page.peers
    ]  # fmt: skip
    head = element(
        "tr",
        element("th", "peer", scope="col"),
        element("th", "model", scope="col"),
        element("th", "ms", css="right", scope="col"),
        element("th", "ours, ms", css="right", scope="col"),
    )
    return element(
        "section",
        element("h2", "Peers"),
        element("p", "Medians of calls between the turns of the sweep.", css="note"),
        element("table", element("thead", head), element("tbody", *rows), css="stacked"),
    )
