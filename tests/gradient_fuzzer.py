"""Random programs of the Tensor API, forward and backward, against PyTorch in f64.

Programs are the API fuzzer's. Their floats become f64, and their float inputs lose their round
numbers, so that few of the points are ones where a function has two slopes. A quarter of them is
computed again for the gradient (``tg.checkpoint``). A program that fails is cut down and printed as
a test.
"""

from __future__ import annotations

import random
import re
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tunegrad as tg
from tests import api_fuzzer, fuzzing
from tests.api_fuzzer import Program, drawn, dtype_name, shrunk
from tests.compiled_graphs import CompiledKernels
from tests.gradients import values, weights
from tunegrad.errors import DTypeError
from tunegrad.frontend import bf16_values, joined

__all__ = ["agrees", "check_programs", "fits", "smooth"]

FAR = 1e6
"""Slopes that are compared: beyond it, rounding decides."""
CLOSE = 1e-7
_KNOWN = re.compile(r"scale_factor=.*mode='bicubic'")
"""PyTorch 2.13's own ``gradcheck`` fails on these (``test_gradients_operations`` has ours)."""


def smooth(program: Program) -> Program:
    """All floats in f64, float inputs away from round numbers."""
    inputs = {}
    for name, (array, kind) in program.inputs.items():
        if "float" not in kind:
            inputs[name] = array, kind
            continue
        numbers = (bf16_values(array) if kind == "bfloat16" else array).astype(np.float64)
        rng = np.random.default_rng(zlib.crc32(f"{name} {array.shape}".encode()))
        inputs[name] = np.asarray(numbers + rng.uniform(0.01, 0.09, numbers.shape)), "float64"
    kinds = re.compile(r"T\.(float32|float16|bfloat16)")
    steps = tuple(replace(s, text=kinds.sub("T.float64", s.text)) for s in program.steps)
    return Program(inputs, steps, program.outputs)


def fits(program: Program) -> bool:
    """False for a program that f64 in the place of other floats makes one of two dtypes: quotients
    of integers are f32.
    """
    try:
        program.tensors()
    except DTypeError:
        return False
    return True


def ours(program: Program, again: bool = False) -> list[tg.Tensor]:
    """The gradient of each float input of the weighted float outputs; ``again``: what the program
    computes is computed again for it.
    """
    names = _leaves(program)
    fixed = {
        n: tg.Tensor(a, dtype_name(k)) for n, (a, k) in program.inputs.items() if n not in names
    }

    def loss(*leaves: tg.Tensor) -> tg.Tensor:
        def run(given: Any) -> Any:
            return list(program.run(tg, tg.nn.functional, given))

        given = {**fixed, **dict(zip(names, leaves, strict=True))}
        total = tg.zeros((), dtype="f64")
        for y in tg.checkpoint(run, given) if again else run(given):
            if y.dtype.is_float:
                total = total + (y.cast("f64") * weights(y.shape)).sum()
        return total

    leaves = [tg.Tensor(program.inputs[n][0]) for n in names]
    return list(tg.grad(loss, tuple(range(len(names))))(*leaves))


def theirs(program: Program) -> list[Any]:
    """PyTorch's. Raises RuntimeError for what it has no gradient of."""
    import torch

    given = api_fuzzer.torch_inputs(program)
    leaves = [given[n].requires_grad_() for n in _leaves(program)]
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        total = torch.zeros((), dtype=torch.float64)
        for y in program.run(torch, torch.nn.functional, given, copied=True):
            if y.is_floating_point() and y.requires_grad:
                total = total + (y.double() * torch.tensor(weights(tuple(y.shape)))).sum()
        if not total.requires_grad:
            return [np.zeros(tuple(t.shape)) for t in leaves]
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    finally:
        torch.set_default_dtype(usual)
    return [
        np.zeros(tuple(t.shape)) if g is None else g.numpy()
        for g, t in zip(found, leaves, strict=True)
    ]


def _leaves(program: Program) -> list[str]:
    return [n for n, (_, k) in program.inputs.items() if k == "float64"]


