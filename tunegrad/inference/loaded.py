"""A model that is ready to run: numpy in, one native call, numpy out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad import config, errors
from tunegrad.compiling import SUFFIX
from tunegrad.inference.choosing import Choice, compiled_choice, process_compiler
from tunegrad.ir import fusion
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.numeric import to_compute
from tunegrad.ir.rewrites import Guard
from tunegrad.lazy import dataclass
from tunegrad.runtime import (
    Argument,
    Code,
    Constants,
    Donated,
    Runner,
    Runners,
    Signature,
    needed_bytes,
)

if TYPE_CHECKING:
    from tunegrad import config, reports
    from tunegrad.devices import Engine, dlpack
    from tunegrad.frontend import Tensor

Array = NDArray[Any]
FirstCall = Callable[[Sequence[Array], tuple[Array, ...]], tuple[Array, ...] | None]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a loaded model: the store that was read, the dtype, what goes with the plan.

    ``planned`` makes the plan once more: with it, constants are kept as kernels read them, and as
    nothing else.
    """

    store: str = ""
    dtype: config.ModelDtype = "f32"
    planned: Callable[[], fusion.LaunchPlan] | None = None
    constants: Constants | None = None
    guards: Sequence[Guard] = ()
    validated: int = fusion.VALIDATION
    changed: Sequence[str] = ()


