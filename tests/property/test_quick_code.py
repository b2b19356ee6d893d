"""Random programs of the API, run again: the quick code of a first run gives the numbers that full
code gives, bit for bit, and calls of a form that is known what calls of a new one give.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests import fuzzing
from tests.api_fuzzer import drawn
from tunegrad.frontend import handle, joined
from tunegrad.frontend.nodes import tracing
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


def test_programs_of_known_forms_give_what_new_ones_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_leaves", [False])
    counts = Counter[tuple[str, str]]()
    for case in range(fuzzing.count(25)):
        rng = fuzzing.rng("known forms", case)
        program = drawn(rng, rng.randint(2, 6), counts)
        turned = {n: (np.roll(x, 1), kind) for n, (x, kind) in program.inputs.items()}
        other = replace(program, inputs=turned)
        monkeypatch.setattr(handle, "_REPEATED", {})
        wanted = [t.numpy() for t in other.tensors()]
        monkeypatch.setattr(handle, "_REPEATED", {})
        for _ in range(3):
            for tensor in program.tensors():
                tensor.numpy()
        for tensor, right in zip(other.tensors(), wanted, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), right, err_msg=program.text())
