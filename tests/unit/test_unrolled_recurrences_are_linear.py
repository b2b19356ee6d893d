"""Steps of bytes whose scale depends on all steps before, as ONNX's DynamicQuantizeLSTM has them,
are rewritten and compared in work that grows with their number: lines that Python runs are counted.
"""

import sys
from collections.abc import Callable

import numpy as np
from quad_builders import VNNI

from tunegrad.frontend import Tensor
from tunegrad.ir.graph import Step
from tunegrad.ir.rewrites import quad_dots
from tunegrad.ir.rewrites.sums import Repeats
from tunegrad.ir.validate import check_rewrite


def recurrence(steps: int) -> Tensor:
    weights = Tensor.constant(np.arange(-32, 32, dtype=np.int8).reshape(8, 8)).cast("f32") * 0.01
    h = Tensor.input("x", (1, 8))
    for step in range(steps):
        scale = h.abs().max() / 127
        in_bytes = (h / scale).round().clamp(-128, 127).cast("i8")
        h = (in_bytes.cast("f32") * scale) @ weights + (step + 1)
    return h


def lines(call: Callable[[], object]) -> int:
    """Lines of Python that a call runs."""
    count = 0

    def trace(_frame: object, event: str, _arg: object) -> Callable[..., object]:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def test_rewriting_and_comparing_twice_as_many_steps_is_twice_the_work() -> None:
    counts: list[tuple[int, int]] = []
    for steps in (12, 24):
        before, made = (recurrence(steps).node,), list[Step]()
        after = quad_dots(before, VNNI, floats=True)
        rewriting = lines(lambda: quad_dots(before, VNNI, made, floats=True))  # noqa: B023
        comparing = lines(lambda: check_rewrite(before, after, made))  # noqa: B023
        assert made
        counts.append((rewriting, comparing))
    (rewriting, comparing), twice = counts
    assert twice[0] < 2.3 * rewriting
    assert twice[1] < 2.3 * comparing


def test_nothing_below_a_number_is_looked_at_for_its_repeats() -> None:
    repeats = Repeats()
    scale = recurrence(4).max().expand(8, 8).node
    assert repeats.of(scale) == {0, 1}
    assert len(repeats._found) < 5
