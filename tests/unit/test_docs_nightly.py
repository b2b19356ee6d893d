"""The cron line and the job of docs/REGRESS.md are commands that this tree has, as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tunegrad.cli.regress import regress

PAGE = (Path(__file__).parents[2] / "docs" / "REGRESS.md").read_text(encoding="utf-8")
PART = PAGE[PAGE.index("## Every night") : PAGE.index("## The file")]


def test_every_sweep_of_the_page_takes_its_options_and_finds_its_file() -> None:
    lines = [x for x in PART.splitlines() if ".venv/bin/tunegrad regress" in x]
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(re.split(r"[|>]", line.split("tunegrad regress", 1)[1])[0])
        with regress.make_context("regress", words) as context:
            assert context.params["config"] == "nightly"
            assert context.params["markdown"] == "nightly.md"
