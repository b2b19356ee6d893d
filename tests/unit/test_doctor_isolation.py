"""Doctor names every protection that a candidate's process can have, and says which are missing."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tunegrad.devices import Protections
from tunegrad.explain.machine import isolation_rows

NONE = Protections(False, 0, False, False, False, False)
ALL = Protections(True, 6, True, True, True, True)


def test_every_protection_has_a_row() -> None:
    assert [row.present for row in isolation_rows(NONE)] == [False] * len(fields(Protections))
    assert [row.present for row in isolation_rows(ALL)] == [True] * len(fields(Protections))


@pytest.mark.parametrize(
    ("version", "detail"),
    [
        (0, "this kernel has none, or it is switched off"),
        (3, "version 3: no file"),
        (4, "version 4: no file, no TCP"),
        (7, "version 7: no file, no TCP, no signal to others"),
    ],
)
def test_landlock_says_what_its_version_stops(version: int, detail: str) -> None:
    row = isolation_rows(Protections(True, version, True, True, False, True))[1]
    assert (row.name, row.present, row.detail) == ("Landlock", version > 0, detail)


def test_the_page_that_doctor_points_to_names_each_protection() -> None:
    page = (Path(__file__).parents[2] / "docs/ISOLATION.md").read_text().lower()
    assert [
        row.name for row in isolation_rows(ALL) if row.name.split()[0].lower() not in page
    ] == []
