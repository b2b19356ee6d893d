"""The blocks of docs/IR.md: what the modules say of themselves, real forms, and forms that a
verifier refuses.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import ModuleType

import numpy as np

from benchmarks.hand_schedules import AVX512, GPU, conv3x3, gemm, row_sum, softmax
from tests.interpreter import program as interpret_program
from tests.verifiers import graph as verify_graph
from tests.verifiers import program as verify_program
from tunegrad.errors import IllegalAction, ShapeError, VerifyError
from tunegrad.frontend import Tensor
from tunegrad.ir import (
    expr,
    graph,
    index,
    kernel,
    layout,
    looptree,
    parse_kernel,
    program,
    target,
    validate,
)
from tunegrad.ir.dtypes import BF16, F32, I32
from tunegrad.ir.expr import Apply, Load, Op, Value
from tunegrad.ir.fusion import (
    LAST,
    ROWS,
    Alternatives,
    Fusion,
    Images,
    blocked,
    drafts,
)
from tunegrad.ir.index import Range, Valid, as_index, var
from tunegrad.ir.kernel import Axis, Kernel, Reduce, Store
from tunegrad.ir.layout import Layout, Part
from tunegrad.ir.program import (
    Barrier,
    Buffer,
    Compute,
    For,
    Number,
    Program,
    Read,
    Register,
    VType,
)
from tunegrad.ir.program import Store as StoreInstr
from tunegrad.ir.text import print_graph
from tunegrad.ir.validate import numbers, rewrites
from tunegrad.ir.verify import kernel as verify_kernel
from tunegrad.opts import Schedule, Space

from .fences import fence

__all__ = ["BLOCKS"]


def said(documented: ModuleType | type) -> str:
    """The docstring of a module or class."""
    return fence(inspect.cleandoc(documented.__doc__ or ""))


def refused(attempts: Iterable[Callable[[], object]]) -> str:
    """The message of each attempt's error."""
    return fence("\n".join(_message(a) for a in attempts))


