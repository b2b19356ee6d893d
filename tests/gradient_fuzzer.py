"""Random programs of the Tensor API, forward and backward, compiled, against PyTorch in f64.

Programs are the API fuzzer's. Their floats become f64, and their float inputs lose their round
numbers, so that few of the points are ones where a function has two slopes. A quarter of them is
computed again for the gradient (``tg.checkpoint``). A program that fails is cut down and printed as
a test.
"""

from __future__ import annotations

import os
import random
import re
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tunegrad as tg
from tests import api_fuzzer, fuzzing
from tests.api_fuzzer import Program, drawn, dtype_name, shrunk
from tests.compiled_graphs import CompiledKernels
from tests.gradients import differences, values, weights
from tunegrad.errors import DTypeError
from tunegrad.frontend import bf16_values, joined
from tunegrad.ir.dtypes import F32
from tunegrad.ir.graph import topological

__all__ = ["agrees", "check_programs", "smooth"]

FAR = 1e6
"""Slopes that are compared: beyond it, rounding decides."""
CLOSE = 1e-7
NEAR = 1e-4
"""The same of differences, whose steps are 1e-5, and of quotients of integers, which are f32."""
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


class UnfitError(Exception):
    """A program that f64 in the place of other floats makes one of two dtypes: quotients of
    integers are f32.
    """


def loss_of(program: Program, again: bool = False) -> Callable[..., tg.Tensor]:
    """The weighted sum of all float outputs, of all float inputs. It raises UnfitError.

    ``again``: what the program computes is computed again for its gradient.
    """
    names = _leaves(program)
    fixed = {
        n: tg.Tensor(a, dtype_name(k)) for n, (a, k) in program.inputs.items() if n not in names
    }

    def run(given: Any) -> Any:
        try:
            return list(program.run(tg, tg.nn.functional, given))
        except DTypeError as error:
            raise UnfitError from error

    def loss(*leaves: tg.Tensor) -> tg.Tensor:
        given = {**fixed, **dict(zip(names, leaves, strict=True))}
        total = tg.zeros((), dtype="f64")
        for y in tg.checkpoint(run, given) if again else run(given):
            if y.dtype.is_float:
                total = total + (y.cast("f64") * weights(y.shape)).sum()
        return total

    return loss


def ours(program: Program, again: bool = False) -> list[tg.Tensor]:
    """The gradient of each float input, as ``loss_of``. Raises UnfitError."""
    leaves = [tg.Tensor(program.inputs[n][0]) for n in _leaves(program)]
    return list(tg.grad(loss_of(program, again), tuple(range(len(leaves))))(*leaves))


class _Functions:
    """PyTorch's functions, of which ``batch_norm`` has gradients of its statistics, too."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.nn.functional, name)

    @staticmethod
    def batch_norm(x: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
        shape = (1, -1) + (1,) * (x.ndim - 2)
        scale = weight / (var + 1e-5).sqrt()
        return (x - mean.reshape(shape)) * scale.reshape(shape) + bias.reshape(shape)


def theirs(program: Program) -> list[Any]:
    """PyTorch's. Raises RuntimeError for operations that it lacks for a type or a layout."""
    import torch

    given = api_fuzzer.torch_inputs(program)
    leaves = [given[n].requires_grad_() for n in _leaves(program)]
    usual, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # a dozen numbers each: others cost four times as much
    try:
        total = torch.zeros((), dtype=torch.float64)
        for y in program.run(torch, _Functions(), given, copied=True):
            if y.is_floating_point() and y.requires_grad:
                total = total + (y.double() * torch.tensor(weights(tuple(y.shape)))).sum()
        if not total.requires_grad:
            return [np.zeros(tuple(t.shape)) for t in leaves]
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    finally:
        torch.set_default_dtype(usual)
        torch.set_num_threads(threads)
    return [
        np.zeros(tuple(t.shape)) if g is None else g.numpy()
        for g, t in zip(found, leaves, strict=True)
    ]


def _leaves(program: Program) -> list[str]:
    return [n for n, (_, k) in program.inputs.items() if k == "float64"]


def _moved(program: Program, wanted: Sequence[Any]) -> list[Any]:
    """How far each of PyTorch's slopes may be off where it rounds otherwise, as of the greatest of
    what is nearly equal.
    """
    from tests.torch_fuzzer import ROUNDINGS, Rounded

    moved = [np.zeros(w.shape) for w in wanted]
    for seed in range(ROUNDINGS):
        with Rounded(seed):
            others = theirs(program)
        for m, other, w in zip(moved, others, wanted, strict=True):
            np.maximum(m, 2 * np.nan_to_num(np.abs(other - w)), out=m)
    return moved


def _unlike(
    program: Program, found: Sequence[Any], wanted: Sequence[Any], who: str, close: float = CLOSE,
    slack: Sequence[Any] = (),
) -> str:  # fmt: skip
    for at, (name, f, w) in enumerate(zip(_leaves(program), found, wanted, strict=True)):
        if f.shape != w.shape:
            return f"the gradient of {name} has shape {f.shape}, {who}'s {w.shape}"
        said = np.isfinite(w) & (np.abs(w) < FAR)
        allowed = close * max(1.0, float(np.abs(w[said]).max(initial=0)))
        alike = np.abs(f - w) <= allowed + (slack[at] if slack else 0.0)
        if not (alike | ~said).all():
            return f"the gradient of {name} is not {who}'s: {f!r} and {w!r}"
    return ""


