"""Random programs over the whole Tensor API, compiled, against PyTorch, and against numpy where
there is no PyTorch.

    python -m tests.api_fuzzer 2000        so many programs of the run's seed, counts at the end
    python -m tests.api_fuzzer 500 7       of seed 7
    python -m tests.api_fuzzer pairs 500   drawn only: which operation read what which other made
    python -m tests.api_fuzzer histories 500 7

A program is lines of PyTorch's API (``api_operations``), each of which reads inputs and earlier
results. It is drawn with tunegrad alone, so the same seed draws the same program everywhere. What
fails is cut down to a few lines and printed as a test.

A history is a program with writes in place between its lines, second names and views of values,
reads, and lines under a condition of indices. It is run again and again with other values, so that
the forms of its results become known and no graph is made of them; what it gives has to be, bit for
bit and error for error, what it gives where a graph is made of every result.
"""

from __future__ import annotations

import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tunegrad
from tests import fuzzing
from tests.api_operations import EXACT, FAMILIES, OPERATIONS, Unfit
from tests.compiled_graphs import TARGET, CompiledKernels
from tunegrad.errors import TunegradError
from tunegrad.frontend import Tensor, bf16_values, handle
from tunegrad.frontend.nodes import tracing
from tunegrad.frontend.nodes.indexing import only_where
from tunegrad.ir.folding import known_outputs
from tunegrad.ir.fusion import Fusion, least_memory
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.planning import prepared

__all__ = [
    "Draw", "Program", "Step", "Value", "agrees", "check_histories", "check_programs", "drawn",
    "failures", "known_forms", "never", "shrunk",
]  # fmt: skip

Array = NDArray[Any]
LIMIT = 400
"""Elements of a value."""
CATEGORY = {"f": "float", "i": "int", "u": "int", "b": "bool"}
FLOATS = ("float32",) * 6 + ("float64", "float16", "bfloat16")
INTS = ("int64", "int64", "int32", "int32", "int16", "int8", "uint8")
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
CLOSE = {"f32": 3e-5, "f64": 3e-5, "f16": 1e-2, "bf16": 8e-2}
"""How far results may be, relative to the largest number of the program; f64 may come from f32."""
ENDS: dict[str, list[Any]] = {
    "float": [0, -0.0, 1, -1, 0.5, -2.5, 3e38, -3e38, np.inf, -np.inf, np.nan, 2e-38, 2**24 + 1],
    "int": [0, 1, -1, 2, 3, 7, 31, 64, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)],
}
"""Numbers of extreme programs; integers are cut to their type. None is subnormal: bf16 may flush
those.
"""
EXTREMES = 0.25
"""Share of programs that are extreme."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line: the name of its result, the operation that it counts as, and its text."""

    name: str
    op: str
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs by name (values and dtype), lines in order, and the results that it returns; those of
    ``extreme`` ones are equal to the bit.
    """

    inputs: dict[str, tuple[Array, str]]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    extreme: bool = False

    def run(
        self, torch_like: Any, functional: Any, values: dict[str, Any], copied: bool = False
    ) -> list[Any]:
        """Its outputs under a namespace of PyTorch's names; ``copied``: no line's value is a
        view.
        """
        names = {**values, "T": torch_like, "F": functional}
        for s in self.steps:
            value = eval(s.text, names)  # noqa: S307  # our own lines
            names[s.name] = value.contiguous() if copied else value
        return [names[o] for o in self.outputs]

    def tensors(self) -> list[Tensor]:
        """Its outputs as graphs."""
        given = {n: Tensor(a, dtype_name(d)) for n, (a, d) in self.inputs.items()}
        return self.run(tunegrad, tunegrad.nn.functional, given)

    def used(self) -> Program:
        """Without the lines and inputs that no output needs."""
        needed, kept = set(self.outputs), list[Step]()
        for s in reversed(self.steps):
            if s.name in needed:
                kept.append(s)
                needed |= reads(s)
        inputs = {n: v for n, v in self.inputs.items() if n in needed}
        return replace(self, inputs=inputs, steps=tuple(reversed(kept)))

    def text(self) -> str:
        """The program as a test that can be pasted beside the fuzzer's."""
        lines = ["def test_program_agrees() -> None:", "    inputs = {"]
        for name, (array, kind) in self.inputs.items():
            numbers = re.sub(r"\b(nan|inf)\b", r"np.\1", str(array.reshape(-1).tolist()))
            flat = f"np.array({numbers}, np.{array.dtype})"
            lines.append(f"        {name!r}: ({flat}.reshape({array.shape}), {kind!r}),")
        lines += ["    }", "    steps = ("]
        lines += [f"        Step({s.name!r}, {s.op!r}, {s.text!r})," for s in self.steps]
        lines += ["    )", f"    assert agrees(Program(inputs, steps, {self.outputs!r})) == ''"]
        return "\n".join(lines)


def reads(step: Step) -> set[str]:
    """The names of the values that a line reads."""
    return set(re.findall(r"\bv\d+\b", step.text))


