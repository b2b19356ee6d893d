"""docs/PROGRESS.md: what a search looks like on terminals of several sizes, captured from tmux.

    python -m tools.captures > docs/PROGRESS.md        needs tmux; takes about four minutes
    python -m tools.captures --picture                 writes docs/images/tune.svg from that page

A real search runs in a terminal of each size, and its screen is taken while it runs; one search is
stopped by Ctrl-C, one is piped.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

__all__ = ["main"]

TREE = Path(__file__).parents[1]
SIZES = ((80, 24), (120, 40), (40, 12))
COMMAND = "tunegrad tune resnet18 --budget 60s --store tuned.db"

PAGE = """\
# What a search shows

While `tunegrad tune` runs, a terminal shows its phase, a clock and the heaviest kernels, redrawn
twice a second:

- **the phase**: `limits` (workers start, the machine's peaks are measured), `plans` (whole models
  compared to decide how the graph is cut and stored), `defaults`, `search`, `race` (winners are
  settled in whole models), `whole model` (outputs are compared, and the model is timed);
- **the clock and a bar** of the budget, which is the wall clock of the whole command: start-up,
  races and the final measurement are part of it;
- **the model**: what it is expected to take with the best schedules so far, next to its default
  schedules. Both are sums over kernels that were measured alone. The final figures are of whole
  models, default and tuned in turns, and have an interval; the summary names the difference;
- **what was tried**, and what the next minute is expected to save;
- **the heaviest kernels** with their gains, as many as there is room for; the one that the search
  is at is bold. A gain here is an estimate (`~`): times that were measured alone, not in turns.

The first Ctrl-C (or SIGTERM, or SIGHUP) keeps the best so far and ends the search within a few
seconds; the second one ends at once. If stderr is not a terminal, there are plain lines with the
time since the command began; a kernel has a line when it became faster.

At the end there is a table of the kernels. A narrow terminal shows fewer columns: first without the
layers of a kernel, then without the candidates and the share; `--json` and pipes have all columns.
A warning names a busy machine at the start and at the end.

The screens below show the display and are not a benchmark: other work used the machine at times, so
some figures are wrong, those beyond 100 % of the peak among them. `python -m
tools.captures` makes this page.
"""


def tmux(*words: str) -> str:
    found = subprocess.run(
        ["tmux", "-L", "tunegrad-captures", *words], capture_output=True, text=True, check=True
    )
    return found.stdout


def screen(name: str) -> str:
    return tmux("capture-pane", "-t", name, "-p").rstrip()


def begun(name: str, width: int, height: int, folder: Path) -> None:
    """A search in a terminal of this size; ``tunegrad`` is that of this tree."""
    shell = (
        f"env PYTHONPATH={shlex.quote(str(TREE))} LC_ALL=C.UTF-8 PS1='$ ' PATH={folder}:$PATH "
        "bash --norc"
    )
    tmux(
        "new-session",
        "-d",
        "-s",
        name,
        "-x",
        str(width),
        "-y",
        str(height),
        "-c",
        str(folder),
        shell,
    )
    tmux("send-keys", "-t", name, f"clear; {COMMAND}", "Enter")


def over(name: str) -> str:
    """The screen once the shell asks again."""
    for _ in range(240):
        if screen(name).endswith("$"):
            return screen(name)
        time.sleep(0.5)
    raise SystemExit(f"{name}: the search does not end")


def block(text: str) -> str:
    return f"```text\n{text}\n```\n"


def write_picture() -> None:
    """Draw the end of the first search of the page, for the README: no script, no outside font."""
    page = (TREE / "docs" / "PROGRESS.md").read_text(encoding="utf-8")
    screen_text = page.split("The end of it:\n\n```text\n", 1)[1].split("\n$\n```", 1)[0]
    console = Console(record=True, width=SIZES[0][0], file=io.StringIO())
    text = Text(screen_text)
    text.highlight_regex(r"\d\.\d\dx(?= \()", "bold green")
    console.print(text)
    svg = console.export_svg(title=COMMAND, unique_id="tune")
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    (TREE / "docs" / "images" / "tune.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    """Print the page, or with ``--picture`` draw its first end."""
    if sys.argv[1:] == ["--picture"]:
        write_picture()
        return
    parts = [PAGE]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shim = folder / "tunegrad"
        shim.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tunegrad "$@"\n', encoding="utf-8"
        )
        shim.chmod(0o755)
        for width, height in SIZES:
            name = f"s{width}"
            begun(name, width, height, folder)
            time.sleep(42.0)
            parts.append(f"## {width} x {height}, while it searches\n\n{block(screen(name))}")
            if (width, height) == SIZES[1]:
                tmux("send-keys", "-t", name, "C-c")
                time.sleep(0.9)
                parts.append(f"0.9 s after Ctrl-C:\n\n{block(screen(name))}")
            last = over(name)
            if (width, height) == SIZES[0]:
                parts.append(f"The end of it:\n\n{block(last)}")
            tmux("kill-session", "-t", name)
            (folder / "tuned.db").unlink()
        piped = subprocess.run(
            [str(shim), *COMMAND.split()[1:4], "25s", *COMMAND.split()[5:]],
            cwd=folder, env={"PYTHONPATH": str(TREE), "PATH": "/usr/bin:/bin", "HOME": place},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        parts.append(
            f"## Not a terminal\n\nWith a budget of 25 s:\n\n{block(piped.stderr.rstrip())}"
        )
    print("\n".join(parts), end="")


if __name__ == "__main__":
    main()
