"""Plans of the rules, of every variant, form of images and toggle are validated against their
graphs: none is refused, and none left out but for
positions that are compared as floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fuzzing
from tests.graph_fuzzer import literal_graph, random_graph
from tests.kernel_corpus import GRAPHS, graph_of
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, DType
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LAST, ROWS, Fusion, LaunchPlan, blocked, schedule
from tunegrad.ir.interpret.numeric import Array
from tunegrad.ir.validate import numbers, validation
from tunegrad.ir.variants import rewrite, variants_of

DTYPES = ((F32,), (F32, I32), (F32, BF16, F16), (F32, I32, BOOL, U8, I64), (F64, I8, U32))


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No run of before says what is right."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _plans(fusion: Fusion) -> Iterator[LaunchPlan]:
    for images in (LAST, ROWS, blocked(4)):
        plan = fusion.storing(images).schedule()
        yield plan
        for key, (k, _) in plan.kernels().items():
            for variant in variants_of(k)[1:]:
                yield rewrite(plan, {key: variant})
    places = [*range(len(fusion.drafts.order)), *fusion.drafts.attentions()]
    for place in places:
        yield fusion.toggled({place}).schedule()


@pytest.mark.parametrize("name", GRAPHS)
def test_every_plan_of_the_corpus_is_validated(name: str) -> None:
    fusion = Fusion.of(graph_of(name))
    for plan in _plans(fusion):
        found = validation(plan, fusion.drafts.targets)
        assert found.buffers
        assert not found.left_out


def test_random_graphs_are_validated() -> None:
    for case in range(fuzzing.count(150)):
        rng = fuzzing.rng("plan validation", case)
        outputs = random_graph(rng, rng.choice((4, 8, 15, 25)), rng.choice(DTYPES))
        for graph in (outputs, fold_constants(outputs)):
            assert not validation(schedule(graph)).left_out


def test_graphs_of_literals_at_some_positions_are_validated() -> None:
    for case in range(fuzzing.count(150)):
        rng = fuzzing.rng("literals", case)
        outputs = literal_graph(rng, rng.choice(((F32,), (F16, BF16), (F64, I8, I32))))
        assert not validation(schedule(outputs)).left_out


def test_both_sides_of_a_product_draw_its_elements_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    drawn = numbers.leaf

    def counted(seed: int, at: Array, dtype: DType) -> Array:
        sizes.append(at.size)
        return drawn(seed, at, dtype)

    monkeypatch.setattr(numbers, "leaf", counted)
    x, w = Tensor.input("x", (37, 1031), "f32"), Tensor.input("w", (1031, 53), "f32")
    assert not validation(schedule(((x @ w).node,))).left_out
    assert len([n for n in sizes if n > 1031]) == 2
