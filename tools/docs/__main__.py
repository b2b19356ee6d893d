"""``python -m tools.docs [--check] [PAGE ...]``: rewrite generated blocks of docs, or say which are
out of date. Pages that take minutes are made where they are named: docs/ONNX.md.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from .pages import PAGES, SLOW, rewritten

__all__ = ["main"]

_ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 3 when ``--check`` finds a page out of date."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs", description="write the generated blocks of docs/"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; print what differs")
    parser.add_argument("page", nargs="*", help="default: all but those that take minutes")
    options = parser.parse_args(argv)
    unknown = [name for name in options.page if name not in PAGES]
    if unknown:
        parser.error(f"no page {', '.join(unknown)}; valid: {', '.join(PAGES)}")
    stale = 0
    for name in options.page or [p for p in PAGES if p not in SLOW]:
        path = _ROOT / name
        old = path.read_text(encoding="utf-8")
        new = rewritten(name, old)
        if old == new:
            continue
        stale += 1
        if options.check:
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "as it runs")
            )
        else:
            path.write_text(new, encoding="utf-8")
            print(f"rewrote {name}", file=sys.stderr)
    return 3 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
