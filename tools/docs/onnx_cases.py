"""Cases of ONNX's own suite in a process of their own, so that none can end this one.

names  -->  worker process: judge(name)  -->  a row each
            it dies, or takes too long   -->  the row says so, and another worker goes on
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

__all__ = ["NEARER", "Row", "cases", "judge", "run_cases"]


@dataclass(frozen=True, slots=True)
class Row:
    """A case: it passed where ``why`` is empty; else ``lacks`` names an operator or a type.

    ``constants`` counts inputs that were constants of the program, ``kernels`` those it ran.
    """

    name: str
    why: str = ""
    lacks: str = ""
    constants: int = 0
    kernels: int = 0


NEARER = frozenset(
    ["test_attention_4d_causal_fp16_expanded", "test_dft_inverse", "test_dft_inverse_opset19"]
)
"""Cases whose expected values are rounded, in f16 at each step, and by a transform in f32."""


@cache
def cases() -> dict[str, Any]:
    """The node tests of the installed onnx, by name: all but those of other domains."""
    from onnx.backend.test.case.node import collect_testcases

    with np.errstate(all="ignore"):  # the cases compute what they expect
        found = sorted(collect_testcases(None), key=lambda c: c.name)
    return {
        c.name: c
        for c in found
        if c.model and all(n.domain in ("", "ai.onnx") for n in c.model.graph.node)
    }


def judge(name: str) -> Row:
    """A case, run and compared."""
    from tests.onnx_backend import judged

    found = judged(cases()[name])
    return Row(name, found.why, _lacks(name) if found.why else "", found.constants, found.kernels)


def _lacks(name: str) -> str:
    """Name what a case needs that is not there: operators, a type, or the rest of its operator."""
    from onnx import TensorProto

    from tests.onnx_backend import draws
    from tunegrad.errors import ModelError
    from tunegrad.frontend.onnx.building import missing_operators
    from tunegrad.frontend.onnx.importer import dtype_of_onnx

    if draws(name):
        return "numbers that the reference drew"
    if name in NEARER:
        return "nothing: ours is nearer to f64 than what is expected"
    graph = cases()[name].model.graph
    missing = missing_operators(graph)
    if missing:
        return f"operator {', '.join(missing)}"
    kinds = {i.type.tensor_type.elem_type for i in (*graph.input, *graph.output)}
    for kind in sorted(kinds - {TensorProto.UNDEFINED}):
        try:
            dtype_of_onnx("", "", kind)
        except ModelError:
            return f"type {TensorProto.DataType.Name(kind).lower()}"
    whole, expanded, _ = name.partition("_expanded")  # a function's case has its operator beside it
    nodes = cases()[whole].model.graph.node if whole in cases() else graph.node
    return f"the rest of {nodes[0].op_type}{', expanded' if expanded else ''}"


def run_cases(
    names: Iterable[str], judge: Callable[[str], Row] = judge, limit_s: float = 120.0
) -> list[Row]:
    """A row for each name, in order. ``judge`` runs in a worker, for ``limit_s`` at most."""
    rows, worker = [], None
    for name in names:
        worker = worker or _Worker.started(judge)
        row = worker.row(name, limit_s)
        if row is None:
            rows.append(Row(name, worker.end(), "a process that goes on"))
            worker = None
        else:
            rows.append(row)
    if worker is not None:
        worker.end()
    return rows


@dataclass(frozen=True, slots=True)
class _Worker:
    process: BaseProcess
    there: Connection

    @staticmethod
    def started(judge: Callable[[str], Row]) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, judge), daemon=True)
        process.start()
        there.close()
        here.recv()  # it is there: what it took to start is no case's time
        return _Worker(process, here)

    def row(self, name: str, limit_s: float) -> Row | None:
        """The row of a case; None where the worker died or took too long."""
        try:
            self.there.send(name)
            return self.there.recv() if self.there.poll(limit_s) else None
        except (EOFError, OSError):
            return None

    def end(self) -> str:
        """Ends the process, and says how it ended."""
        self.there.close()
        self.process.join(1.0)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            return "it took too long"
        return f"it ended the process: {self.process.exitcode}"


def _serve(there: Connection, judge: Callable[[str], Row]) -> None:
    """The worker: a name in, a row out, until the other side is closed."""
    there.send(None)
    while True:
        try:
            name = there.recv()
        except EOFError:
            return
        there.send(judge(name))