def _unlike(program: Program, found: Sequence[Any], wanted: Sequence[Any], who: str) -> str:
    for name, f, w in zip(_leaves(program), found, wanted, strict=True):
        if f.shape != w.shape:
            return f"the gradient of {name} has shape {f.shape}, {who}'s {w.shape}"
        said = np.isfinite(w) & (np.abs(w) < FAR)
        allowed = CLOSE * max(1.0, float(np.abs(w[said]).max(initial=0)))
        close = np.isclose(f, w, 0, allowed)
        if not (close | ~said).all():
            return f"the gradient of {name} is not {who}'s: {f!r} and {w!r}"
    return ""


def agrees(program: Program, again: bool = False) -> str:
    """How gradients of a program differ from PyTorch's; '' where they do not."""
    try:
        found = values(ours(program, again))
    except Exception as error:  # noqa: BLE001  # whatever it is, the program failed
        return f"raises {error!r}"
    try:
        wanted = theirs(program)
    except (RuntimeError, NotImplementedError):  # PyTorch has no gradient
        return ""
    said = _unlike(program, found, wanted, "PyTorch")
    if said and _KNOWN.search(" ".join(s.text for s in program.steps)):
        return ""
    return said


def compiled(programs: Sequence[Program]) -> str:
    """How compiled gradients of programs differ from what their graphs mean; '' where they do
    not.
    """
    made = [(p, ours(p, i % 2 == 1)) for i, p in enumerate(programs) if _leaves(p)]
    plans = [api_fuzzer.planned(ts) for _, ts in made]
    code = CompiledKernels(1)
    code.add([x.kernel for plan in plans for x in plan.launches])
    for (program, tensors), plan in zip(made, plans, strict=True):
        found, meant = code.run(plan, dict(joined(tensors))), values(tensors)
        if said := _unlike(program, found, meant, "the graph"):
            return f"{said}\n{program.text()}"
    return ""


def check_programs(count: int, lengths: tuple[int, int] = (5, 12)) -> None:
    """Draw so many programs and compare their gradients; every tenth is compiled, too.

    Raises AssertionError with a small failing test.
    """
    counts: Counter[tuple[str, str]] = Counter()
    some = []
    for case in range(count):
        rng = random.Random(f"gradients {case}")  # main draws others
        program = smooth(drawn(rng, rng.randint(*lengths), counts))
        if not fits(program):
            continue
        again = case % 4 == 3
        if said := agrees(program, again):
            small = shrunk(program, lambda p, again=again: bool(agrees(p, again)))
            raise AssertionError(
                f"program {case} (again={again}): {said}\n{agrees(small, again)}\n{small.text()}"
            )
        if not case % 10:
            some.append(program)
    assert compiled(some) == ""


def main(arguments: Sequence[str]) -> None:
    """Draw many programs and report every one that fails."""
    count, seed = int(arguments[0]), int(arguments[1]) if arguments[1:] else fuzzing.fix_seed()
    longest = int(arguments[2]) if arguments[2:] else 40
    counts: Counter[tuple[str, str]] = Counter()
    wrong: Counter[str] = Counter()
    unfit = 0
    for case in range(count):
        rng = random.Random(f"{seed} gradients {case}")
        program = smooth(drawn(rng, rng.randint(5, longest), counts))
        if not fits(program):
            unfit += 1
            continue
        again = case % 4 == 3
        if said := agrees(program, again):
            small = shrunk(program, lambda p, again=again: bool(agrees(p, again)))
            key = " ".join(s.op for s in small.steps)
            wrong[key] += 1
            if wrong[key] < 2:
                sys.stdout.write(
                    f"--- program {case} (again={again}): {said[:300]}\n{agrees(small, again)}\n"
                    f"{small.text()}\n"
                )
                sys.stdout.flush()
    sys.stdout.write(
        f"seed {seed}: {count} programs, {unfit} left out, {sum(wrong.values())} wrong: {wrong}\n"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