class LoadedModel:
    """A model, or a function of tensors, ready to run: numpy in, numpy out.

    Threads may share it. As many calls run side by side as there are cores for the threads of each
    (``threads=1``: one on each core); more take turns. It is pickled as ``save`` writes it, and a
    copy of it is the model itself: no call changes it.

    Made by ``load`` and ``compile``. Freed memory, code and all, when the last reference to it
    goes.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Argument],
        plan: fusion.LaunchPlan,
        chosen: Mapping[str, tuple[Choice, Code]],
        engine: Engine,
        origin: Origin | None = None,
    ) -> None:
        origin = origin or Origin()
        self.name, self.dtype, guards = name, origin.dtype, tuple(origin.guards)
        self.inputs = tuple(inputs)
        self._signature = Signature(name, self.inputs)
        self._planned = origin.planned
        self._chosen = chosen
        self._engine = engine
        self._store = origin.store
        self._constants = origin.constants or Constants(engine, untouched=True)
        codes = {key: code for key, (_, code) in chosen.items()}
        self._guards, self._validated = guards, origin.validated
        first = _bound(name, plan, codes, engine, self._constants, guards)
        # kernels read what was packed
        self._plan = plan if origin.planned is None else plan.forgotten
        more = partial(_bound, name, self._plan, codes, engine, self._constants, guards)
        self._changed = tuple(origin.changed)
        names = [] if self._changed else [a.name for a in self.inputs]
        self._runners = Runners(first, more, engine.at_once, names)
        self._runner = self._runners.first
        self._default: Runner | None = None
        self._donated = {plan.buffers[old].name: plan.outputs.index(new) for new, old in plan.over}
        self._shown = slice(0, len(plan.outputs) - len(self._guards) - len(self._changed))
        self._checks = Donated(name, self._donated)
        self._first_call: FirstCall | None = None

    def compare_first_call(self, compared: FirstCall) -> None:
        """Compare what the first call gives: ``compared`` takes inputs and outputs.

        It returns None where they are right, and the right outputs where they are not. These are
        what every call gives then.
        """
        self._first_call = compared

    def __call__(self, *positional: ArrayLike, **named: ArrayLike) -> Any:
        """Run on inputs in order or by name.

        One output comes as an array, several as a tuple, in fresh memory. The new value of a
        donated input is written into the array that was given for it, and comes as that array. An
        input that the function itself writes to is changed: an array or a Tensor.

        Raises ShapeError or DTypeError, naming the input, what was given and what is valid;
        IndexOutOfRange where the model reads or writes beyond a dimension: donated inputs are as
        they were then if ``checks_first``, else undefined.
        """
        if not named and self._first_call is None:  # what nearly every call is, in half the time
            found = self._runners.direct(positional)
            if found is not None:
                return found[0] if len(found) == 1 else found
        given = self._signature.check(positional, named)
        if self._donated:
            return self._call_donated(given, positional, named)
        outputs = self._runners.run(given)
        if (compared := self._first_call) is not None:  # read once: another thread may end it
            right = compared([given[a.name] for a in self.inputs], outputs)
            if right is None:
                self._first_call = None
            else:
                outputs = right
        return outputs[0] if len(outputs) == 1 else outputs

    def at_addresses(self, addresses: Sequence[int]) -> bool:
        """Run on memory of this process: of the inputs in order, then of the outputs but new values
        of inputs, which are written in the inputs' memory. Nothing is checked but indices.

        Each is row-major, aligned for its dtype, and lies there until the call returns; what is
        written shares nothing with the rest. False, and nothing has run, where calls take arrays
        alone.
        """
        if self._first_call is not None or self._changed:
            return False
        return self._runners.at_addresses(addresses)

    def _call_donated(
        self, arrays: dict[str, Array], positional: Sequence[object], named: Mapping[str, object]
    ) -> Any:
        """Run where inputs are donated; the first call is compared on copies of them."""
        names = (a.name for a in self.inputs)
        given = {**dict(zip(names, positional, strict=False)), **named}
        tensors = self._taken(given, arrays)
        self._checks.check(given, arrays)
        compared = self._first_call
        before = [arrays[a.name].copy() for a in self.inputs] if compared is not None else []
        outputs = self._runners.run(arrays)
        if compared is not None:
            right = compared(before, outputs)
            if right is None:
                self._first_call = None
            else:
                fixed = [*right]
                for name, at in self._donated.items():
                    arrays[name][...] = right[at]
                    fixed[at] = arrays[name]
                outputs = tuple(fixed)
        for name, x in tensors.items():
            x.become(arrays[name])
        if not self._changed:
            return outputs[0] if len(outputs) == 1 else outputs
        shown = outputs[self._shown]
        return shown[0] if len(shown) == 1 else shown or None

    def _taken(self, given: dict[str, Any], arrays: dict[str, Array]) -> dict[str, Tensor]:
        """The Tensors among the inputs that are changed, in whose place arrays are written to.

        Raises ShapeError for two inputs that share elements.
        """
        if not self._changed:
            return {}
        from tunegrad.frontend import Tensor, root_of  # only where it may be one

        found = {n: x for n in self._changed if isinstance(x := given[n], Tensor)}
        for name, x in found.items():
            for other, y in given.items():
                if other != name and isinstance(y, Tensor) and root_of(x) is root_of(y):
                    raise errors.ShapeError(
                        f"{self.name}: input {name!r} is changed, and shares elements with input "
                        f"{other!r}"
                    )
        for name in found:
            given[name] = arrays[name] = np.array(arrays[name])
        return found

    @cached_property
    def uses_arrays(self) -> bool:
        """True where kernels read and write arrays as they lie: the device has no other memory."""
        return self._engine.borrow(np.zeros(1)) is not None

    def resident(self, place: int, array: Array) -> dlpack.Imported:
        """A copy on the device of an array for the input at ``place``, for ``run_resident``."""
        from tunegrad.devices import dlpack

        memory = self._engine.allocate(array.nbytes)
        self._engine.write(memory, array)
        return dlpack.Imported(memory, array.shape, self.inputs[place].dtype.name)

    def run_resident(self, given: Sequence[Array | dlpack.Imported]) -> tuple[Any, ...]:
        """Run, as a call; inputs of ``resident`` are used, and get new values, where they lie."""

        def take(value: Any) -> dlpack.Imported | None:
            return None if isinstance(value, np.ndarray) else value

        return self._runners.run(self._signature.check(given, {}, take))

    def on_device(self, *positional: Any, **named: Any) -> Any:
        """Run, and leave the outputs on the device: a ``DeviceTensor``, or a tuple of them.

        Inputs that speak DLPack and lie there (torch's on this GPU) are used where they lie; numpy
        arrays, and tensors in this process's memory, are copied. ``torch.from_dlpack`` takes what
        comes back, without a copy. Raises DeviceError on a device whose memory other libraries can
        not use, and as a call does.
        """
        from tunegrad.devices import dlpack

        engine = self._engine
        if not isinstance(engine, dlpack.Sharing):
            raise errors.DeviceError(
                f"device {engine.device.name}: its memory is not shared; call the model, which "
                "takes and gives numpy arrays"
            )
        if self._changed:
            raise errors.DeviceError(
                f"{self.name} changes its input {self._changed[0]!r}; call the model, which takes "
                "and gives numpy arrays"
            )

        def take(value: object) -> dlpack.Imported | None:
            there = not isinstance(value, np.ndarray) and dlpack.place_of(value) == engine.place
            return dlpack.imported(value, engine) if there else None

        given = self._signature.check(positional, named, take)
        outputs = tuple(
            dlpack.DeviceTensor(memory, b.shape, b.dtype, engine.place, f"output of {self.name}")
            for memory, b in zip(
                self._runner.run_on_device(given, engine), self._runner.outputs, strict=True
            )
        )
        return outputs[0] if len(outputs) == 1 else outputs

    def __repr__(self) -> str:
        return (
            f"<LoadedModel {self.name}({', '.join(map(str, self.inputs))}), "
            f"{len(self._plan.launches)} kernels>"
        )

    @property
    def place(self) -> tuple[int, int] | None:
        """Place where ``on_device`` takes and leaves tensors, as DLPack's type and number of a
        device; None where it is not there.
        """
        from tunegrad.devices import dlpack

        return self._engine.place if isinstance(self._engine, dlpack.Sharing) else None

    @property
    def threads(self) -> int:
        """Native threads that it runs on, at most."""
        return self._engine.device.target.threads

    @property
    def multiplies_pairs(self) -> bool:
        """True where one instruction adds products of bf16 pairs, so that bf16 is faster."""
        return self._engine.device.target.multiplies_pairs

    @property
    def checks_first(self) -> bool:
        """True if indices out of range are found before donated inputs are changed."""
        return self._runner.checks_first

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The schedule that each distinct kernel runs with, and the reason."""
        return tuple(choice for choice, _ in self._chosen.values())

    @property
    def memory_bytes(self) -> int:
        """Bytes of intermediate buffers, scratch and constants."""
        return self._runners.memory_bytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of the weights, each once, before a schedule packs them."""
        return sum({b.data.digest: b.nbytes for b in self._plan.buffers if b.data}.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file ``NAME.plan``, which ``load`` takes: kernels, schedules, code and
        constants.

        A process that loads it needs no store, no weights and no compiler; the constants are
        mapped, so that processes share them. The file is for this kind of machine, and its code
        runs where it is loaded: load files of those you trust. Raises ModelError where it can not
        be written.
        """
        if not os.fspath(path).endswith(SUFFIX):
            raise errors.ModelError(
                f"model file {os.fspath(path)}: its name must end with {SUFFIX}"
            )
        from tunegrad.compiling import SavedKernel, SavedModel, save_model, taken_constants

        engine, compiler = self._engine, process_compiler()
        kernels = {
            key: SavedKernel(
                c.kernel, c.outcome, c.actions, c.differs,
                *compiler.made(c.kernel, c.actions, engine.device),
            )
            for key, (c, _) in self._chosen.items()
        }  # fmt: skip
        constants = taken_constants(self._plan, kernels, self._constants)
        saved = SavedModel(
            self.name, self.dtype, self.inputs, engine.device.name, self.threads, self._plan,
            kernels, constants, self._guards, self._validated, self._changed,
        )  # fmt: skip
        save_model(Path(path), saved, engine.device)

    def __copy__(self) -> LoadedModel:
        return self

    def __deepcopy__(self, _: object) -> LoadedModel:
        return self

    def __reduce__(self) -> tuple[Callable[..., LoadedModel], tuple[bytes]]:
        from tempfile import TemporaryDirectory

        from tunegrad.inference.loading import unpickled

        with TemporaryDirectory() as folder:
            path = Path(folder) / f"model{SUFFIX}"
            self.save(path)
            return unpickled, (path.read_bytes(),)

    def report(self) -> tuple[reports.LookupRow, ...]:
        """A row per distinct kernel: hit, near or miss by which field, the actions, its uses."""
        from tunegrad import reports

        uses = {key: count for key, (_, count) in self._plan.kernels().items()}
        layers = fusion.layers_of(self._plan)
        return tuple(
            reports.LookupRow(
                c.kernel.name, key, uses[key], c.outcome, c.differs, c.actions, layers[key]
            )
            for key, (c, _) in self._chosen.items()
        )

    def metrics(self, *others: LoadedModel) -> str:
        """Calls, seconds, errors, kernels and memory of this model and others, as Prometheus reads
        them (text format 0.0.4).

        Calls are counted from the first time on that this is called, and pay nothing before. Inputs
        that a call refuses before it runs are no errors of the model. A name that comes again gets
        a number.
        """
        from tunegrad import reports

        models: dict[str, LoadedModel] = {}
        for model in (self, *others):
            name, copy = model.name, 1
            while name in models:
                copy += 1
                name = f"{model.name} #{copy}"
            models[name] = model
        tallies = {name: m._runners.counting() for name, m in models.items()}  # noqa: SLF001
        kernels = [
            ({"model": name, "outcome": outcome}, float(sum(r.outcome == outcome for r in rows)))
            for name, m in models.items()
            for rows in [m.report()]
            for outcome in sorted({"hit", "miss", "near", *(r.outcome for r in rows)})
        ]
        families = [
            (f"tunegrad_{name}", kind, said, [({"model": n}, float(of(n))) for n in models])
            for name, kind, said, of in (
                ("calls_total", "counter", "Calls that ended well.", lambda n: tallies[n].calls),
                ("call_seconds_total", "counter", "Time of calls that ended well.",
                 lambda n: tallies[n].seconds),
                ("call_errors_total", "counter", "Calls that raised while they ran.",
                 lambda n: tallies[n].errors),
                ("memory_bytes", "gauge", "Buffers, scratch and constants.",
                 lambda n: models[n].memory_bytes),
            )
        ]  # fmt: skip
        said = "Distinct kernels by what the store knew of them."
        return reports.prometheus_text([*families, ("tunegrad_kernels", "gauge", said, kernels)])

    def benchmark_s(self, samples: int = 20, seed: int = 0) -> list[float]:
        """Seconds of each of ``samples`` runs on drawn inputs, timed inside compiled code; caches
        are warm.
        """
        return list(self._runner.time(self._drawn(seed), samples)[0])

    def timer(self, *positional: ArrayLike, **named: ArrayLike) -> Callable[[int], Sequence[float]]:
        """A function that times so many runs on these inputs, as ``benchmark_s``, for turns with
        other contestants.

        The inputs are copied once, not for each turn. Raises ShapeError or DTypeError, as a call
        does.
        """
        return self._runner.timer(self._signature.check(positional, named))

    def profile_s(self, samples: int = 10, seed: int = 0) -> tuple[tuple[str, float], ...]:
        """(kernel, median seconds) of each launch in order, over ``samples`` runs on drawn inputs.

        Another process takes a core for milliseconds, most of a mean of short launches.
        """
        from statistics import median

        arrays = self._drawn(seed)
        runs = [self._runner.time(arrays, 1, each=True)[1] for _ in range(samples)]
        return tuple(
            (launch.name, median(seconds))
            for launch, *seconds in zip(self._plan.launches, *runs, strict=True)
        )

    def benchmark(self, budget_s: float = 2.0, seed: int = 0) -> reports.RunReport:
        """Latency as it is loaded next to the default schedules: medians of interleaved runs on the
        same inputs.
        """
        from statistics import median

        from tunegrad import paired, reports

        arrays = self._drawn(seed)
        mine, other = self._runner, self._defaults()
        pairs = _interleaved(
            lambda n: mine.time(arrays, n)[0], lambda n: other.time(arrays, n)[0], budget_s
        )
        repeats = len(pairs[0])
        if mine is other:  # one program has no gain, whatever its samples scatter by
            pairs = ([*pairs[0], *pairs[1]],) * 2
        stored_s, default_s = (median(side) for side in pairs)
        return reports.RunReport(
            self.name, self._engine.device.name, self.threads, self._store, 1e3 * stored_s,
            1e3 * default_s,
            repeats, self.report(), self.dtype, self.constant_bytes,
            interval=paired.gain_interval(pairs[1], pairs[0]),
            by_turns=paired.paired_gain(pairs[1], pairs[0]),
            nan=self._gives_nan(arrays),
        )  # fmt: skip

    def _gives_nan(self, arrays: Mapping[str, Array]) -> bool:
        """True if outputs hold NaN; False where indices that were drawn are out of range."""
        try:
            found = zip(self._runner.run(arrays), self._runner.outputs, strict=True)
        except errors.IndexOutOfRange:
            return False
        return any(b.dtype.is_float and np.isnan(to_compute(x, b.dtype)).any() for x, b in found)

    def deviation(self, full: tuple[Node, ...], seed: int = 0) -> reports.Deviation:
        """Distance of its outputs on drawn inputs from those of ``full``, evaluated by numpy.

        ``full`` is the graph of the model as it was: the same inputs and outputs, no ``dtype``.
        """
        from tunegrad.ir.interpret.evaluate import evaluate
        from tunegrad.planning import deviation

        arrays = self._drawn(seed)
        wanted = [to_compute(a, n.dtype) for a, n in zip(evaluate(full, arrays), full, strict=True)]
        mine = zip(self._runner.run(arrays), full, strict=True)
        return deviation([to_compute(a, n.dtype) for a, n in mine], wanted)

    def _defaults(self) -> Runner:
        """The same model under the default schedules; itself, where those are what it runs."""
        if all(c.trial is None for c, _ in self._chosen.values()):
            return self._runner
        if self._default is None:
            engine, compiler = self._engine, process_compiler()
            here = engine.device.fingerprint()
            made = {
                key: compiled_choice(c.kernel, engine, here, None, "default", compiler)
                for key, (c, _) in self._chosen.items()
                if c.trial is not None
            }
            if all(c.actions == self._chosen[key][0].actions for key, (c, _) in made.items()):
                return self._runner
            codes = {key: code for key, (_, code) in {**self._chosen, **made}.items()}
            plan = self._plan if self._planned is None else self._planned()
            self._default = _bound(
                self.name, plan, codes, self._engine, self._constants, self._guards
            )
        return self._default

    def _drawn(self, seed: int) -> dict[str, Array]:
        from tunegrad.devices import Parameter
        from tunegrad.devices.verifying import draw

        rng = np.random.default_rng(seed)
        bounds = {self._plan.buffers[at].name: n for at, n in self._plan.indexed().items()}
        flat = {
            a.name: draw(
                Parameter(a.name, a.dtype.name, prod(a.shape), "in", bounds.get(a.name, 0)), rng
            )
            for a in self.inputs
        }
        return {a.name: a.as_drawn(flat[a.name]).reshape(a.shape) for a in self.inputs}


def _bound(
    name: str,
    plan: fusion.LaunchPlan,
    codes: Mapping[str, Code],
    engine: Engine,
    constants: Constants,
    guards: Sequence[Guard],
) -> Runner:
    """A plan with its memory. Raises DeviceError, which says what it takes, where there is none."""
    try:
        made = sum(plan.buffers[i].nbytes for i in {*plan.outputs})
        if made > config.machine_bytes():
            raise MemoryError(f"outputs of {made:,} bytes")
        return Runner(plan, codes, engine, constants, guards)
    except MemoryError as error:
        weights, rest = (f"{n / 1e6:.1f}" for n in needed_bytes(plan))
        raise errors.DeviceError(
            f"device {engine.device.name} has no memory for {name}: {weights} MB of "
            f"weights, {rest} MB of activations; {error}; a smaller batch, or dtype f16 or "
            "bf16, takes less"
        ) from error


def _interleaved(
    first: Callable[[int], Sequence[float]],
    second: Callable[[int], Sequence[float]],
    budget_s: float,
) -> tuple[list[float], list[float]]:
    """Samples of two sides in turns, for about ``budget_s`` seconds.

    A turn's first run only warms the caches.
    """
    once_s = sum(min(side(2)) for side in (first, second))
    rounds = max(3, min(100, int(budget_s / max(4 * once_s, 1e-6))))
    samples: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            samples[side].extend((first, second)[side](3)[1:])
    return samples
