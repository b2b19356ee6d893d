"""The style of a report: a colour for the light and one for the dark; columns on a laptop, one
below the other on a phone.

HTML that can not be injected: whatever is not ``Html`` already is text, and is escaped where it
becomes a part of an element.

    element("td", "<script>", css="name")    <td class="name">&lt;script&gt;</td>
"""

from __future__ import annotations

from html import escape

from tunegrad.cli.tables import UNKNOWN, Table

COLOURS = {
    "ink": ("#1b1f24", "#e6e9ed"),
    "muted": ("#5b6570", "#9aa6b2"),
    "grid": ("#e3e7eb", "#2b333c"),
    "paper": ("#ffffff", "#171c22"),
    "ground": ("#f4f6f8", "#0e1216"),
    "badge": ("#eaf2fb", "#1c2a3a"),
    "before": ("#76828f", "#8593a1"),
    "after": ("#0b6bcb", "#58a6ff"),
    "good": ("#0a7a4b", "#4cc38a"),
    "bad": ("#c2352b", "#ff7b72"),
    "warn": ("#fdf1d8", "#3a2e12"),
    "series0": ("#0b6bcb", "#58a6ff"),
    "series1": ("#c2610a", "#f0a35e"),
    "series2": ("#0a7a4b", "#4cc38a"),
    "series3": ("#9a4bc4", "#c792ea"),
    "series4": ("#c2352b", "#ff7b72"),
    "series5": ("#6b7785", "#a5b1bd"),
}
"""The colours of the page by the names of their variables: in the light, and in the dark.

Text has a contrast of 4.5 to its ground, what is drawn one of 3.
"""

SERIES = tuple(name for name in COLOURS if name.startswith("series"))

_LIGHT, _DARK = (
    " ".join(f"--{name}:{colours[dark]};" for name, colours in COLOURS.items())
    for dark in (False, True)
)

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; }}
body {{ margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui,
  -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }}
main {{ max-width: 1040px; margin: 0 auto; padding: 24px 16px 64px; }}
.live {{ max-width: 1040px; margin: 0 auto; padding: 8px 16px 0; }} .live p {{ margin: 0; }}
h1 {{ font-size: 1.75rem; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }}
h2 {{ font-size: 1.2rem; margin: 0 0 4px; }}
h3 {{ font-size: 1rem; margin: 20px 0 8px; }}
p {{ margin: 0 0 12px; max-width: 72ch; }}
.sub, .note {{ color: var(--muted); }}
.note {{ font-size: .875rem; }}
code, pre {{ font: .8125rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }}
section, .card {{ background: var(--paper); border: 1px solid var(--grid); border-radius: 10px;
  padding: 20px; margin: 16px 0; }}
article > header {{ margin: 32px 0 16px; }}
.headline {{ display: flex; flex-wrap: wrap; gap: 12px 40px; align-items: baseline;
  margin: 16px 0 0; }}
.figure {{ font-size: 1.9rem; font-weight: 650; letter-spacing: -.02em; line-height: 1.15; }}
.figure small {{ font-size: 1rem; font-weight: 500; letter-spacing: 0; }}
.label {{ display: block; color: var(--muted); font-size: .8125rem; }}
.figure, td.right {{ font-variant-numeric: tabular-nums; }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }} .same {{ color: var(--muted); }}
.facts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr));
  gap: 10px 20px; margin: 0; }}
.facts div {{ min-width: 0; }} .facts + .facts {{ margin-top: 16px; }}
.facts dt {{ color: var(--muted); font-size: .8125rem; }} .facts dd {{ margin: 0; }}
.name {{ font-weight: 600; }}
.layers {{ color: var(--muted); font-size: .875rem; }}
.uses {{ font-weight: 400; color: var(--muted); white-space: nowrap; }}
.bar {{ display: inline-block; height: 10px; border-radius: 2px; min-width: 1px; }}
.bar.after {{ background: var(--after); }}
td small {{ font-weight: 400; color: var(--muted); white-space: nowrap; }}
a {{ color: var(--after); }} a.name {{ text-decoration: none; }}
a:hover {{ text-decoration: underline; }}
:focus-visible {{ outline: 2px solid var(--after); outline-offset: 2px; }}
:target {{ outline: 2px solid var(--after); outline-offset: 6px; border-radius: 4px; }}
nav ul {{ display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; padding: 0; margin: 0;
  font-size: .9rem; }}
nav li {{ line-height: 1.75; }}
.skip {{ position: absolute; left: -999px; }} .skip:focus {{ left: 8px; top: 8px; }}
.hidden {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }}
.warn {{ background: var(--warn); border-radius: 8px; padding: 8px 14px; max-width: none; }}
details.kernel {{ border-top: 1px solid var(--grid); padding: 10px 0; }}
details.kernel > summary {{ font-size: 1rem; font-weight: 600; color: var(--ink); }}
pre {{ margin: 4px 0 12px; overflow: auto; max-height: 480px; white-space: pre-wrap; }}
pre.diff ins {{ color: var(--good); text-decoration: none; }}
pre.diff del {{ color: var(--bad); text-decoration: none; }}
button.sort {{ all: unset; cursor: pointer; }}
button.sort:focus-visible {{ outline: 2px solid var(--after); }}
[aria-sort=descending] .sort::after {{ content: " \25be"; }}
[aria-sort=ascending] .sort::after {{ content: " \25b4"; }}
.tools {{ margin: 8px 0; font-size: .9rem; }}
input, select {{ font: inherit; color: inherit; background: var(--paper);
  border: 1px solid var(--muted); border-radius: 6px; padding: 4px 8px; max-width: 100%; }}
