"""A report as a browser shows it: on a laptop and on a phone, light and dark, without a word of
complaint.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, browser, chromium
from tests.report_stores import write_session
from tunegrad.cli.app import run
from tunegrad.db import open_store

pytest.importorskip("matplotlib", reason="charts need the plot extra")
CHROMIUM = chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

LONG = "winograd4_output_of_conv3x3_512->512_7x7_+add_+relu_" * 4
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
    seen = "[...document.querySelectorAll('.chart svg')].filter(e => e.getClientRects().length)"
    assert opened.value(f"{seen}.length") == opened.value(
        "document.querySelectorAll('.chart').length"
    )
    heights = opened.value(
        f"{seen}.flatMap(e => [...e.querySelectorAll('text')])"
        ".filter(t => t.textContent.trim())"
        ".filter(t => !/rotate\\(-?[1-9]/.test(t.getAttribute('transform')))"
        ".map(t => t.getBoundingClientRect().height)"
    )
    assert min(heights) >= 9.0


def test_nothing_is_asked_for_and_nothing_runs(opened: Browser, page: Path) -> None:
    opened.open(page, 1280, dark=False)
    assert set(opened.requests()) == {page.resolve().as_uri()}
    assert opened.value("document.title").startswith("store ")
    assert opened.value("document.querySelectorAll('script').length") == 0
