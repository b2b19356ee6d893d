"""Figures of matplotlib as parts of a page: text stays text in the page's font, colours are the
page's variables (so that dark is dark), and ids are the chart's own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from tunegrad.errors import ConfigError

from .markup import Html, element
from .style import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["chart", "check_plotting"]

WIDE, NARROW = 960, 340
"""Pixels across, on a laptop and on a phone."""

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_BY_COLOUR = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_COLOUR = re.compile("|".join(map(re.escape, _BY_COLOUR)))
_LOCAL = re.compile(r"url\(#")


def check_plotting() -> None:
    """Raise ConfigError, which says what to install, where there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401, ICN001  # only whether it is there
    except ImportError as error:
        raise ConfigError(
            "report needs matplotlib, which is not installed: pip install 'tunegrad[plot]'"
        ) from error


def chart(
    draw: Callable[[Figure, bool], Mapping[str, str] | None],
    height: float,
    narrow_height: float,
    label: str,
    number: str,
) -> Html:
    """A chart at both widths; the page shows the one that fits.

    ``draw(figure, narrow)`` fills a figure and may return what a pointer is told over artists, by
    their gid. Heights are in pixels, ``label`` says what is seen, ``number`` is the chart's own in
    the page.
    """
    both = (("desk", WIDE, height), ("phone", NARROW, narrow_height))
    return element(
        "div",
        *(
            element("div", _drawn(draw, width, tall, label, f"{number}{css}"), css=css)
            for css, width, tall in both
        ),
        css="chart",
    )


def _drawn(
    draw: Callable[[Figure, bool], Mapping[str, str] | None],
    width: float,
    height: float,
    label: str,
    prefix: str,
) -> Html:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    narrow = width == NARROW
    ink, muted, grid = COLOURS["ink"], COLOURS["muted"], COLOURS["grid"]
    look: dict[Any, Any] = {  # matplotlib types every name of a setting
        "svg.fonttype": "none",
        "svg.hashsalt": "tunegrad",
        "text.parse_math": False,
        "text.color": ink,
        "axes.edgecolor": grid,
        "axes.labelcolor": muted,
        "axes.titlecolor": ink,
        "axes.titlesize": 11 if narrow else 12.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "grid.color": grid,
        "grid.linewidth": 1,
        "xtick.color": muted,
        "ytick.color": muted,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "font.size": 11 if narrow else 12.5,
    }
    with mpl.rc_context(look):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        figure.patch.set_alpha(0.0)
        titles = draw(figure, narrow) or {}
        for axes in figure.axes:
            axes.patch.set_alpha(0.0)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _adopted(out.getvalue(), label, prefix, titles)


def _adopted(source: str, label: str, prefix: str, titles: Mapping[str, str]) -> Html:
    """The picture as an element of the page."""
    root = ET.fromstring(source)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}style", f"{_SVG}metadata") or not isinstance(child.tag, str):
                parent.remove(child)
    for node in root.iter():
        gid = node.get("id", "")
        _rename(node, prefix)
        if gid in titles:
            title = ET.Element("title")
            title.text = titles[gid]
            node.insert(0, title)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return Html(ET.tostring(root, encoding="unicode", short_empty_elements=False))


def _rename(node: ET.Element, prefix: str) -> None:
    """Without namespaces, which a page does not need, with ids of this chart and the page's
    colours.
    """
    node.tag = node.tag.removeprefix(_SVG)
    if _HREF in node.attrib:
        node.attrib["href"] = node.attrib.pop(_HREF)
    for name, value in node.attrib.items():
        if name == "id":
            node.attrib[name] = f"{prefix}-{value}"
        elif name == "href":
            node.attrib[name] = f"#{prefix}-{value.removeprefix('#')}"
        else:
            found = _LOCAL.sub(f"url(#{prefix}-", value)
            node.attrib[name] = _COLOUR.sub(lambda m: _BY_COLOUR[m.group()], found)
