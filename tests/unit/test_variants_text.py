"""The text of kernels of several stores: shared subexpressions stand once, and every process prints
the same.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from kernel_corpus import corpus_kernel
from variant_builders import Conv

from benchmarks.hand_schedules import conv3x3
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import parts_of

ROOT = Path(__file__).parents[2]
NAMES = [
    "winograd_input",
    "winograd_output",
    "winograd_residual_input",
    "winograd_residual_output",
    "masked_stores",
]


def keys() -> list[str]:
    return [corpus_kernel(name).key for name in NAMES]


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_other_processes_print_the_same_text(seed: str) -> None:
    code = "import test_variants_text as t; print(*t.keys())"
    tests = ROOT / "tests"
    path = os.pathsep.join(map(str, (ROOT, tests, tests / "unit")))
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert found.stdout.split() == keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_keeps_the_text(name: str) -> None:
    kernel = corpus_kernel(name)
    back = pickle.loads(pickle.dumps(Kernel(kernel.params, kernel.axes, kernel.stages)))
    assert back.text == kernel.text


@pytest.mark.parametrize("name", NAMES)
def test_renaming_keeps_the_text(name: str) -> None:
    kernel = corpus_kernel(name)
    assert kernel.canonical().canonical().text == kernel.text
    axes = {a.name: type(a)(f"other_{a.name}", a.extent) for a in kernel.all_axes()}
    params = {p.name: f"other_{p.name}" for p in kernel.params}
    values = {r.name: f"other_{r.name}" for r in kernel.reduces}
    assert kernel.renamed(axes, params, values).key == kernel.key


def test_another_image_s_kernel_has_another_key() -> None:
    made = [parts_of(Conv(height=n, width=8).kernel(), "winograd2") for n in (7, 8)]
    assert made[0][1].key == made[1][1].key, "both have 4 x 4 tiles"
    assert made[0][0].key != made[1][0].key
    assert made[0][2].key != made[1][2].key


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_defined_once_before_it_is_used_more_than_once(name: str) -> None:
    text = corpus_kernel(name).text
    names = re.findall(r"^  (t\d+) = ", text, re.MULTILINE)
    assert names == [f"t{i}" for i in range(len(names))]
    assert names
    for x in names:
        places = [m.start() for m in re.finditer(rf"\b{x}\b", text)]
        assert len(places) > 2, f"{x} is used once: it needs no line"
        assert text[places[0] :].startswith(f"{x} = ")


@pytest.mark.parametrize("tile", [2, 4])
def test_a_transform_loads_every_pixel_of_its_tile_once(tile: int) -> None:
    transform, _, finish = parts_of(
        Conv(height=16, width=16, bias=False).kernel(), f"winograd{tile}"
    )
    for kernel in (transform, finish):
        body = "\n".join(line for line in kernel.text.splitlines() if " param " not in line)
        assert len(re.findall(r"\bp1\[", body)) == (tile + 2) ** 2


def test_shared_work_is_counted_once() -> None:
    """B^T d B for F(2x2): 4 x 4 rows of 4 sums of two, on each side."""
    transform = parts_of(Conv(channels=3, height=8, width=8, last=True).kernel(), "winograd2")[0]
    assert transform.flops == transform.points * 2 * 4 * 4


def test_text_of_the_output_transform() -> None:
    finish = parts_of(conv3x3(2, 3, 3), "winograd2")[2]
    assert finish.text == dedent(
        """
        kernel
          param p0 f32[3,3,3] out row
          param p1 f32[16,2,2,3] in row
          axis a:2 b:2 c:3
          t0 = p1[4, a, b, c]
          t1 = p1[8, a, b, c]
          t2 = p1[5, a, b, c]
          t3 = p1[9, a, b, c]
          t4 = add(add(p1[1, a, b, c], t2), t3)
          t5 = p1[6, a, b, c]
          t6 = p1[10, a, b, c]
          t7 = add(add(p1[2, a, b, c], t5), t6)
          store p0[2*a, 2*b, c] = add(add(add(add(p1[0, a, b, c], t0), t1), t4), t7)
          t8 = p1[7, a, b, c]
          t9 = p1[11, a, b, c]
          store p0[2*a, 2*b+1, c if 0<=b<1] = sub(sub(t4, t7), add(add(p1[3, a, b, c], t8), t9))
          t10 = sub(sub(t2, t3), p1[13, a, b, c])
          t11 = sub(sub(t5, t6), p1[14, a, b, c])
          store p0[2*a+1, 2*b, c if 0<=a<1] = add(add(sub(sub(t0, t1), p1[12, a, b, c]), t10), t11)
          store p0[2*a+1, 2*b+1, c if 0<=a<1&0<=b<1] = sub(sub(t10, t11), sub(sub(t8, t9), p1[15, a, b, c]))
        """
    ).strip("\n")
