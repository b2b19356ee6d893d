"""The tool that counts ONNX's node tests: no case ends it, and its table says what is missing."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed")

from tools.docs.onnx_cases import NEARER, Row, cases, run_cases
from tools.docs.onnx_modes import UNREAD, refused_types, unread_attributes
from tools.docs.onnx_page import case_table
from tunegrad.frontend.onnx.backend import TunegradBackend

pytestmark = pytest.mark.timing


def deadly(name: str) -> Row:
    """A judge that some names end, or hold up."""
    if name == "dies":
        os._exit(7)
    if name == "hangs":
        time.sleep(60)
    return Row(name, kernels=1)


def test_a_case_that_dies_or_hangs_is_a_row_and_the_next_ones_run() -> None:
    rows = run_cases(["a", "dies", "b", "hangs", "c"], deadly, limit_s=5.0)
    assert [r.name for r in rows] == ["a", "dies", "b", "hangs", "c"]
    assert [r.why for r in rows] == [
        "", "it ended the process: 7", "", "it took too long", "",
    ]  # fmt: skip


@pytest.mark.slow
def test_cases_are_judged_by_what_they_lack() -> None:
    rows = run_cases(
        ["test_relu", "test_loop11", "test_bernoulli", "test_image_decoder_decode_bmp_rgb"]
    )
    assert [r.lacks for r in rows] == [
        "",
        "",
        "numbers that the reference drew",
        "operator ImageDecoder",
    ]
    assert [r.constants for r in rows[:2]] == [0, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NEARER))
def test_results_that_are_not_the_expected_ones_are_nearer_to_f64(name: str) -> None:
    (operands, (expected,)) = cases()[name].data_sets[0]
    x, *others = (np.asarray(a, np.float64) for a in operands)
    if "dft" in name:
        made = np.fft.ifft(x[..., 0] + 1j * (x[..., 1] if x.shape[-1] > 1 else 0), axis=1)
        exact = np.stack([made.real, made.imag], -1)
    else:
        k, v = others[:2]
        scores = x @ k.swapaxes(-1, -2) / np.sqrt(x.shape[-1])
        shares = np.tril(np.exp(scores))
        exact = shares @ v / shares.sum(-1, keepdims=True)
    (ours,) = TunegradBackend.prepare(cases()[name].model, store=False).run(list(operands))
    far, theirs = (np.abs(a.astype(np.float64) - exact).max() for a in (ours, expected))
    assert far <= theirs


@pytest.mark.slow
def test_what_schemas_have_is_there() -> None:
    """Each attribute that no operator reads has a reason."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    count, unread = unread_attributes()
    assert count > 270
    assert set(unread) == set(UNREAD)
    tried, refused = refused_types()
    assert tried > 1300
    assert not refused


def test_table_counts_what_is_missing() -> None:
    rows = [
        Row("a", kernels=1), Row("b", constants=1), Row("c", "x", "operator Det"),
        Row("d", "x", "operator Det"), Row("e", "E: node y (Resize): axes", "the rest of Resize"),
    ]  # fmt: skip
    text = case_table(rows)
    assert text.startswith("2 of 5 node tests pass (40.0 %). In 1 of those some inputs were")
    assert "in 1 nothing was left for a kernel." in text.replace("\n", " ")
    assert "| operator Det | 2 |  |\n| the rest of Resize | 1 | axes |" in text
