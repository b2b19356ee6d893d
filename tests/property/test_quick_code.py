"""Random programs of the API: the quick code of a first run gives the numbers that full code gives,
bit for bit.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests import fuzzing
from tests.api_fuzzer import drawn
from tunegrad.frontend import joined
from tunegrad.inference import realizing


def test_quick_code_of_programs_gives_what_full_code_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizing, "_first", set())
    counts = Counter[tuple[str, str]]()
    for case in range(fuzzing.count(25)):
        rng = fuzzing.rng("quick code", case)
        program = drawn(rng, rng.randint(2, 6), counts)
        tensors = program.tensors()
        nodes, names = realizing._canonical(tuple(t.node for t in tensors))
        given, inputs = joined(tensors), {}
        for old, new in names.items():
            inputs[new] = given[old]
        quick = realizing._default_plan(nodes)
        assert nodes in realizing._first
        full = realizing._default_plan(nodes, in_full=True)
        for a, b in zip(quick.run(inputs), full.run(inputs), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=program.text())
            signs = [np.signbit(x[x == 0]) for x in (a, b) if x.dtype.kind == "f"]
            np.testing.assert_array_equal(*(signs or ((), ())), err_msg=program.text())