def _message(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (VerifyError, IllegalAction, ShapeError) as error:
        return str(error)
    raise AssertionError("a form that should be refused was accepted")


def _index_laws() -> str:
    i, j, k = var("i", 8), var("j", 4), var("k", 4)
    whole = i * 16 + j * 4 + k
    rows = [
        ("i*16 + j*4 + k, with i < 8, j < 4, k < 4", whole),
        ("... // 16", whole // 16),
        ("... % 16", whole % 16),
        ("... // 4 % 4", whole // 4 % 4),
        ("4*(... // 4) + ... % 4", whole // 4 * 4 + whole % 4),
        ("(i + 3) // 5", (i + 3) // 5),
        ("0 <= i - 1 < 6", Valid((Range(i - 1, 0, 6),))),
        ("0 <= i < 9", Valid((Range(i, 0, 9),))),
        ("0 <= i + 8 < 8", Valid((Range(i + 8, 0, 8),))),
    ]
    return fence("\n".join(f"{text:<44} {value!r}" for text, value in rows))


def _layouts() -> str:
    shape = (2, 20, 3, 3)
    n, c, h, w = (var(x, e) for x, e in zip("nchw", shape, strict=True))
    blocked = Layout(
        shape, (Part(0, 1, 2), Part(1, 16, 2), Part(2, 1, 3), Part(3, 1, 3), Part(1, 1, 16))
    )
    rows = {
        "row major": Layout.row_major(shape),
        "channels last": Layout.permuted(shape, (0, 2, 3, 1)),
        "c by 16": blocked,
    }
    lines = [
        f"{name:<14} {x!s:<22} {x.size:>4} elements   {x.offset((n, c, h, w))}"
        for name, x in rows.items()
    ]
    return fence("\n".join(lines))


def _questions() -> str:
    """Every question of a target and its answers."""
    asked = [n for n in vars(target.Target) if n.startswith(("has_", "can_"))]
    rows = [("", "a Zen 4 core", "an OpenCL device")]
    said = {True: "yes", False: "no"}
    rows += [(n, said[bool(getattr(AVX512, n))], said[bool(getattr(GPU, n))]) for n in asked]
    return fence("\n".join(f"{a:<22}{b:<16}{c}" for a, b, c in rows))


def _graph_example() -> str:
    x = Tensor.input("x", (1, 2, 6, 6))
    weights = Tensor.constant(np.ones((4, 2, 3, 3), np.float32), name="w")
    return fence(print_graph((x.conv2d(weights, padding=1).relu().node,)))


def _graph_refused() -> str:
    x = graph.graph_input("x", (4, 6), F32)

    def node(op: graph.GraphOp, arg: object, shape: tuple[int, ...]) -> graph.Node:
        return graph.Node(op, (x,), arg, shape, F32)

    op = graph.GraphOp
    bad = (
        node(op.PERMUTE, (1, 0), (4, 6)),
        node(op.RESHAPE, None, (5, 5)),
        node(op.REDUCE, (Op.ADD, (2,)), (4, 6)),
        graph.elementwise(Op.ADD, x, graph.reshape(graph.graph_input("x", (6, 4), F32), (4, 6))),
    )
    return refused([partial(verify_graph.verify_graph, (n,)) for n in bad])


def _kernels() -> str:
    return fence(
        "\n\n".join(str(k) for k in (gemm(64, 64, 64), conv3x3(8, 16, 14), softmax(8, 100)))
    )


def _kernel_refused() -> str:
    good = gemm(8, 8, 8)
    reduce, store = good.stages
    assert isinstance(reduce, Reduce)
    assert isinstance(store, Store)
    m, n, k = good.axes[0].index, good.axes[1].index, reduce.axes[0].index

    def folding(x: expr.Expr) -> Kernel:
        return replace(good, stages=(replace(reduce, expr=x), store))

    a, b = Load("A", (m, k), F32), Load("B", (k, n), F32)
    bad = (
        replace(good, axes=(*good.axes, Axis("k", 2))),
        folding(Apply(Op.MUL, (Load("A", (m, k + 1), F32), b), F32)),
        folding(Apply(Op.MUL, (a, Load("B", (k, var("z", 8)), F32)), F32)),
        folding(Apply(Op.MUL, (a, a), F32)),
        folding(Apply(Op.MUL, (Load("A", (m, k), BF16), b), F32)),
        folding(Apply(Op.AND, (a, b), F32)),
        replace(good, stages=(reduce, replace(store, index=(m, m)))),
        replace(good, stages=(reduce, replace(store, expr=Value("v1", F32)))),
        replace(good, stages=(reduce, store, store)),
    )
    return refused([partial(verify_kernel.verify_kernel, x) for x in bad])


def _trees() -> str:
    k = gemm(64, 64, 64)
    text = "tile(axis=m, size=4) tile(axis=n, size=16) upcast(axis=m1) vectorize(axis=n1)"
    return fence(
        f"{Space(k, AVX512).tree(Schedule(()))}\n\n{text}\n\n"
        f"{Space(k, AVX512).tree(Schedule.parse(text))}"
    )


def _tree_refused() -> str:
    soft = softmax(8, 64)
    bad = (
        (gemm(64, 64, 64), AVX512, "tile(axis=m, size=4) reorder(order=(m1, m0))"),
        (
            gemm(64, 64, 64),
            AVX512,
            "tile(axis=m, size=4) vectorize(axis=m1) tile(axis=n, size=4) vectorize(axis=n1)",
        ),
        (soft, AVX512, "reorder(order=(p, i))"),
        (gemm(8, 8, 10), AVX512, "tile(axis=k, size=4) unroll(axis=k0) reorder(order=(k1, m, n))"),
        (conv3x3(8, 16, 14), GPU, "group(axis=r) group(axis=s)"),
        (gemm(64, 64, 64), AVX512, "upcast(axis=m) upcast(axis=n)"),
    )
    return refused([partial(Space(k, t).tree, Schedule.parse(text)) for k, t, text in bad])


def _program() -> str:
    k = replace(row_sum(6, 40), name="rows")
    text = "tile(axis=k, size=16) group(axis=k1) thread(axis=i, count=2)"
    return fence(f"{text}\n\n{Space(k, AVX512).lower(Schedule.parse(text)).text}")


def _program_refused() -> str:
    f, zero = VType(F32), as_index(0)
    params = (Buffer("y", F32, 8, "out"), Buffer("x", F32, 8, "in"))
    one, i = Number(1, 1.0, f), var("i", 8)
    store = StoreInstr("y", i, 1, f)
    bad = (
        (one, one),
        (StoreInstr("y", zero, 1, f),),
        (one, Compute(2, Op.ADD, (1,), f)),
        (Number(1, 1.5, VType(I32)),),
        (one, StoreInstr("x", zero, 1, f)),
        (one, StoreInstr("y", as_index(8), 1, f)),
        (one, store),
        (Register("r", f), Read(1, "r", f)),
        (For("i", 8, (as_index(9),), (one, store)),),
        (For("i", 8, (as_index(8),), (Barrier(),), "thread", 2),),
    )
    return refused([partial(_verify, Program("p", params, (), (), body, 2)) for body in bad])


def _verify(p: Program) -> None:
    verify_program.verify_program(p)


def _plans() -> str:
    """A softmax: the rules' plan, and what every edge makes of it."""
    softmax_row = Tensor.input("x", (64, 128)).softmax(-1)
    cut = Alternatives(Fusion.of((softmax_row.node,)))
    lines = [f"{'rules':22} {', '.join(x.name for x in cut.launches.values())}"]
    for edge in cut.edges():
        found = cut.alternative(edge)
        if found is not None:
            lines.append(f"{edge.name:22} {', '.join(k.name for k in found.after)}")
    return fence("\n".join(lines))


def _images() -> str:
    """A kernel that reads and writes images, in each form."""
    x = Tensor.input("x", (1, 3, 8, 8))
    wide, next_one, last = (
        Tensor.constant(np.ones((*s, 1, 1), np.float32)) for s in ((32, 3), (32, 32), (8, 32))
    )
    y = x.conv2d(wide).max_pool2d(3, 2, 1).conv2d(next_one).conv2d(last)
    cut = Fusion.of((y.node,))
    forms = (cut.storing(images) for images in (LAST, ROWS, blocked(16)))
    return fence(
        "\n\n".join(f"{form.images}\n{form.schedule().launches[2].kernel}" for form in forms)
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "index": partial(said, index),
    "index-laws": _index_laws,
    "expressions": partial(said, expr),
    "layout": partial(said, layout),
    "layouts": _layouts,
    "target": partial(said, target),
    "target-asked": _questions,
    "graph": partial(said, graph),
    "graph-example": _graph_example,
    "graph-refused": _graph_refused,
    "fusion": partial(said, drafts),
    "fusion-edges": partial(said, Alternatives),
    "fusion-plans": _plans,
    "images": partial(said, Images),
    "images-example": _images,
    "validated": partial(said, validate),
    "validated-numbers": partial(said, numbers),
    "validated-rewrites": partial(said, rewrites),
    "kernel": partial(said, kernel),
    # The face of ir.text has a function of the module's name.
    "index-text": partial(said, importlib.import_module("tunegrad.ir.text.parse_index")),
    "kernel-text": partial(said, parse_kernel),
    "kernels": _kernels,
    "kernel-rules": partial(said, verify_kernel),
    "kernel-refused": _kernel_refused,
    "looptree": partial(said, looptree),
    "trees": _trees,
    "tree-refused": _tree_refused,
    "program": partial(said, program),
    "program-example": _program,
    "program-rules": partial(said, verify_program),
    "program-refused": _program_refused,
    "interpreter": partial(said, interpret_program),
}
