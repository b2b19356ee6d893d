"""The pictures of docs/REPORT.md: a report as a browser shows it.

python -m tools.report_images REPORT.html      writes docs/images/report*.png; needs a Chromium
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser import browser, chromium

__all__ = ["main"]

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LARGEST = 150_000


def main(report: Path) -> None:
    """Take both pictures; ends with a message where there is no browser, or one is too large."""
    path = chromium()
    if path is None:
        sys.exit("no Chromium on this machine")
    with tempfile.TemporaryDirectory() as folder, browser(path, Path(folder) / "b") as shown:
        shown.open(report, 1040, dark=False)
        shown.picture(IMAGES / "report.png", height=820)
        shown.open(report, 390, dark=True)
        roofline = "[...document.querySelectorAll('h2')].find(e => e.textContent == 'Roofline')"
        top = shown.value(f"Math.round({roofline}.getBoundingClientRect().top + scrollY) - 24")
        shown.picture(IMAGES / "report-phone.png", height=760, top=top)
    for image in sorted(IMAGES.glob("report*.png")):
        print(f"{image}: {image.stat().st_size / 1e3:.0f} KB")
        if image.stat().st_size > LARGEST:
            sys.exit(f"{image} has more than {LARGEST} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
