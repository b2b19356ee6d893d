"""A report as a browser shows it: on a laptop and on a phone, light and dark, without a word of
complaint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, browser, chromium, served
from tests.report_stores import store_of, write_session
from tunegrad.cli.app import run
from tunegrad.cli.html import Watched
from tunegrad.db import open_store

CHROMIUM = chromium()
AXE = os.environ.get("TUNEGRAD_AXE", "")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.timing,
]

LONG = "winograd4_output_of_conv3x3_512->512_7x7_+add_+relu_" * 4
TOUCHING = """
[...document.querySelectorAll('.plane')].flatMap(plane => {
  const seen = [...plane.querySelectorAll('.tick, .spot')].filter(e => e.getClientRects().length);
  const boxes = seen.map(e => [e.textContent, e.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
    .filter(([, q]) => p.left < q.right - 1 && q.left < p.right - 1 &&
      p.top < q.bottom - 1 && q.top < p.bottom - 1)
    .map(([b]) => [a, b]));
})
"""
"""Pairs of labels of a chart that lie over one another."""
VIEWS = [(width, dark) for width in (390, 1280) for dark in (False, True)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    with open_store(folder / "a.db", "write") as store:
        write_session(store, "s1")
        write_session(store, "s2", names=(LONG, "<script>document.title='taken'</script>"),
            error=LONG, layers=LONG[:180], origin=LONG)  # fmt: skip
    out = folder / "report.html"
    assert run(["report", "--store", str(folder / "a.db"), "-o", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browser(CHROMIUM, tmp_path_factory.mktemp("browser") / "b") as found:
        yield found


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_page_fits_its_window(opened: Browser, page: Path, width: int, dark: bool) -> None:
    opened.open(page, width, dark)
    assert opened.value("innerWidth") == width
    assert opened.value("document.documentElement.scrollWidth") == width
    wide = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg') && "
    assert opened.value(f"{wide}e.getBoundingClientRect().right > {width}).length") == 0
    assert opened.complaints() == []


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_text_stands_out_from_its_ground(
    opened: Browser, page: Path, width: int, dark: bool
) -> None:
    opened.open(page, width, dark)
    ground, ink, muted, paper = (
        sum(map(int, opened.value(f"getComputedStyle({where}).{what}")[4:-1].split(", ")))
        for where, what in (
            ("document.body", "backgroundColor"), ("document.body", "color"),
            ("document.querySelector('.note')", "color"),
            ("document.querySelector('section')", "backgroundColor"),
        )
    )  # fmt: skip
    assert (ground < ink) == dark
    assert abs(ink - paper) > 450
    assert abs(muted - paper) > 240


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_charts_are_seen_once_with_text_that_can_be_read(
    opened: Browser, page: Path, width: int, dark: bool
) -> None:
    opened.open(page, width, dark)
    opened.value("for (const d of document.querySelectorAll('details')) d.open = true")
    charts = opened.value("document.querySelectorAll('.chart').length")
    seen = "[...document.querySelectorAll('.chart svg')].filter(e => e.getClientRects().length)"
    assert opened.value(f"{seen}.length") == charts >= 4
    letters = opened.value(
        "[...document.querySelectorAll('.chart .tick, .chart .axis, .chart .spot')]"
        ".filter(t => t.textContent).map(t => parseFloat(getComputedStyle(t).fontSize))"
    )
    assert min(letters) >= 12.0
    assert opened.value(TOUCHING) == []


def test_nothing_is_asked_for_and_nothing_runs(opened: Browser, page: Path) -> None:
    opened.open(page, 1280, dark=False)
    assert set(opened.requests()) == {page.resolve().as_uri()}
    assert opened.value("document.title").startswith("store ")
    assert opened.value("document.querySelectorAll('script').length") == 1


CELLS = "[...document.querySelector('table[aria-label=kernels]').tBodies[0].rows]"


def test_tables_are_sorted_by_a_heading_and_a_link_opens_its_kernel(
    opened: Browser, page: Path
) -> None:
    opened.open(page, 1280, dark=False)
    ranks = f"{CELLS}.map(r => r.cells[0].textContent).join()"
    assert opened.value(ranks) == "1,2"
    head = "document.querySelector('table[aria-label=kernels] th:nth-child(4)')"
    opened.value(f"{head}.querySelector('button').focus()")
    for order in ("descending", "ascending"):
        opened.press("Enter")
        assert opened.value(f"{head}.getAttribute('aria-sort')") == order
    assert opened.value(ranks) == "2,1"
    first = f"{CELLS}[1].querySelector('a')"
    opened.value(f"{first}.focus()")
    opened.press("Enter")
    at = opened.value(f"{first}.getAttribute('href').slice(1)")
    for _ in range(2):  # also where the address has it already
        opened.wait(f"document.getElementById('{at}').open")
        opened.value(f"document.getElementById('{at}').open = false")
        opened.value(f"{first}.click()")


def test_candidates_are_drawn_by_any_two_parameters_and_say_their_values(
    opened: Browser, page: Path
) -> None:
    opened.open(page, 390, dark=False)
    opened.value("document.querySelector('details.kernel').open = true")
    opened.wait("document.querySelectorAll('details.kernel .tools select').length == 2")
    names = opened.value(
        "[...document.querySelector('details.kernel select').options].map(o => o.textContent)"
    )
    assert names[:3] == ["seconds of the search", "time, ms", "order of measuring"]
    assert {"tile", "unroll", "vectorize"} <= set(names)
    drawn = "document.querySelector('details.kernel .plane').innerHTML"
    before = opened.value(drawn)
    for select, name in ((0, "tile"), (1, "vectorize")):
        opened.value(
            f"(s => {{ s.value = {names.index(name)}; s.onchange(); }})"
            f"(document.querySelectorAll('details.kernel select')[{select}])"
        )
    assert opened.value(drawn) != before
    assert "b1" in opened.value("document.querySelector('details.kernel .plane').textContent")
    assert "NaN" not in opened.value(drawn)
    opened.value("document.querySelector('details.kernel .plane').focus()")
    opened.press("ArrowRight")
    said = opened.value("document.querySelector('details.kernel output').textContent")
    assert said.startswith("1 ms, from winograd4_output")
    assert "vectorize: axis=b1" in said or "vectorize: b1" in said


def test_watched_page_renews_what_changed_and_keeps_what_is_open(
    opened: Browser, tmp_path: Path
) -> None:
    path = store_of(tmp_path / "a.db", "s1")
    try:
        with served(Watched(path, used=lambda: 0.0)) as port:
            opened.open(f"http://127.0.0.1:{port}/", 1280, dark=False)
            opened.value("document.getElementById('s0-k2').open = true")
            assert opened.value("document.querySelector('h1').textContent") == "small"
            with open_store(path, "write") as store:
                write_session(store, "s2", "another")
            opened.wait("document.querySelector('h1').textContent == 'another'")
            assert opened.value("document.getElementById('s0-k2').open")
            assert opened.value("document.getElementById('state').textContent") == "live"
            assert opened.value("document.querySelectorAll('button.sort').length") > 10
            assert opened.complaints() == []
            assert not AXE or opened.violations(Path(AXE)) == []
    finally:
        opened.wait("document.getElementById('state').textContent.startsWith('the server')")
        opened.said.clear()  # it complains of the server that is gone


@pytest.mark.skipif(not AXE, reason="TUNEGRAD_AXE does not name an axe.min.js")
@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_axe_finds_no_violation(opened: Browser, page: Path, width: int, dark: bool) -> None:
    opened.open(page, width, dark)
    assert opened.violations(Path(AXE)) == []