def agrees(program: Program, again: bool = False, made: Sequence[tg.Tensor] | None = None) -> str:
    """How gradients of a program differ from PyTorch's; '' where they do not.

    ``made``: the gradients, where the caller has them.
    """
    try:
        made = ours(program, again) if made is None else made
        found = values(made)
    except UnfitError:
        return ""
    except Exception as error:  # noqa: BLE001  # whatever it is, the program failed
        return f"raises {error!r}"
    rounded = _rounded(made)
    try:
        wanted = theirs(program)
    except RuntimeError:
        if rounded:  # as the steps of differences are
            return ""
        slopes = differences(loss_of(program), [program.inputs[n][0] for n in _leaves(program)])
        return _unlike(program, found, slopes, "a quotient of differences", NEAR)
    close = NEAR if rounded else CLOSE
    said = _unlike(program, found, wanted, "PyTorch", close)
    said = said and _unlike(program, found, wanted, "PyTorch", close, _moved(program, wanted))
    if said and _KNOWN.search(" ".join(s.text for s in program.steps)):
        return ""
    return said


def _rounded(made: Sequence[tg.Tensor]) -> bool:
    """True where f32 has a part: of quotients of integers."""
    return any(n.dtype == F32 for n in topological(tuple(t.node for t in made)))


def compiled(programs: Sequence[tuple[Program, Sequence[tg.Tensor]]]) -> dict[int, str]:
    """How compiled gradients of programs differ from what their graphs mean, by those that do."""
    plans = [api_fuzzer.planned(tensors) for _, tensors in programs]
    code = CompiledKernels(0)
    code.add([x.kernel for plan in plans for x in plan.launches])
    wrong = {}
    for at, ((program, tensors), plan) in enumerate(zip(programs, plans, strict=True)):
        found, meant = code.run(plan, dict(joined(tensors))), values(tensors)
        close = NEAR if _rounded(tensors) else CLOSE
        if said := _unlike(program, found, meant, "the graph", close):
            wrong[at] = said
    return wrong


def _compiled_agrees(program: Program, again: bool) -> str:
    try:
        return compiled([(program, ours(program, again))]).get(0, "")
    except UnfitError:
        return ""
    except Exception as error:  # noqa: BLE001  # whatever it is, the program failed
        return f"raises {error!r}"


def failures(
    rngs: Iterable[random.Random], skipped: Counter[str], longest: int = 40
) -> Iterator[tuple[str, Program]]:
    """Draw a program of each of some random numbers: the fault and a small program that has it, of
    those that fail by the interpreter of graphs, or compiled.

    ``longest``: operations at most, of five at least; most programs are short. ``skipped`` counts
    those that are not compared.
    """
    counts: Counter[tuple[str, str]] = Counter()
    some: _Made = {}
    for case, rng in enumerate(rngs):
        length = 5 + int((longest - 4) * rng.random() ** 4)
        program, again = smooth(drawn(rng, length, counts)), case % 4 == 3
        made: Sequence[tg.Tensor] | None = None
        try:
            made = ours(program, again)
        except UnfitError:
            skipped["two dtypes"] += 1
            continue
        except Exception:  # noqa: BLE001  # ``agrees`` says it
            pass
        if made == []:
            skipped["no float input"] += 1
        elif said := agrees(program, again, made):
            small = shrunk(program, lambda p, again=again: bool(agrees(p, again)))
            yield f"program {case} (again={again}): {said}\n{agrees(small, again)}", small
        elif made:
            some[case] = program, made
        if len(some) == _TOGETHER:
            yield from _compiled_failures(some)
            some.clear()
    yield from _compiled_failures(some)


_TOGETHER = 200
"""Programs that are compiled at once: equal kernels once, and the others in few modules."""
_Made = dict[int, tuple[Program, Sequence[tg.Tensor]]]


def _compiled_failures(some: _Made) -> Iterator[tuple[str, Program]]:
    for at, said in compiled(list(some.values())).items():
        case = list(some)[at]
        again = case % 4 == 3
        small = shrunk(some[case][0], lambda p, again=again: bool(_compiled_agrees(p, again)))
        yield f"program {case} (again={again}), compiled: {said}", small


def check_programs(count: int) -> None:
    """Draw so many programs and compare their gradients, as ``failures``.

    Raises AssertionError with a small failing test.
    """
    rngs = (random.Random(f"gradients {case}") for case in range(count))  # main draws others
    for said, small in failures(rngs, Counter()):
        raise AssertionError(f"{said}\n{small.text()}")


def main(arguments: Sequence[str]) -> None:
    """Draw many programs and report every one that fails."""
    count = int(arguments[0])
    if arguments[1:]:
        os.environ["TUNEGRAD_FUZZ_SEED"] = arguments[1]
    seed, longest = fuzzing.fix_seed(), int(arguments[2]) if arguments[2:] else 40
    rngs = (fuzzing.rng("gradients", case) for case in range(count))
    wrong, skipped = Counter[str](), Counter[str]()
    for said, small in failures(rngs, skipped, longest):
        key = " ".join(s.op for s in small.steps)
        wrong[key] += 1
        if wrong[key] < 2:
            sys.stdout.write(f"--- {said:.500}\n{small.text()}\n")
            sys.stdout.flush()
    left = ", ".join(f"{n} of {why}" for why, n in skipped.items()) or "none"
    sys.stdout.write(
        f"seed {seed}: {count} programs, left out: {left}; {wrong.total()} wrong: {dict(wrong)}\n"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
