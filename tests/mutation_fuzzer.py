"""Random programs of reads, views and writes in place, against PyTorch.

    v1 = v0[1:, ::2]
    v2 = fresh(v0 + 1)
    v1 += fresh(v2[:1])
    v0[[0, 2]] = 7

A program is a list of statements that both libraries run. Inputs are integers, so results are equal
to the bit; with ``gradients`` they are f64. ``fresh`` is a copy in row-major order: PyTorch's
results may lie otherwise, and its reshape of those is a copy. Statements that PyTorch refuses are
left out.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tunegrad as tg
from tests import fuzzing
from tests.api_fuzzer import known_forms

__all__ = ["Program", "agrees", "check_programs", "drawn", "shrunk"]

Values = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """``inputs`` by name, and statements."""

    inputs: dict[str, np.ndarray[Any, Any]]
    lines: tuple[str, ...]

    def text(self) -> str:
        """As a Python program of PyTorch."""
        given = [f"{n} = T.tensor({a.tolist()}, dtype=T.{a.dtype})" for n, a in self.inputs.items()]
        return "\n".join([*given, *self.lines])


def _torch_names() -> Values:
    import torch

    return {
        "T": torch,
        "fresh": lambda x: x.clone(memory_format=torch.contiguous_format),
        "tensor": lambda a: torch.from_numpy(a.copy()),
    }


def _our_names() -> Values:
    return {"T": tg, "fresh": lambda x: x.clone(), "tensor": tg.Tensor}


def started(inputs: dict[str, np.ndarray[Any, Any]], names: Values) -> Values:
    """The variables that a program begins with."""
    return {**names, **{n: names["tensor"](a) for n, a in inputs.items()}}


def variables(held: Values) -> dict[str, Any]:
    """Those of a program that has run. One of ``w`` has an element at several places, and is only
    read.
    """
    return {n: x for n, x in held.items() if n[0] in "vw" and n[1:].isdecimal()}


class _Drawer:
    """Draws statements that PyTorch runs, by running each."""

    def __init__(self, rng: random.Random, gradients: bool) -> None:
        self.rng, self.gradients = rng, gradients
        self.inputs: dict[str, np.ndarray[Any, Any]] = {}
        numbers = np.random.default_rng(rng.randrange(1 << 30))
        for i in range(rng.randint(1, 2)):
            shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
            drawn = numbers.integers(-9, 10, shape)
            self.inputs[f"v{i}"] = drawn / 8.0 if gradients else drawn
        self.held = started(self.inputs, _torch_names())
        self.lines: list[str] = []
        if gradients:  # leaves are not written to
            for n in list(self.inputs):
                self.run(f"{n}.requires_grad_()")
                self.run(f"{self.name()} = {n} * 1")

    def name(self, kind: str = "v") -> str:
        return f"{kind}{len(variables(self.held))}"

    def run(self, line: str) -> bool:
        try:
            exec(line, self.held)  # noqa: S102  # our own program
        except Exception:  # noqa: BLE001
            return False
        self.lines.append(line)
        return True

    def pick(self, read: bool = False) -> str:
        found = [n for n in variables(self.held) if read or n[0] == "v"]
        if self.gradients and not read:
            found = [n for n in found if n not in self.inputs]
        return self.rng.choice(found)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.held[name].shape)

    def number(self) -> str:
        return str(self.rng.randint(-4, 4) / (4 if self.gradients else 1)).removesuffix(".0")

    def key(self, shape: tuple[int, ...], basic: bool) -> str:
        """An index of a shape."""
        rng, items = self.rng, []
        advanced = not basic and rng.random() < 0.4
        for extent in shape[: rng.randint(0, len(shape))]:
            kind = rng.random()
            if advanced and kind < 0.5:
                rows = rng.sample(range(extent), rng.randint(min(1, extent), extent))
                items.append(str([r - extent if rng.random() < 0.2 else r for r in rows]))
            elif kind < 0.3:
                items.append(str(rng.randint(-extent, max(0, extent - 1))))
            elif kind < 0.8:
                low, high = sorted((rng.randint(0, extent), rng.randint(0, extent)))
                step = rng.choice(["", "", ":2"])
                items.append(f"{low or ''}:{high if high < extent else ''}{step}")
            else:
                items.append(":")
        if rng.random() < 0.1:
            items.insert(rng.randint(0, len(items)), "None")
        if not items or rng.random() < 0.2:
            items.append("...")
        return ", ".join(items)

    def view(self) -> None:
        rng, x = self.rng, self.pick()
        shape = self.shape(x)
        dims = list(range(len(shape)))
        size = int(np.prod(shape))
        kinds = [f"{x}[{self.key(shape, True)}]"] * 3
        if len(shape) > 1:
            a, b = rng.sample(dims, 2)
            kinds += [f"{x}.transpose({a}, {b})", f"{x}.permute({rng.sample(dims, len(dims))})"]
            kinds += [f"{x}.diagonal({rng.randint(-1, 1)}, {a}, {b})", f"{x}.movedim({a}, {b})"]
            kinds += [f"{x}.flatten()", f"{x}.mT", f"{x}.unflatten({a}, (1, -1))"]
        if shape:
            d = rng.choice(dims)
            kinds += [f"{x}.unfold({d}, 2, 2)", f"{x}.unfold({d}, 1, 3)", f"{x}.unfold({d}, 2, 1)"]
            kinds += [f"{x}.split({rng.randint(1, 3)}, {d})[0]", f"{x}.unbind({d})[0]"]
            kinds += [f"{x}.narrow({d}, 0, {rng.randint(0, shape[d])})", f"{x}.squeeze({d})"]
            kinds += [f"{x}.select({d}, -1)", f"{x}.chunk(2, {d})[-1]"]
        parts = [n for n in range(1, size + 1) if size and size % n == 0]
        if parts:
            n = rng.choice(parts)
            kinds += [f"{x}.reshape({n}, {size // n})"] * 2 + [f"{x}.reshape(-1)", f"{x}.ravel()"]
        kinds += [f"{x}.unsqueeze({rng.randint(0, len(shape))})", f"{x}.squeeze()"]
        kinds += [f"{x}.expand(2, *{shape})", f"{x}.contiguous()", f"{x}.view_as({x})"]
        if not self.gradients:
            kinds.append(f"{x}.detach()")
        chosen = rng.choice(kinds)
        several = ".expand" in chosen or chosen.endswith(", 2, 1)")
        self.run(f"{self.name('w' if several else 'v')} = {chosen}")

    def read(self) -> None:
        rng, x, y = self.rng, self.pick(True), self.pick(True)
        kinds = [f"{x} + {y}", f"{x} * {self.number()}", f"{x}.sum(0)", f"{x}", f"-{x}"]
        kinds += [
            f"{x}[{self.key(self.shape(x), False)}]",
            f"{x}.flip(0)",
            f"fresh({x}) * fresh({y})",
        ]
        kinds += [f"T.cat([{x}, {y}])", f"{x}.repeat(2, *{(1,) * len(self.shape(x))})"]
        self.run(f"{self.name()} = fresh({rng.choice(kinds)})")

    def write(self) -> None:
        rng, x, y = self.rng, self.pick(), self.pick(True)
        shape, n = self.shape(x), self.number()
        key, basic = self.key(shape, False), self.key(shape, True)
        kinds = [f"{x} += {n}", f"{x} *= {n}", f"{x}.mul_({n})", f"{x}.add_(fresh({y}))"]
        kinds += [f"{x}[{key}] = {n}", f"{x}[{basic}] += {n}", f"{x}[{key}] *= {n}"]
        kinds += [f"{x}[{key}] = fresh({y})", f"{x}.copy_(fresh({y}))", f"{x} -= fresh({y})"]
        kinds += [f"{x}.fill_({n})", f"{x}.zero_()", f"{x}.neg_()"]
        kinds += [f"{x}.relu_()", f"{x}[{x} > {n}] = {n}", f"{x}.masked_fill_({x} < {n}, 2)"]
        kinds += [f"{x}.clamp_(-3, 3)"]
        kinds += [f"{x}[{basic}] = fresh({x}[{basic}]) + 1"]
        kinds += [f"{x} += fresh({x}.mT)"] * (len(shape) > 1)
        kinds += [f"{x}[{basic}].sub_({n})", f"{x}[{basic}][{self.key(shape, True)}] = {n}"]
        if shape and shape[0]:
            kinds += [f"{x}[1:] = fresh({x}[:-1])", f"{x}[:-1] += fresh({x}[1:])"]
            kinds += [f"{x}.index_fill_(0, T.tensor([{rng.randrange(shape[0])}]), 5)"]
        self.run(rng.choice(kinds))


def drawn(rng: random.Random, length: int, gradients: bool = False) -> Program:
    """A program of so many statements."""
    drawer = _Drawer(rng, gradients)
    while len(drawer.lines) < length:
        kind = rng.random()
        (drawer.view if kind < 0.4 else drawer.read if kind < 0.55 else drawer.write)()
    return Program(drawer.inputs, tuple(drawer.lines))


def _ran(program: Program, names: Values, looked: bool = False) -> Values:
    held = started(program.inputs, names)
    for i, line in enumerate(program.lines):
        exec(line, held)  # noqa: S102  # our own program
        if looked and i % 3 == 2:
            list(variables(held).values())[i % len(variables(held))].realize()
    return held


def _unlike(found: Values, wanted: Values) -> str:
    for name, x in variables(wanted).items():
        mine, right = found[name].numpy(), x.detach().numpy()
        if mine.shape != right.shape or not np.allclose(mine, right, 1e-9, 1e-9):
            return f"{name} is {mine.tolist()}, PyTorch's {right.tolist()}"
    return ""


def agrees(program: Program, looked: bool = False) -> str:
    """How the variables after a program differ from PyTorch's; '' where they do not.

    ``looked``: some variables are computed on the way.
    """
    wanted = _ran(program, _torch_names())
    try:
        return _unlike(_ran(program, _our_names(), looked), wanted)
    except Exception as error:  # noqa: BLE001  # whatever it is, the program failed
        return f"raises {error!r}"


def compiled(program: Program) -> str:
    """As ``agrees``, of a program as one function, which is compiled and changes its arguments."""
    names = list(program.inputs)

    def function(*given: tg.Tensor) -> list[tg.Tensor]:
        held = {**_our_names(), **dict(zip(names, given, strict=True))}
        for line in program.lines:
            exec(line, held)  # noqa: S102  # our own program
        return [x for n, x in variables(held).items() if n not in program.inputs] or [given[0] + 0]

    arrays = {n: a.copy() for n, a in program.inputs.items()}
    wanted = {n: x.numpy() for n, x in variables(_ran(program, _torch_names())).items()}
    others = [n for n in wanted if n not in arrays]
    try:
        found = tg.compile(function, *arrays.values(), store=False)(*arrays.values())
    except Exception as error:  # noqa: BLE001  # whatever it is, the program failed
        return f"raises {error!r}"
    results = found if isinstance(found, tuple) else (found,)
    for name, mine in [*arrays.items(), *zip(others, results, strict=False)]:
        if not np.array_equal(mine, wanted[name]):
            return f"{name} is {mine.tolist()}, PyTorch's {wanted[name].tolist()}"
    return ""


def _slopes(program: Program, names: Values) -> dict[str, Any]:
    held = _ran(program, names)
    leaves = [n for n in program.inputs if held[n].requires_grad]
    total = sum((x.detach() * 0 + 2 * x + x * x).sum() for x in variables(held).values())
    total.backward()
    return {n: np.asarray(held[n].grad) for n in leaves}


def gradients_agree(program: Program) -> str:
    """How gradients of the inputs differ from PyTorch's; '' where they do not, or PyTorch's are of
    values that were changed since.
    """
    try:
        wanted = _slopes(program, _torch_names())
    except RuntimeError:  # PyTorch saved a tensor that was written to
        return ""
    try:
        found = _slopes(program, _our_names())
    except Exception as error:  # noqa: BLE001  # whatever it is, the program failed
        return f"raises {error!r}"
    for n, w in wanted.items():
        if found[n].shape != w.shape or not np.allclose(found[n], w, 1e-6, 1e-6):
            return f"the gradient of {n} is {found[n].tolist()}, PyTorch's {w.tolist()}"
    return ""


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program that still fails, without the statements that it does not need."""
    at = len(program.lines) - 1
    while at >= 0:
        lines = program.lines[:at] + program.lines[at + 1 :]
        try:
            if fails(Program(program.inputs, lines)):
                program = Program(program.inputs, lines)
        except Exception:  # noqa: BLE001  # PyTorch does not run it without the line
            pass
        at -= 1
    return program


