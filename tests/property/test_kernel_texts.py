"""Kernels of random graphs are read back from their texts; mutated texts are a kernel or one error,
and soon.
"""

from __future__ import annotations

import random
import re
import sys
from functools import cache

import pytest

from tests.graph_fuzzer import random_graph
from tests.kernel_corpus import NAMES, kernels_of
from tunegrad.errors import KernelTextError
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, DType
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.verify.kernel import verify_kernel

MIXED = (F32, F64, I32, BOOL)
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "16",
    "65536",
    "4194304",
    "1099511627776",
    "9" * 30,
    "18446744073709551616",
)
CHARACTERS = "()[],:=+-*/%<&abpvrst019 \n_e.\u0663\x00\ud800"
NESTS = ("exp(", "(", "add(f32(", "(a)//2+", "((a", "i32((0<=")


def random_kernels(seed: int, dtypes: tuple[DType, ...]) -> list[Kernel]:
    rng = random.Random(seed)
    return [
        launch.kernel for launch in schedule(random_graph(rng, rng.randint(1, 14), dtypes)).launches
    ]


def check_texts(seeds: range, dtypes: tuple[DType, ...]) -> None:
    for seed in seeds:
        for kernel in random_kernels(seed, dtypes):
            found = parse_kernel(kernel.text)
            assert (found.text, found.key) == (kernel.text, kernel.key), f"graph {seed}"
            assert found == kernel.canonical(), f"graph {seed}"
            anew = Kernel(kernel.params, kernel.axes, kernel.stages)  # renamed once more
            assert anew.canonical() == kernel, f"graph {seed}"
            assert anew.text == str(kernel) == kernel.text, f"graph {seed}"


@pytest.mark.parametrize(
    "dtypes", [(F32,), MIXED, (F32, F16, BF16)], ids=["f32", "mixed", "halves"]
)
def test_kernel_texts_of_random_graphs_are_read_back(dtypes: tuple[DType, ...]) -> None:
    check_texts(range(200), dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [(F32,), MIXED], ids=["f32", "mixed"])
def test_kernel_texts_of_many_random_graphs_are_read_back(dtypes: tuple[DType, ...]) -> None:
    check_texts(range(10_000, 20_000), dtypes)


@cache
def texts() -> tuple[str, ...]:
    corpus = [k.text for name in NAMES for k in kernels_of(name)]
    return (*corpus, *(k.text for seed in range(60) for k in random_kernels(seed, MIXED)))


def mutated(rng: random.Random, text: str) -> str:
    """The text with one to six things wrong."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        i = rng.randrange(len(text) + 1)
        j = min(len(text), i + rng.choice((1, 1, 2, 5, 30)))
        kind = rng.choice(
            ("cut", "put", "number", "move", "swap", "repeat", "word", "nest", "graft")
        )
        lines = text.split("\n")
        words = list(re.finditer(r"\d+" if kind == "number" else r"\w+", text))
        if kind == "cut":
            text = text[:i] + text[j:]
        elif kind == "put":
            text = text[:i] + rng.choice(CHARACTERS) + text[j:]
        elif kind == "move":
            text = text[:i] + text[j:] + text[i:j]
        elif kind == "swap":
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            text = "\n".join(lines)
        elif kind == "repeat":
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            text = "\n".join(lines)
        elif kind == "nest":
            text = text[:i] + rng.choice(NESTS) * rng.choice((10, 90, 200, 5_000)) + text[i:]
        elif kind == "graft":
            other = rng.choice(texts())
            text = text[:i] + other[rng.randrange(len(other)) :]
        elif words:
            found = rng.choice(words)
            put = rng.choice(NUMBERS) if kind == "number" else rng.choice(words).group()
            text = text[: found.start()] + put + text[found.end() :]
    return text


def read(text: str) -> tuple[Kernel | None, KernelTextError | None]:
    try:
        return parse_kernel(text), None
    except KernelTextError as error:
        return None, error


def steps_of(text: str) -> int:
    """How many functions are called to read it."""
    count = 0

    def on_event(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        read(text)
    finally:
        sys.setprofile(None)
    return count


def check_mutations(seed: int, number: int) -> None:
    rng = random.Random(seed)
    kernels, most = 0, max(steps_of(text) / len(text) for text in texts())
    for n in range(number):
        original = rng.choice(texts())
        text = mutated(rng, original)
        found, error = read(text)
        if (
            n % 20 == 0
        ):  # a count is the same on a busy machine, but takes as long as twenty readings
            assert steps_of(text) <= 3 * most * (len(text) + len(original)), f"{seed}: {n}"
        if found is not None:
            assert found.text == text, f"{seed}: {n}"
            verify_kernel(found)
            kernels += text != original
        if error is not None:
            assert 0 <= error.offset <= len(text), f"{seed}: {n}"
            assert len(str(error)) < 800, f"{seed}: {n}"
    assert 0 < kernels < number / 10  # else the mutations are too wild, or nothing is refused


def test_kernel_texts_mutated_are_a_kernel_or_an_error() -> None:
    check_mutations(1, 1_500)


@pytest.mark.slow
def test_kernel_texts_mutated_often_are_a_kernel_or_an_error() -> None:
    check_mutations(2, 100_000)
