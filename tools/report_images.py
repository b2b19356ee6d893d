"""The pictures of docs/REPORT.md: a report as a browser shows it.

python -m tools.report_images REPORT.html STORE    writes docs/images/report*.png, and watch.png of
                                                   the store's newest session; needs a Chromium
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser import Browser, browser, chromium, served
from tunegrad.cli.html import Watched

__all__ = ["main"]

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LARGEST = 150_000


def _top(shown: Browser, wanted: str) -> int:
    """The place at which an element begins, in pixels of the page."""
    at = f"document.querySelector({wanted!r}).getBoundingClientRect().top + scrollY"
    return int(shown.value(f"Math.round({at})")) - 16


def _watched(shown: Browser, store: Path) -> None:
    """A picture of the watched page of a store, on a phone."""
    with served(Watched(store)) as port:
        shown.open(f"http://127.0.0.1:{port}/", 390, dark=False)
        shown.picture(IMAGES / "watch.png", height=760)


def main(report: Path, store: Path) -> None:
    """Take the pictures; ends with a message where there is no browser, or one is too large."""
    path = chromium()
    if path is None:
        sys.exit("no Chromium on this machine")
    with tempfile.TemporaryDirectory() as folder, browser(path, Path(folder) / "b") as shown:
        shown.open(report, 1040, dark=False)
        shown.picture(IMAGES / "report.png", height=900)
        shown.value("document.querySelector('details.kernel').open = true")
        shown.wait("document.querySelector('details.kernel select')")
        chart = "details.kernel[open] .legend"
        shown.picture(IMAGES / "report-kernel.png", height=420, top=_top(shown, chart) - 24)
        shown.open(report, 390, dark=True)
        shown.picture(IMAGES / "report-phone.png", height=760, top=_top(shown, "[id$=-roofline]"))
        _watched(shown, store)
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image}: {image.stat().st_size / 1e3:.0f} KB")
        if image.stat().st_size > LARGEST:
            sys.exit(f"{image} has more than {LARGEST} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