def known(program: Program) -> str:
    """As ``agrees``, of other values again and again, until the forms of results are known."""
    with known_forms(True):
        for by in range(4):
            inputs = {n: a + by for n, a in program.inputs.items()}
            if said := agrees(Program(inputs, program.lines)):
                return f"values + {by}: {said}"
    return ""


_CHECKS: dict[str, Callable[[Program], str]] = {
    "eager": agrees,
    "known": known,
    "looked at": lambda p: agrees(p, True),
    "compiled": compiled,
    "gradients": gradients_agree,
}
_TURNS = (("eager", "looked at"), ("gradients",), ("known",), ("compiled",))
"""Comparisons of one program after the other."""


def check_program(rng: random.Random, length: int, case: int) -> str:
    """Draw a program and compare it; a small failing one, or ''."""
    names = _TURNS[case % len(_TURNS)]
    program = drawn(rng, length, "gradients" in names)
    for name in names:
        check = _CHECKS[name]
        if check(program):
            small = shrunk(program, lambda p, check=check: bool(check(p)))  # type: ignore[misc]
            return f"{name}: {check(small)}\n{small.text()}"
    return ""


def check_programs(count: int) -> None:
    """Raise AssertionError with a small failing program, of so many drawn ones."""
    for case in range(count):
        rng = fuzzing.rng("mutation", case)
        said = check_program(rng, rng.randint(4, 10), case)
        assert not said, f"program {case}: {said}"


def main(arguments: Sequence[str]) -> None:
    """Draw many programs and report every one that fails."""
    count, seed = int(arguments[0]), int(arguments[1]) if arguments[1:] else fuzzing.fix_seed()
    longest = int(arguments[2]) if arguments[2:] else 16
    wrong = 0
    for case in range(count):
        rng = random.Random(f"{seed} mutation {case}")
        if said := check_program(rng, rng.randint(4, longest), case):
            wrong += 1
            sys.stdout.write(f"--- program {case}: {said}\n")
            sys.stdout.flush()
    sys.stdout.write(f"seed {seed}: {count} programs, {wrong} wrong\n")


if __name__ == "__main__":
    main(sys.argv[1:])
