"""The referee: it draws what kernels read, knows what they must give, and judges what the bench put
before it.

    refer    references of a kernel, ahead      --> stay here
    prepare  inputs and references of a kernel  --> inputs to the shared memory,
                                                    references stay here
    judge    the outputs in the shared memory   --> a verdict

It runs in a process of its own, which never runs a candidate: no candidate can reach what it must
compute. There may be several, each with kernels of its own: references are made of many short
steps of Python, which threads of one process do one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar

from tunegrad.devices.host.team import Bulk, Team
from tunegrad.devices.job import Candidate, Hooks, KernelIO, Limits, Parameter, Verdict
from tunegrad.devices.verifying.dataset import (
    Dataset,
    DatasetCache,
    InputSet,
    References,
    make_dataset,
)
from tunegrad.devices.verifying.handover import (
    Bytes,
    Mapped,
    Places,
    hand_over,
    output_places,
    outputs_of,
)
from tunegrad.devices.verifying.inputs import KeptInputs
from tunegrad.errors import InternalError
from tunegrad.ir.interpret.kernel import one_blas_thread

T = TypeVar("T")


_SHARE = 4
"""Inputs that were drawn are kept in at most this share of what references may take."""


class Referee:
    """References of the latest kernels. ``memory`` is shared with the bench.

    ``secret``: a seed that no candidate can be written for. It is one of ``count``, and keeps as
    much less.
    """

    def __init__(
        self,
        hooks: Hooks,
        limits: Limits,
        seed: int,
        team: Team,
        memory: Bytes,
        secret: int = 0,
        count: int = 1,
    ) -> None:
        self._secret, kept_bytes = secret, limits.cache_bytes // count
        self._hooks, self._seed, self._memory = hooks, seed, memory
        self._bulk = Bulk(team)
        self._kernels = DatasetCache(kept_bytes)
        self._inputs = KeptInputs(kept_bytes // _SHARE)

    def refer(self, candidate: Candidate, io: KernelIO) -> None:
        """Compute the references of a kernel, unless they are here, and its bars."""
        key = candidate.kernel_key
        if self._kernels.get(key) is None:
            made = self._made(candidate, io)
            self._inputs.put(key, [s.inputs for s in made.sets])
            kept = self._keep(key, made)
            for index, param in product(range(len(kept.sets)), outputs_of(io)):
                kept.bar(param, index)

    def prepare(self, candidate: Candidate, io: KernelIO) -> Places:
        """Hand a kernel's inputs over; draw them and compute references unless they are here."""
        key = candidate.kernel_key
        kept, drawn = self._kernels.get(key), self._inputs.get(key)
        if kept is None or drawn is None:
            made = self._made(candidate, io, None if kept is None else kept.references)
            drawn = [s.inputs for s in made.sets]
            self._inputs.put(key, drawn)
            if kept is None:
                self._keep(key, made)
        return hand_over(drawn, self._memory)

    def _made(self, candidate: Candidate, io: KernelIO, known: References | None = None) -> Dataset:
        return make_dataset(candidate, io, self._hooks, self._seed, known, self._secret)

    def _keep(self, kernel_key: str, made: Dataset) -> Dataset:
        """Keep the references alone."""
        kept = Dataset(tuple(InputSet({}, s.references) for s in made.sets))
        self._kernels.put(kernel_key, kept)
        return kept

    def judge(self, kernel_key: str, outputs: Sequence[Parameter], index: int) -> Verdict:
        """Compare the outputs that lie in the shared memory with what set ``index`` must give; then
        wipe them out.

        Right ones would be of use to a candidate that looks for them.
        """
        kernel = self._kernels.get(kernel_key)
        if kernel is None:
            return Verdict()
        verdict = self._compared(kernel, outputs, index)
        for _, got in output_places(outputs, self._memory):
            self._bulk.fill(got, 0)
        return verdict

    def _compared(self, kernel: Dataset, outputs: Sequence[Parameter], index: int) -> Verdict:
        max_error = 0.0
        for param, got in output_places(outputs, self._memory):
            bar = kernel.bar(param, index)
            if bar is None:
                continue
            found = self._bulk.judge(bar, got)
            here = (
                found.max_error if index == 0 else 0.0
            )  # errors of special numbers are as large as these are
            max_error = max(max_error, here)
            if found.fault:
                return Verdict(len(kernel.sets), f"{param.name}: {found.fault}", max_error)
            if found.first >= 0:
                error = (
                    f"{param.name}[{found.first}]: got {found.got:.9g}, expected "
                    f"{found.expected:.9g}, "
                    f"tolerance {found.allowed:.3g} ({found.bad} bad of {bar.expected.size} "
                    "compared)"
                )
                return Verdict(len(kernel.sets), error, max_error)
        return Verdict(len(kernel.sets), "", max_error)


# ---- in the referee's process


_referee: Referee | None = None


def start_referee(
    hooks: Hooks, limits: Limits, seed: int, memory: Mapped, secret: int, count: int
) -> None:
    """Make this process the referee, or one of ``count``.

    It judges on one thread: others would have to be woken for each judgement.
    """
    global _referee  # noqa: PLW0603  # the one thing this process keeps
    one_blas_thread()  # it looks for the library, which a confined process can not
    _referee = Referee(hooks, limits, seed, Team(1), memory.bytes, secret, count)


def on_referee(method: Callable[..., T], *arguments: object) -> T:
    """A method of this process's ``Referee``."""
    if _referee is None:
        raise InternalError("referee: called before it was started")
    return method(_referee, *arguments)
