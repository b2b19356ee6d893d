"""HTML that can not be injected: whatever is not ``Html`` already is text, and is escaped where it
becomes a part of an element.

    element("td", "<script>", css="name")    <td class="name">&lt;script&gt;</td>
"""

from __future__ import annotations

from html import escape

from tunegrad.cli.tables import UNKNOWN, Table

__all__ = ["Html", "clean", "element", "joined", "table_element", "text"]

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
