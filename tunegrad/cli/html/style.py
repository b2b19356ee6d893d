"""The style of a report: one set of colours for light, one for dark; columns on a laptop, one below
the other on a phone.

HTML that can not be injected: whatever is not ``Html`` already is text, and is escaped where it
becomes a part of an element.

    element("td", "<script>", css="name")    <td class="name">&lt;script&gt;</td>
"""

from __future__ import annotations

from html import escape

from tunegrad.cli.tables import UNKNOWN, Table

__all__ = [
    "COLOURS",
    "SERIES",
    "STYLE",
    "Html",
    "clean",
    "element",
    "joined",
    "table_element",
    "text",
]

COLOURS = {
    "ink": "#010101",
    "muted": "#020202",
    "grid": "#030303",
    "paper": "#040404",
    "before": "#050505",
    "after": "#060606",
    "bad": "#070707",
    "series0": "#080808",
    "series1": "#090909",
    "series2": "#0a0a0a",
    "series3": "#0b0b0b",
    "series4": "#0c0c0c",
    "series5": "#0d0d0d",
}
"""Colours that charts are drawn with, by the name of the variable that stands there in the page."""

SERIES = tuple(name for name in COLOURS if name.startswith("series"))

_LIGHT = """
--ink:#1b1f24; --muted:#5b6570; --grid:#e3e7eb; --paper:#ffffff; --ground:#f4f6f8;
--before:#9aa5b1; --after:#0b6bcb; --good:#0a7a4b; --bad:#c2352b; --badge:#eaf2fb;
--series0:#0b6bcb; --series1:#d9720d; --series2:#0a8a5f; --series3:#9a4bc4; --series4:#c2352b;
--series5:#6b7785;
"""

_DARK = """
--ink:#e6e9ed; --muted:#9aa6b2; --grid:#2b333c; --paper:#171c22; --ground:#0e1216;
--before:#66727f; --after:#58a6ff; --good:#4cc38a; --bad:#ff7b72; --badge:#1c2a3a;
--series0:#58a6ff; --series1:#f0a35e; --series2:#4cc38a; --series3:#c792ea; --series4:#ff7b72;
--series5:#a5b1bd;
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; }}
body {{ margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui,
  -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }}
main {{ max-width: 1040px; margin: 0 auto; padding: 24px 16px 64px; }}
h1 {{ font-size: 1.75rem; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }}
h2 {{ font-size: 1.2rem; margin: 0 0 4px; }}
h3 {{ font-size: 1rem; margin: 20px 0 8px; }}
p {{ margin: 0 0 12px; max-width: 72ch; }}
.sub, .note {{ color: var(--muted); }}
.note {{ font-size: .875rem; }}
code, .mono {{ font: .8125rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  }}
section, .card {{ background: var(--paper); border: 1px solid var(--grid); border-radius: 10px;
  padding: 20px; margin: 16px 0; }}
article > header {{ margin: 32px 0 16px; }}
.headline {{ display: flex; flex-wrap: wrap; gap: 12px 40px; align-items: baseline;
  margin: 16px 0 0; }}
.figure {{ font-size: 1.9rem; font-weight: 650; letter-spacing: -.02em; line-height: 1.15; }}
.figure small {{ font-size: 1rem; font-weight: 500; letter-spacing: 0; }}
.label {{ display: block; color: var(--muted); font-size: .8125rem; }}
.num, .figure, td.right {{ font-variant-numeric: tabular-nums; }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }} .same {{ color: var(--muted); }}
.facts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr));
  gap: 10px 20px; margin: 0; }}
.facts div {{ min-width: 0; }}
.facts dt {{ color: var(--muted); font-size: .8125rem; }} .facts dd {{ margin: 0; }}
ol.kernels {{ list-style: none; margin: 12px 0 0; padding: 0; }}
ol.kernels > li {{ display: grid; grid-template-columns: 28px minmax(0, 5fr) minmax(0, 4fr) 148px;
  gap: 4px 14px; padding: 12px 0; border-top: 1px solid var(--grid); align-items: start; }}
.rank {{ color: var(--muted); font-variant-numeric: tabular-nums; text-align: right; }}
.name {{ font-weight: 600; }}
.layers {{ color: var(--muted); font-size: .875rem; }}
.uses {{ font-weight: 400; color: var(--muted); white-space: nowrap; }}
.bars {{ display: grid; grid-template-columns: minmax(0, 1fr) 76px 46px; gap: 2px 8px;
  align-items: center; font-size: .875rem; font-variant-numeric: tabular-nums; }}
.bars span {{ text-align: right; white-space: nowrap; }}
.bar {{ height: 10px; border-radius: 2px; min-width: 1px; }}
.bar.before {{ background: var(--before); }} .bar.after {{ background: var(--after); }}
.gain {{ text-align: right; font-weight: 600; font-variant-numeric: tabular-nums; }}
.gain .same {{ font-weight: 500; font-size: .9rem; }}
.gain small {{ display: block; font-weight: 400; color: var(--muted); }}
.more {{ grid-column: 2 / -1; font-size: .875rem; color: var(--muted); }}
details > summary {{ cursor: pointer; color: var(--muted); font-size: .875rem; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 4px; font-size: .875rem;
  color: var(--muted); padding: 0; list-style: none; }}
.legend li {{ min-width: 0; }}
.legend i, .swatch i {{ display: inline-block; width: 12px; height: 12px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; }}
.chart {{ margin: 8px 0 0; }}
.chart svg {{ display: block; width: 100%; height: auto; stroke-linejoin: round;
  stroke-linecap: butt; }}
.chart svg text {{ font-family: inherit !important; }}
.chart .phone {{ display: none; }}
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
  ol.kernels > li {{ grid-template-columns: 22px minmax(0, 1fr); }}
  .bars, .gain, .more {{ grid-column: 2; }}
  .gain {{ text-align: left; }} .gain small {{ display: inline; margin-left: 8px; }}
  .chart .phone {{ display: block; }} .chart .desk {{ display: none; }}
  th, td {{ padding-right: 10px; }}
  table.stacked thead {{ display: none; }}
  table.stacked tr {{ display: block; padding: 8px 0; border-bottom: 1px solid var(--grid); }}
  table.stacked td {{ display: flex; justify-content: space-between; gap: 16px; border: 0;
    padding: 2px 0; white-space: normal; text-align: right; }}
  table.stacked td::before {{ content: attr(data-label); color: var(--muted); text-align: left;
    flex: none; }}
  table.stacked td > * {{ min-width: 0; }}
}}
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


def table_element(table: Table) -> Html:
    """A table; on a phone each cell stands under the name of its column."""
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
    return element("table", *parts, css="stacked")