details > summary {{ cursor: pointer; color: var(--muted); font-size: .875rem; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 4px; font-size: .875rem;
  color: var(--muted); padding: 0; list-style: none; }}
.legend li {{ min-width: 0; }}
.legend i, .swatch i {{ display: inline-block; width: 12px; height: 12px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; }}
.chart {{ margin: 8px 0 16px; }}
.plane {{ position: relative; margin: 0 14px 26px 52px; border: solid var(--muted);
  border-width: 0 0 1px 1px; }}
.plane svg {{ position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }}
.plane path {{ fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }}
.plane .dots {{ stroke-linecap: round; }} .plane .dash {{ stroke-dasharray: 4 4; }}
.tick, .axis {{ color: var(--muted); font-size: .8125rem; line-height: 1; white-space: nowrap; }}
.tick {{ position: absolute; }} .tick.x {{ top: calc(100% + 6px); }}
.tick.y {{ right: calc(100% + 6px); transform: translateY(-50%); }}
.axis.x {{ text-align: center; }} .axis.y {{ margin: 0 0 10px; }}
.spot {{ position: absolute; font-size: .8125rem; line-height: 15px; color: var(--ink);
  text-decoration: none; }}
.mark {{ position: absolute; width: 14px; height: 14px; margin: -7px 0 0 -7px; border-radius: 50%;
  border: 2px solid var(--bad); pointer-events: none; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .9rem; }}
th {{ text-align: left; font-weight: 500; color: var(--muted); font-size: .8125rem; }}
th, td {{ padding: 6px 12px 6px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }}
td.right, th.right {{ text-align: right; white-space: nowrap; }}
.badge {{ background: var(--badge); border-radius: 5px; padding: 1px 7px; font-size: .8125rem;
  white-space: nowrap; }}
footer {{ color: var(--muted); font-size: .8125rem; margin-top: 32px; }}
@media (max-width: 720px) {{
  main {{ padding: 16px 12px 48px; }}
  section, .card {{ padding: 14px; }}
  h1 {{ font-size: 1.4rem; }}
  .figure {{ font-size: 1.5rem; }}
  .spot.wide {{ display: none; }}
  th, td {{ padding-right: 10px; }}
  table.stacked thead {{ display: none; }}
  table.stacked tr {{ display: block; padding: 8px 0; border-bottom: 1px solid var(--grid); }}
  table.stacked td {{ display: flex; justify-content: space-between; gap: 16px; border: 0;
    padding: 2px 0; white-space: normal; text-align: right; }}
  table.stacked td::before {{ content: attr(data-label); color: var(--muted); text-align: left;
    flex: none; }}
  table.stacked td > * {{ min-width: 0; }}
}}
@media (prefers-reduced-motion: no-preference) {{ html {{ scroll-behavior: smooth; }} }}
@media print {{ section {{ break-inside: avoid; }} body {{ background: none; }} }}
"""

_VOID = frozenset(("br", "hr", "meta"))

_REPLACED = "\N{REPLACEMENT CHARACTER}"


class Html(str):
    """Text that is markup already; only this module and the charts make it."""

    __slots__ = ()


def clean(value: object) -> str:
    """A value as text that HTML and XML can hold: characters that neither can are replaced."""
    return "".join(c if c in "\t\n" or _held(ord(c)) else _REPLACED for c in str(value))


def _held(code: int) -> bool:
    return code >= 0x20 and not (0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000) and (
        code & 0xFFFE != 0xFFFE
    )  # fmt: skip


def text(value: object) -> Html:
    """A value as text of a page: escaped; markup stays as it is."""
    return value if isinstance(value, Html) else Html(escape(clean(value), quote=True))


def joined(*parts: object) -> Html:
    """Parts one after the other; None is nothing."""
    return Html("".join(text(p) for p in parts if p is not None))


def element(name: str, /, *children: object, css: str = "", **attributes: object) -> Html:
    """An element. ``css`` is its class; a ``_`` in the name of an attribute is a ``-``; one that is
    None is left out, one that is True stands alone.
    """
    given = {"class": css or None, **attributes}
    shown = "".join(
        f" {key.replace('_', '-')}" + ("" if value is True else f'="{text(str(value))}"')
        for key, value in given.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{joined(*children)}</{name}>")


def table_element(table: Table, label: str) -> Html:
    """A table with a label; on a phone each cell stands under the name of its column."""
    css = ["" if name in table.left else "right" for name in table.header]
    head = [element("th", n, css=c, scope="col") for n, c in zip(table.header, css, strict=True)]
    rows = [
        element("tr", *(
            element("td", UNKNOWN if cell is None else cell, css=c, data_label=name or None)
            for cell, name, c in zip(row, table.header, css, strict=True)
        ))
        for row in table.rows
    ]  # fmt: skip
    parts = element("thead", element("tr", *head)), element("tbody", *rows)
    return element("table", *parts, css="stacked", aria_label=label)
