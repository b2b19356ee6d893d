"""Random programs of reads, views and writes in place, against PyTorch."""

from __future__ import annotations

import pytest

from tests import fuzzing
from tests.mutation_fuzzer import check_programs


def test_programs_with_writes_are_pytorchs() -> None:
    pytest.importorskip("torch")
    check_programs(fuzzing.count(25))