def dtype_name(kind: str) -> str:
    """tunegrad's name of a dtype."""
    return SHORT.get(kind, kind.replace("uint", "u").replace("int", "i"))


# ---- drawing


@dataclass(frozen=True)
class Value:
    """A value that a line may read: its name is its text."""

    name: str
    op: str
    array: Array
    dtype: str
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def size(self) -> int:
        return self.array.size

    @cached_property
    def category(self) -> str:
        return "float" if self.dtype == "bfloat16" else CATEGORY[np.dtype(self.dtype).kind]

    @cached_property
    def finite(self) -> bool:
        return self.category != "float" or bool(np.isfinite(self.numbers()).all())

    def numbers(self) -> Array:
        return bf16_values(self.array) if self.dtype == "bfloat16" else self.array

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return self.name


@dataclass
class Draw:
    """Values that are there so far, and the choices of one program."""

    rng: random.Random
    values: list[Value] = field(default_factory=list)
    inputs: dict[str, tuple[Array, str]] = field(default_factory=dict)
    count: int = 0
    extreme: bool = False

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def choice(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def shuffled(self, items: Iterable[Any]) -> tuple[Any, ...]:
        listed = list(items)
        self.rng.shuffle(listed)
        return tuple(listed)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def fresh(
        self, shape: tuple[int, ...], kind: str, dtype: str | None = None, below: int = 0
    ) -> Value:
        """A new input of exact numbers; ``below``: positions from 0, counted from the front."""
        if dtype is None:
            dtype = self.choice(FLOATS if kind == "float" else INTS if kind == "int" else ("bool",))
        rng = np.random.default_rng(self.rng.randrange(1 << 32))
        array: NDArray[Any]
        if below:
            dtype, array = "int64", rng.integers(0, below, shape)
        elif kind == "bool":
            array = rng.random(shape) < 0.6
        elif kind == "int":
            array = rng.integers(0 if dtype == "uint8" else -5, 6, shape)
            array = (rng.choice(ENDS[kind], shape) if self.extreme else array).astype(dtype)
        else:
            array = rng.integers(-8, 9, shape) / 4
            array = rng.choice(ENDS[kind], shape) if self.extreme else array
            with np.errstate(over="ignore", under="ignore"):
                wide = array.astype(np.float32)
                array = (
                    (wide.view(np.uint32) >> 16).astype(np.uint16)
                    if dtype == "bfloat16"
                    else array.astype(dtype)
                )
        array = np.asarray(array)
        value = Value(self.name(), "input", array, dtype, True)
        self.inputs[value.name] = array, dtype
        self.values.append(value)
        return value

    def pick(
        self, *kinds: str, exact: bool = False, some: bool = False, ranked: bool = False,
        rank: tuple[int, ...] = (), limit: int = LIMIT, small: bool = False, finite: bool = True,
        full: bool = False,
    ) -> Value:  # fmt: skip
        """A value, rather a late one, of these categories.

        ``some``: it has elements. ``ranked``: it has dimensions. ``small``: numbers that any type
        holds. ``full``: not of 16 bits, for what divides by small differences.
        """
        fits = [
            v
            for v in self.values
            if v.category in kinds
            and (not exact or v.exact)
            and (v.size or not some)
            and (v.shape or not ranked)
            and (not rank or len(v.shape) in rank)
            and v.size <= limit
            and (not small or not v.size or 0 <= v.numbers().min() <= v.numbers().max() < 100)
            and (not finite or v.finite or self.extreme)
            and (not full or "16" not in v.dtype)
        ]
        made = [v for v in fits if v.op != "input"]
        if made and self.chance(0.8):
            return made[-1] if self.chance(0.5) else self.choice(made)
        if fits and self.chance(0.7):
            return self.choice(fits)
        wanted = rank or ((1, 2, 2, 3, 3, 4) if ranked else (0, 1, 2, 2, 3, 3, 4))
        shape = self.shape(self.choice(wanted), empty=not some and self.chance(0.06))
        dtype = self.choice(("float32", "float64")) if full else None
        kind = self.choice([k for k in kinds if not (small and k == "float")] or ["float"])
        if prod(shape) > limit or (small and kind != "bool"):
            if not fits:
                raise Unfit
            return self.choice(fits)
        return self.fresh(shape, kind, dtype)

    def shape(self, rank: int, empty: bool = False) -> tuple[int, ...]:
        extents = [self.choice((1, 2, 3, 3, 4, 5, 7, 9)) for _ in range(rank)]
        if rank and self.chance(0.1):  # longer than a block of a scan, and no power of two
            extents = [1] * rank
            extents[self.rng.randrange(rank)] = self.choice((33, 40, 70, 130))
        if empty and rank:
            extents[self.rng.randrange(rank)] = 0
        return tuple(extents)

    def beside(
        self, x: Value, *kinds: str, exact: bool = False, also: Value | None = None
    ) -> Value:
        """A value that broadcasts with ``x`` (and another) to no more than ``LIMIT`` elements."""

        def fits(v: Value) -> bool:
            try:
                shape = np.broadcast_shapes(x.shape, v.shape, also.shape if also else ())
            except ValueError:
                return False
            known = v.finite or self.extreme
            # PyTorch rounds what stands beside a float of 16 bits to it before it computes
            halves = "float16" in v.dtype or "float16" in x.dtype
            if self.extreme and halves and v.dtype != x.dtype:
                return False
            return prod(shape) <= LIMIT and known and (v.exact or not exact)

        found = [v for v in self.values if v.category in kinds and fits(v) and v is not x]
        if found and self.chance(0.7):
            return self.choice(found)
        shape = [1 if self.chance(0.3) else s for s in x.shape]
        kind = x.category if x.category in kinds and self.chance(0.7) else self.choice(kinds)
        cut = self.rng.randint(0, len(shape)) if self.chance(0.3) else 0
        halves = self.extreme and "float16" in x.dtype and kind == x.category
        return self.fresh(tuple(shape[cut:]), kind, x.dtype if halves else None)

    def axis(self, x: Value) -> int:
        return self.rng.randrange(-max(1, len(x.shape)), max(1, len(x.shape)))

    def factors(self, n: int, rank: int) -> tuple[int, ...]:
        """A shape of ``n`` elements and so many dimensions."""
        shape, p = [1] * rank, 2
        while n > 1:
            while n % p:
                p += 1
            shape[self.rng.randrange(rank)] *= p
            n //= p
        return tuple(shape)

    def fit(self, rank: int, *kinds: str, full: bool = False) -> tuple[str, tuple[int, ...]]:
        """A value of so many dimensions, reshaped where it has others."""
        rank_too = (rank,) if self.chance(0.7) else ()
        x = self.pick(*kinds, some=True, limit=200, full=full, rank=rank_too)
        if len(x.shape) == rank and (rank_too or self.chance(0.7)):
            return x.name, x.shape
        shape = self.factors(x.size, rank)
        return f"{x}.reshape{shape}", shape

    def value_of(self, text: str) -> Value:
        """The value that a text begins with."""
        name = text.split(".", maxsplit=1)[0]
        return next(v for v in self.values if v.name == name)

    def alike(self, text: str, shape: tuple[int, ...]) -> Value:
        """A new input of the dtype of the value that a text begins with."""
        like = self.value_of(text)
        return self.fresh(shape, like.category, like.dtype)

    def like(self, x: Value, axis: int | None) -> str:
        """A value that joins with ``x``: of its shape but along ``axis``."""

        def fits(v: Value) -> bool:
            return len(v.shape) == len(x.shape) and all(
                a == b or i == axis for i, (a, b) in enumerate(zip(v.shape, x.shape, strict=True))
            )

        found = [v for v in self.values if fits(v) and v.size < 150]
        if self.chance(0.4):  # what is one number, or the same values in another order
            numbers = [f"T.{n}_like({x})" for n in ("ones", "zeros")]
            return self.choice([*numbers, f"T.full_like({x}, 2)", f"{x}.flip(0)"])
        if found and self.chance(0.6):
            return str(self.choice(found))
        shape = tuple(self.rng.randint(1, 3) if i == axis else s for i, s in enumerate(x.shape))
        return str(self.fresh(shape, x.category, x.dtype if self.chance(0.8) else None))


FAMILY = {n: f for f, operations in FAMILIES.items() for n in operations} | {"input": "input"}


_MOVES = [n for f in ("joins", "joins", "masks", "shapes", "slices", "windows")
          for n in FAMILIES[f]]  # fmt: skip


def _by_family(counts: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    between = Counter[tuple[str, str]]()
    for (a, b), times in counts.items():
        between[FAMILY[a], FAMILY[b]] += times
    return between


_KEEPS_BITS = {n for f in ("shapes", "slices", "joins", "positions") for n in FAMILIES[f]}
_KEEPS_BITS -= {"scatter_add", "index_add"}
_ROUNDS = {"variance", "variance_kept"}
"""Operations that PyTorch does by Welford's running means, which round on the way to numbers that
need no rounding: of equal ones it may make two that differ.
"""


def drawn(
    rng: random.Random, length: int, counts: Counter[tuple[str, str]], extremes: float = 0.0
) -> Program:
    """A program of so many lines; of several candidates for a line, the pair of operations (who
    made what it reads, and its own) that ``counts`` has least. Half of the programs have eight
    operations alone (swarm testing: Groce and others 2012). A share of ``extremes`` has exact
    operations alone, of the ends of types.

    Raises AssertionError where tunegrad refuses a line, which PyTorch would take.
    """
    d, steps = Draw(rng, extreme=rng.random() < extremes), list[Step]()
    names, totals, families = list(OPERATIONS), Counter[str](), _by_family(counts)
    if d.extreme:
        names = sorted(EXACT)
    elif rng.random() < 0.5:  # a few operations again and again, most of them of what moves
        names = [*rng.sample(_MOVES, 6), *rng.sample(names, 2)]
    for (_, op), times in counts.items():
        totals[op] += times
    for _ in range(rng.randint(1, 2)):
        d.fresh(d.shape(rng.choice((0, 1, 2, 2, 3, 4)), empty=rng.random() < 0.05), "float")
    attempts, unseen = 0, never(counts) if rng.random() < 0.3 and not d.extreme else []
    for first, second in rng.sample(unseen, min(3, len(unseen))):
        if pair := _paired(d, first, second):
            d, steps = pair
            counts[first, second] += 1
            break
    while len(steps) < length and attempts < 40 * length:
        attempts += 1
        best: tuple[tuple[int, int, int], str, str, Draw] | None = None
        for op in rng.sample(names, 4):
            trial = replace(d, values=list(d.values), inputs=dict(d.inputs))
            try:
                text = OPERATIONS[op](trial)
            except Unfit:
                continue
            made = {v.name: v.op for v in trial.values}
            read = reads(Step("", op, text))
            between = min(families[FAMILY[made[n]], FAMILY[op]] for n in read)
            rank = min(counts[made[n], op] for n in read), between, totals[op]
            if best is None or rank < best[0]:
                best = rank, op, text, trial
        if best is None:
            continue
        _, op, text, trial = best
        step = Step(trial.name(), op, text)
        value = _computed(trial, step)
        if value is None:
            continue
        trial.values.append(value)
        made = {v.name: v.op for v in trial.values}
        counts.update((made[n], op) for n in reads(step))
        d = trial
        steps.append(step)
    read = {n for s in steps for n in reads(s)}
    ends = [s.name for s in steps if s.name not in read]
    return Program(d.inputs, tuple(steps), tuple(ends), d.extreme).used()


def _paired(d: Draw, first: str, second: str) -> tuple[Draw, list[Step]] | None:
    """Two lines of which the second reads the first, where values fit; new ones where they can."""
    for _ in range(8):
        trial, steps = replace(d, values=list(d.values), inputs=dict(d.inputs)), list[Step]()
        for op in (first, second):
            before, trial.values = trial.values, trial.values[-1:] if steps else trial.values
            try:
                step = Step(trial.name(), op, OPERATIONS[op](trial))
            except Unfit:
                break
            if steps and steps[0].name not in reads(step):
                break
            value = _computed(trial, step)
            if value is None:
                break
            trial.values = [*before, *trial.values[1:], value] if steps else [*before, value]
            steps.append(step)
        if len(steps) == 2:
            return trial, steps
    return None


def _computed(d: Draw, step: Step) -> Value | None:
    """The value of a line by numpy; None where it is too large or too wild to go on with."""
    sources = [v for v in d.values if v.name in reads(step)]
    inputs = {v.name: (v.array, v.dtype) for v in sources}
    program = Program(inputs, (step,), (step.name,))
    try:
        (tensor,) = program.tensors()
    except Exception as error:
        raise AssertionError(f"{error!r} of\n{program.text()}") from error
    if tensor.size > LIMIT:
        return None
    (array,) = evaluate((tensor.node,), tensor.bindings)
    kinds = {v: k for k, v in SHORT.items()}
    name = tensor.dtype.name
    dtype = kinds.get(
        name, name if name == "bool" else name.replace("u", "uint").replace("i", "int")
    )
    dtype = dtype.replace("uintnt", "uint")
    numbers = bf16_values(array) if dtype == "bfloat16" else array
    exact = all(v.exact for v in sources)
    if d.extreme:
        return Value(step.name, step.op, array, dtype, exact)
    if tensor.dtype.is_float:
        if not np.isfinite(numbers).all() or np.abs(numbers, dtype=np.float64).max(initial=0) > 1e3:
            return None
        moved = step.op in _KEEPS_BITS and step.op != "pad"
        wide = np.asarray(numbers, np.float64)
        quarters = tensor.dtype.bits >= 32 and bool((wide * 64 == np.floor(wide * 64)).all())
        exact = exact and (moved or quarters) and step.op not in _ROUNDS
    elif numbers.size and np.abs(numbers.astype(np.float64)).max() > 2**40:
        return None
    return Value(step.name, step.op, array, dtype, exact)


# ---- comparing


def torch_values(program: Program, wide: bool = False, views: bool = False) -> list[Any]:
    """What PyTorch says; ``wide`` with f64 in the place of f32.

    Its functions read values that lie in a row, since some are wrong on others: ``median`` of an
    expanded tensor returns numbers that are not in it (2.13). ``views``: they read what they get.
    """
    import torch

    given = torch_inputs(program)
    if wide:
        given = {n: t.double() if t.dtype == torch.float32 else t for n, t in given.items()}
        steps = [replace(s, text=s.text.replace("T.float32", "T.float64")) for s in program.steps]
        program = replace(program, steps=tuple(steps))
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wide else torch.float32)  # of integers divided
    try:
        with torch.inference_mode():
            return program.run(torch, torch.nn.functional, given, copied=not views)
    finally:
        torch.set_default_dtype(usual)


def torch_inputs(program: Program) -> dict[str, Any]:
    """The inputs of a program as PyTorch's tensors."""
    import torch

    arrays = {n: (torch.from_numpy(a.copy()), kind) for n, (a, kind) in program.inputs.items()}
    return {n: t.view(torch.bfloat16) if k == "bfloat16" else t for n, (t, k) in arrays.items()}


def planned(tensors: Sequence[Tensor]) -> Any:
    """The plan of a compiled function."""
    nodes = known_outputs(prepared(tuple(t.node for t in tensors), "contract", TARGET))
    return least_memory(Fusion.of(nodes, view_bytes=TARGET.view_bytes).schedule())


def has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def differences(program: Program, tensors: Sequence[Tensor], found: Sequence[Array]) -> str:
    """How the compiled outputs differ from PyTorch's, or from numpy's; '' where they agree.

    A program on which PyTorch contradicts itself is held against neither: what equals one of its
    answers, and numpy's, is right, and a warning shows the program.
    """
    bindings = {k: v for t in tensors for k, v in t.bindings.items()}
    meant = evaluate(tuple(t.node for t in tensors), bindings)
    kinds = {d for _, d in program.inputs.values()} | {t.dtype.name for t in tensors}
    kinds |= set(re.findall(r"float16|bfloat16", " ".join(s.text for s in program.steps)))
    close = max(CLOSE.get(SHORT.get(k, k), 0.0) for k in (*kinds, "f32"))
    close = 0.0 if program.extreme else close
    rows = [_numbers(a, t.dtype.name) for a, t in zip(found, tensors, strict=True)]
    own = [_numbers(a, t.dtype.name) for a, t in zip(meant, tensors, strict=True)]
    none: list[Array | float] = [0.0] * len(rows)
    if not has_torch():
        return _unlike(program, rows, own, "numpy", close, none)
    try:
        wanted = torch_values(program)
    except NotImplementedError as error:  # of this type: a gap of PyTorch, by its own word
        warnings.warn(f"{error}\n{program.text()}", PyTorchFault, stacklevel=2)
        return _unlike(program, rows, own, "numpy", close, none)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return f"PyTorch refuses: {error}"
    for name, t, want in zip(program.outputs, tensors, wanted, strict=True):
        kind = str(want.dtype).removeprefix("torch.")
        if dtype_name(kind) != t.dtype.name or tuple(want.shape) != t.shape:
            return f"{name} is {t.dtype}{t.shape}, PyTorch has {kind}{tuple(want.shape)}"
    theirs, slack = [_torch_numbers(w) for w in wanted], none
    # f16 beside bf16 is f32, which has no f64 form here: then there is no second value.
    with suppress(RuntimeError):
        for at, far in enumerate(() if program.extreme else torch_values(program, wide=True)):
            if tensors[at].dtype.is_float:
                gap = np.abs(theirs[at] - _torch_numbers(far))
                slack[at] = 16 * float(np.nan_to_num(gap).max(initial=0))
    for who, right in (("numpy", own), ("PyTorch", theirs)):
        said = _unlike(program, rows, right, who, close, slack)
        if not said:
            continue
        if not program.extreme:
            slack = _moved(program, theirs, slack)  # once it is known that it matters
        if not _unlike(program, rows, right, who, close, slack):
            continue
        others = _other_answers(program) if who == "PyTorch" else ()
        if all(_unlike(program, rows, other, "", close, slack) for other in others):
            return said
        text = f"PyTorch contradicts itself: {said}\n{program.text()}"
        warnings.warn(text, PyTorchFault, stacklevel=2)
    return ""


def _moved(
    program: Program, theirs: Sequence[Array], slack: Sequence[Array | float]
) -> list[Array | float]:
    """How far each of PyTorch's results may be off where it rounds otherwise, as behind
    ``floor``.
    """
    from tests.torch_fuzzer import ROUNDINGS, Rounded

    moved = list(slack)
    for seed in range(ROUNDINGS):
        with Rounded(seed):
            others = [_torch_numbers(v) for v in torch_values(program)]
        for at, (a, b) in enumerate(zip(theirs, others, strict=True)):
            gap = np.abs(np.nan_to_num(a.astype(float)) - np.nan_to_num(b.astype(float)))
            moved[at] = np.maximum(moved[at], 2 * gap)
    return moved


class PyTorchFault(UserWarning):
    """A program that PyTorch computes in two ways with two results, or not at all."""


def _unlike(
    program: Program, found: Sequence[Array], wanted: Sequence[Array], who: str, close: float,
    slack: Sequence[Array | float],
) -> str:  # fmt: skip
    """How outputs differ from another's, by more than ``close`` of the largest and ``slack``."""
    for name, row, other, more in zip(program.outputs, found, wanted, slack, strict=True):
        if row.dtype.kind != "f":
            near = _near(row.astype(float), other.astype(float), more)
            if not ((row == other) | (np.greater(more, 0) & near)).all():
                return f"{name} differs from {who}: {row!r} and {other!r}"
            continue
        scale = max(1.0, float(np.abs(np.nan_to_num(other)).max(initial=0)))
        if not _near(row, other, close * scale + more).all():
            gap = float(np.nanmax(np.abs(row - other)))
            return f"{name} differs from {who} by {gap}, allowed {np.max(close * scale + more)}"
    return ""


def _near(row: Array, other: Array, allowed: Array | float) -> Any:
    """Where numbers are as near as is allowed there; infinities and NaN are near themselves."""
    with np.errstate(invalid="ignore"):
        return (np.abs(row - other) <= allowed) | (row == other) | (np.isnan(row) & np.isnan(other))


def _torch_numbers(value: Any) -> Array:
    wide: Array = (value.double() if value.is_floating_point() else value).numpy()
    return wide


def _other_answers(program: Program) -> Iterator[list[Array]]:
    """PyTorch's results in other ways: of views, and by its own decompositions."""
    from torch._decomp import core_aten_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    def decomposed(*given: Any) -> list[Any]:
        import torch

        names = dict(zip(program.inputs, given, strict=True))
        return program.run(torch, torch.nn.functional, names, copied=True)

    def traced() -> list[Any]:
        given = list(torch_inputs(program).values())
        graph = make_fx(decomposed, decomposition_table=core_aten_decompositions())(*given)  # type: ignore[arg-type]  # it is one
        return list(graph(*given))

    for answer in (lambda: torch_values(program, views=True), traced):
        with suppress(Exception):  # what a way can not compute is no answer
            yield [_torch_numbers(v) for v in answer()]


def _numbers(array: Array, kind: str) -> Array:
    wide = bf16_values(array) if kind == "bf16" else array
    return wide.astype(np.float64) if wide.dtype.kind == "f" else wide


def agrees(program: Program) -> str:
    """How a program, compiled by itself, differs from what it means; '' where it does not."""
    try:
        tensors = program.tensors()
        plan, code = planned(tensors), CompiledKernels(1)
        code.add([x.kernel for x in plan.launches])
        inputs = {k: v for t in tensors for k, v in t.bindings.items()}
        return differences(program, tensors, code.run(plan, inputs))
    except Exception as error:  # noqa: BLE001  # whatever it is, the program failed
        return f"raises {error!r}"


def failures(programs: Sequence[Program], code: CompiledKernels) -> dict[int, str]:
    """How those of many programs differ that do; their kernels are compiled together."""
    made = [p.tensors() for p in programs]
    plans = [planned(ts) for ts in made]
    code.add([x.kernel for p in plans for x in p.launches])
    wrong = {}
    for at, (program, tensors, plan) in enumerate(zip(programs, made, plans, strict=True)):
        inputs = {k: v for t in tensors for k, v in t.bindings.items()}
        if said := differences(program, tensors, code.run(plan, inputs)):
            wrong[at] = said
    return wrong


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A smaller program that fails as well: one output, then values in place of lines."""
    smaller = True
    while smaller:
        tried = [replace(program, outputs=(s.name,)).used() for s in program.steps]
        tried += [_cut(program, s) for s in reversed(program.steps)]
        size = len(program.steps), len(program.outputs)
        found = (p for p in tried if (len(p.steps), len(p.outputs)) < size and p.steps and fails(p))
        best = next(found, None)
        smaller = best is not None
        program = best or program
    return program


def _cut(program: Program, at: Step) -> Program:
    """The result of a line as an input."""
    (tensor,) = replace(program, outputs=(at.name,)).used().tensors()
    (array,) = evaluate((tensor.node,), tensor.bindings)
    name = tensor.dtype.name
    kinds = {v: k for k, v in SHORT.items()}
    dtype = kinds.get(name, str(array.dtype))
    steps = tuple(s for s in program.steps if s is not at)
    inputs = {**program.inputs, at.name: (array, dtype)}
    outputs = tuple(o for o in program.outputs if o != at.name)
    return replace(program, inputs=inputs, steps=steps, outputs=outputs).used()


def check_programs(
    fuzzer: str, count: int, code: CompiledKernels | None = None
) -> Counter[tuple[str, str]]:
    """Draw, compile and compare so many programs: how often each operation read what another made.

    Raises AssertionError with a small failing test.
    """
    code = code or CompiledKernels(1)
    counts: Counter[tuple[str, str]] = Counter()
    for first in range(0, count, 50):
        programs = []
        for case in range(first, min(count, first + 50)):
            rng = fuzzing.rng(fuzzer, case)
            programs.append(drawn(rng, rng.randint(2, 9), counts, extremes=EXTREMES))
        for at, said in failures(programs, code).items():
            small = shrunk(programs[at], lambda p: bool(agrees(p)))
            raise AssertionError(f"program {first + at}: {said}\n{agrees(small)}\n{small.text()}")
    return counts


# ---- histories

ROUNDS = 6
"""Runs of a history: forms are new in the first, and known from the third on."""


@contextmanager
def known_forms(used: bool) -> Iterator[None]:
    """Results of known forms are computed without a graph inside, or a graph is made of each."""
    kept = tracing._leaves, handle.pending_of, handle._is_made_at_once
    tracing._leaves = [False]  # a tensor that requires a gradient ends known forms
    if not used:
        handle.pending_of, handle._is_made_at_once = (lambda x: None), (lambda: True)
    try:
        yield
    finally:
        tracing._leaves, handle.pending_of, handle._is_made_at_once = kept


_HAPPENINGS = (
    "{v} += 1", "{v}.neg_()", "{v}.relu_()", "{v}.fill_(2)", "{v}.copy_({other})",
    "{v}.mul_(0.5).realize()", "{v}.sub_(1).realize()", "{v}.realize()", "{v}.numpy()",
    "{new} = {v}", "{v} = {v} - 1", "{new} = {v} * 3", "{new} = {v} - {other}",
    "{new} = {other} * {v} + {v}", "{new} = {v}.T", "{new} = {v}.reshape(-1)",
    "{new} = {v}.T.reshape(-1)",
)  # fmt: skip
_OF_ROWS = (
    "{v}[0] = 0.25", "{v}[-1] += 1", "{new} = {v}[-1]", "{new} = {v}[1:]",
    "{v}.copy_({v}.flip(0))", "{v}[1:] = {v}[:-1].clone()", "{new} = {v}.sort(0)[0]",
    "{new} = {v}.softmax(0)", "{new} = {v}.index_select(0, place)", "{new} = {v}[place] + 1",
)  # fmt: skip
"""What may happen to a value, and to one that has rows."""


def history(rng: random.Random, program: Program) -> tuple[str, ...]:
    """A program's lines as statements, between them what else may happen to their values; in half
    of the histories few kinds of that, again and again.
    """
    held, lines = _started(program), list[str]()
    kinds: tuple[str, ...] = (*_HAPPENINGS, *_OF_ROWS)
    kinds = tuple(rng.sample(kinds, 6)) if rng.random() < 0.5 else kinds

    def tried(line: str) -> None:
        line = f"with only_where(truth.node): {line}" if rng.random() < 0.2 else line
        with suppress(TunegradError), known_forms(False):  # a write to an expanded tensor
            exec(line, held)  # noqa: S102  # our own line
            lines.append(line)

    def happens() -> None:
        names = [n for n, x in held.items() if _is_written(x)]
        v = rng.choice((names[-2:] if rng.random() < 0.5 else names) or [""])
        fits = [k for k in kinds if v and (k not in _OF_ROWS or held[v].shape)]
        if fits:
            alike = [n for n in names if _form(held[n]) == _form(held[v])]
            form = {"v": v, "other": rng.choice(alike), "new": f"a{len(lines)}"}
            tried(rng.choice(fits).format_map(form))

    for step in program.steps:
        tried(f"{step.name} = {step.text}")
        for _ in range(rng.randint(0, 2)):
            happens()
    for _ in range(rng.randint(4, 12)):
        happens()
    return tuple(lines)


def _is_written(x: object) -> bool:
    """True of what a history writes to: integers are positions, and bools are conditions."""
    return isinstance(x, Tensor) and x.dtype.is_float and x.size > 0


def _form(x: Tensor) -> tuple[object, ...]:
    return x.shape, x.dtype


def _started(program: Program, at: int = 0) -> dict[str, Any]:
    """The names that a history begins with; in later rounds, other values of the same forms: those
    of inputs moved on, another condition, and in the last two a position that is out of range.
    """
    held: dict[str, Any] = {"T": tunegrad, "F": tunegrad.nn.functional, "only_where": only_where}
    held["truth"] = Tensor(np.array([at % 2 == 1]))[0]
    held["place"] = Tensor(np.array([0, 999 if at >= ROUNDS - 2 else -1]))
    for name, (array, kind) in program.inputs.items():
        held[name] = Tensor(np.roll(array, at), dtype_name(kind))
        held[f"twin_{name}"] = Tensor(np.roll(array, at + 1), dtype_name(kind))
    return held


def _outcome(lines: Sequence[str], held: dict[str, Any], names: Sequence[str]) -> dict[str, object]:
    """What each of these is after a history: its bytes, or the error that it raises."""
    found: dict[str, object] = {}
    for line in lines:
        try:
            exec(line, held)  # noqa: S102  # our own line
        except Exception as error:  # noqa: BLE001  # a wrong one differs from the right one
            found[line] = type(error)
    for name in names:
        if name in held:
            try:
                found[name] = held[name].dtype.name, held[name].shape, held[name].numpy().tobytes()
            except Exception as error:  # noqa: BLE001
                found[name] = type(error)
    return found


def unlike(program: Program, lines: Sequence[str], names: Sequence[str]) -> str:
    """Which result of a history differs where forms are known, and when; '' where none does."""
    for at in range(ROUNDS):
        outcomes = []
        for used in (True, False):
            with known_forms(used):
                outcomes.append(_outcome(lines, _started(program, at), names))
        wrong = [n for n in outcomes[1] if outcomes[0].get(n) != outcomes[1][n]]
        if wrong:
            return f"round {at}: {', '.join(wrong)} of\n" + "\n".join(lines)
    return ""


def check_history(rng: random.Random) -> str:
    """Draw a history and run it: a small one that fails with its inputs, or ''."""
    program = drawn(rng, rng.randint(1, 3), Counter())
    lines = history(rng, program)
    names = sorted(set(re.findall(r"\b([va]\d+) = ", "\n".join(lines))))
    names = rng.sample(names, min(6, len(names))) + list(program.inputs)[:1]
    if not unlike(program, lines, names):
        return ""
    for line in reversed(lines):
        rest = tuple(other for other in lines if other is not line)
        with suppress(Exception):  # a name that is no longer there, say
            lines = rest if unlike(program, rest, names) else lines
    return f"{unlike(program, lines, names)}\nof {program.inputs}"


def check_histories(count: int) -> None:
    """Raise AssertionError with a small failing history, of so many drawn ones."""
    for case in range(count):
        said = check_history(fuzzing.rng("histories", case))
        assert not said, f"history {case}: {said}"


def never(counts: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of operations that were never drawn together."""
    return [(a, b) for a in OPERATIONS for b in OPERATIONS if (a, b) not in counts]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def pair_table(counts: Counter[tuple[str, str]]) -> str:
    """Lines: for each operation, how many others read what it made, and those that never did."""
    lines = [f"{'made by':18} read by  never"]
    for a in OPERATIONS:
        unread = [b for b in OPERATIONS if not counts[a, b]]
        lines.append(f"{a:18} {len(OPERATIONS) - len(unread):7}  {' '.join(unread)}")
    return "\n".join(lines)


def show_pairs(count: int, seed: int) -> None:
    """Draw many programs, run none, and print the table of pairs."""
    counts: Counter[tuple[str, str]] = Counter()
    for case in range(count):
        rng = random.Random(f"{seed} api {case}")
        drawn(rng, rng.randint(2, 9), counts, extremes=EXTREMES)
    pairs = len(OPERATIONS) ** 2
    _say(pair_table(counts))
    _say(f"seed {seed}: {count} programs, {pairs - len(never(counts))} of {pairs} pairs drawn")


def main(arguments: Sequence[str]) -> None:
    """Draw many programs, report every one that fails, and what was drawn together."""
    if arguments[:1] == ["pairs"]:
        given = [int(a) for a in arguments[1:]]
        show_pairs(given[0] if given else 2000, given[1] if given[1:] else fuzzing.fix_seed())
        return
    if arguments[:1] == ["histories"]:
        count, seed = int(arguments[1]), int(arguments[2])
        found = [check_history(random.Random(f"{seed} histories {case}")) for case in range(count)]
        _say("\n---\n".join(filter(None, found)))
        _say(f"seed {seed}: {count} histories, {sum(map(bool, found))} wrong")
        return
    count = int(arguments[0]) if arguments else 200
    seed = int(arguments[1]) if len(arguments) > 1 else fuzzing.fix_seed()
    counts: Counter[tuple[str, str]] = Counter()
    wrong: Counter[str] = Counter()
    for first in range(0, count, 50):
        programs = []
        for case in range(first, min(count, first + 50)):
            rng = random.Random(f"{seed} api {case}")
            try:
                programs.append(drawn(rng, rng.randint(2, 9), counts, extremes=EXTREMES))
            except AssertionError as error:
                _say(f"--- program {case}: refused\n{error}")
                wrong["refused"] += 1
        for at, said in failures(programs, CompiledKernels(1)).items():
            small = shrunk(programs[at], lambda p: bool(agrees(p)))
            key = " ".join(s.op for s in small.steps)
            wrong[key] += 1
            if wrong[key] < 3:
                _say(f"--- program {first + at}: {said}\n{agrees(small)}\n{small.text()}")
    missing = never(counts)
    _say(f"seed {seed}: {count} programs, {sum(counts.values())} reads, {len(wrong)} kinds wrong")
    _say(f"{len(OPERATIONS) ** 2 - len(missing)} of {len(OPERATIONS) ** 2} pairs drawn")
    between = _by_family(counts)
    _say("reads     " + "".join(f"{f[:9]:>10}" for f in FAMILIES))
    for a in ("input", *FAMILIES):
        _say(f"{a[:10]:10}" + "".join(f"{between[a, b]:10}" for b in FAMILIES))
    _say(f"wrong: {dict(wrong)}")


if __name__ == "__main__":
    main(sys.argv[1:])
