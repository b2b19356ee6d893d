"""The record of a session's rows: a line of JSON each, written at once, and never made again.

OUT/began.jsonl    step, row and time, before a row is made
OUT/STEP.jsonl     what came of it
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

__all__ = ["UNFINISHED", "Journal", "State"]

UNFINISHED = "unfinished"
"""Mark of a row that is to be made again: it goes on."""
_TRIES = 2
State = Literal["new", "done", "again", "hung", "failed"]


class Journal:
    """The rows of one folder. Mutable: it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._began: dict[tuple[str, str], int] = {}
        for line in self._lines("began"):
            key = line["step"], line["name"]
            self._began[key] = self._began.get(key, 0) + 1
        self._rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for path in folder.glob("*.jsonl"):
            for row in self._lines(path.stem) if path.stem != "began" else ():
                self._rows.setdefault((path.stem, row["name"]), []).append(row)

    def state(self, step: str, name: str) -> State:
        """The state of a row. One that failed, or was cut off before it ended, is made once more;
        one that hung is not.
        """
        rows = self._rows.get((step, name), [])
        failed = sum("error" in row for row in rows)
        cut = max(0, self._began.get((step, name), 0) - len(rows))
        last = rows[-1] if rows else {"error": ""}
        if "error" not in last:
            return "again" if last.get(UNFINISHED) else "done"
        if last.get("hung"):
            return "hung"
        if failed + cut == 0:
            return "new"
        return "again" if failed + cut < _TRIES else "failed"

    def failing(self, step: str) -> bool:
        """True if the last record of a row of a step is a failure."""
        return any("error" in rows[-1] for key, rows in self._rows.items() if key[0] == step)

    def begin(self, step: str, name: str) -> None:
        """Write down that a row is made from now on."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write("began", {"step": step, "name": name, "at": at})

    def end(self, step: str, row: dict[str, Any]) -> None:
        """Write down what came of it."""
        self._write(step, row)
        self._rows.setdefault((step, row["name"]), []).append(row)

    def _lines(self, stem: str) -> Iterator[dict[str, Any]]:
        path = self.folder / f"{stem}.jsonl"
        return map(json.loads, path.read_text().splitlines() if path.exists() else ())

    def _write(self, stem: str, line: dict[str, Any]) -> None:
        with (self.folder / f"{stem}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
