"""The blocks of docs/ACTIONS.md: every action's docstring, arguments, an example and the errors it
can give.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial

from benchmarks.hand_schedules import (
    AHEAD,
    AVX512,
    GPU,
    MATRICES,
    conv3x3,
    gemm,
    half_gemm,
    row_sum,
    softmax,
)
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree, loop_tree
from tunegrad.ir.target import Target
from tunegrad.opts import Action, apply_actions, parse_actions
from tunegrad.opts.actions import ACTIONS

from .fences import fence, table

__all__ = ["BLOCKS", "EXAMPLES", "Example", "signature"]

_GEMM, _ROWS = gemm(64, 96, 32), row_sum(64, 96)

Example = tuple[Kernel, Target, str, str, tuple[str, ...]]

EXAMPLES: dict[str, Example] = {
    "epilogue": (
        half_gemm(32, 64, 32), AHEAD, (
        "tile(axis=m, size=16) tile(axis=n, size=64) tile(axis=n1, size=8) tile(axis=k, size=16) "
        "reorder(order=(m0, n0, n1, m1, n2, k0, k1)) upcast(axis=n1) "
        "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n2, k=k1)"),
        "epilogue(param=C)",
        ("epilogue(param=A)",),
    ),
    "fuse": (_GEMM, AVX512, "", "fuse(outer=m, inner=n)",
        ("fuse(outer=n, inner=m)", ("fuse(outer=n, "
        "inner=k)"))),
    "group": (_ROWS, AVX512, "tile(axis=k, size=16)", "group(axis=k1)",
        ("group(axis=k0)", "group(axis=i)")),
    "keep": (softmax(64, 96), AVX512, "", "keep(stage=1)", ("keep(stage=0)", "keep(stage=2)")),
    "local": (_GEMM, GPU, "tile(axis=m, size=8)", "local(axis=m1)", ("local(axis=k)",)),
    "pad": (gemm(7, 16, 8), AVX512, "", "pad(axis=m, multiple=4)", ("pad(axis=n, multiple=16)",)),
    "pipeline": (
        half_gemm(64, 64, 128), AHEAD, (
        "tile(axis=m, size=16) tile(axis=n, size=8) tile(axis=k, size=32) tile(axis=k1, size=16) "
        "reorder(order=(m0, n0, m1, n1, k0, k1, k2)) thread(axis=m0, count=0) "
        "thread(axis=n0, count=0) unroll(axis=k1) "
        "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k2) "
        "stage(param=A, at=k0, layout=(m1, m2, k1, k2)) "
        "stage(param=B, at=k0, layout=(k1, k2, n1, n2))"),
        "pipeline(loop=k0, slots=3)",
        ("pipeline(loop=k0, slots=5)", "pipeline(loop=k1, slots=2)", "pipeline(loop=m0, slots=2)"),
    ),
    "prefetch": (_ROWS, AVX512, "", "prefetch(param=X, distance=512)", (("prefetch(param=X, "
        "distance=1)"),)),
    "reorder": (_GEMM, AVX512, "", "reorder(order=(n, m))", ("reorder(order=(n, n))",)),
    "stage": (
        conv3x3(8, 16, 14), AVX512, "tile(axis=y, size=7)", "stage(param=X, at=y0, layout=())",
        (
            "stage(param=X, at=load, layout=())", "stage(param=W, at=y0, layout=(o, c))",
            "stage(param=V, at=y0, layout=())",
        ),
    ),
    "stream": (_GEMM, AVX512, "", "stream(param=C)", ("stream(param=A)",)),
    "tensorcore": (
        half_gemm(32, 16, 32), MATRICES,
        "tile(axis=m, size=16) tile(axis=n, size=8) tile(axis=k, size=16)",
        "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k1)",
        (
            "tensorcore(unit=m16n8k16_f16_f32, m=n1, n=m1, k=k1)",
            "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k0)",
            "tensorcore(unit=m64n256k16_f16_f32, m=m1, n=n1, k=k1)",
        ),
    ),
    "thread": (_GEMM, AVX512, "", "thread(axis=m, count=2)",
        ("thread(axis=m, count=64)", ("thread(axis=k, "
        "count=2)"))),
    "tile": (_GEMM, AVX512, "", "tile(axis=m, size=12)", ("tile(axis=m, size=0)", ("tile(axis=z, "
        "size=4)"))),
    "unroll": (_GEMM, AVX512, "tile(axis=k, size=4)", "unroll(axis=k1)", ("unroll(axis=m)",)),
    "upcast": (_GEMM, AVX512, "tile(axis=m, size=4)", "upcast(axis=m1)", ("upcast(axis=n)",)),
    "vectorize": (
        _GEMM, AVX512, "tile(axis=n, size=16)", "vectorize(axis=n1)",
        ("vectorize(axis=k)", "vectorize(axis=n0)"),
    ),
}  # fmt: skip
"""Per action: kernel, target, what is applied first, the action, and instances that are not
legal there.
"""


def signature(action: type[Action]) -> str:
    """The call with its fields, their types and defaults."""
    parts = []
    for f in fields(action):
        default = "" if f.default is MISSING else f" = {'()' if f.default == () else f.default}"
        parts.append(f"{f.name}: {f.type}{default}")
    return f"{action.name}({', '.join(parts)})"


def section(name: str) -> str:
    """One action."""
    action = ACTIONS[name]
    words, _, rewrite = inspect.cleandoc(action.__doc__ or "").partition("rewrite:")
    return "\n\n".join(
        [
            f"### {name}",
            fence(signature(action), "python"),
            words.strip(),
            fence(f"rewrite:{rewrite}"),
            _example(name),
        ]
    )


def _example(name: str) -> str:
    kernel, target, first, text, illegal = EXAMPLES[name]
    before = apply_actions(loop_tree(kernel, target), parse_actions(first))
    after = apply_actions(before, parse_actions(text))
    lead = f"{kernel.name}" + (f", after `{first}`" if first else "")
    errors = "\n".join(error(before, x) for x in illegal)
    return "\n\n".join(
        [
            f"On {lead}, `{text}`:",
            fence(f"{before}\n\n--> {text}\n\n{after}"),
            "Not legal on the same loop tree:",
            fence(errors),
        ]
    )


def error(tree: LoopTree, text: str) -> str:
    """The message of an action that is not legal."""
    try:
        apply_actions(tree, parse_actions(text))
    except IllegalAction as e:
        return str(e)
    raise AssertionError(f"{text} was expected to be illegal")


def _overview() -> str:
    rows = []
    for name in sorted(ACTIONS):
        words = " ".join(
            inspect.cleandoc(ACTIONS[name].__doc__ or "").partition("rewrite:")[0].split()
        )
        rows.append(
            (f"[`{signature(ACTIONS[name])}`](#{name})", words.split(". ")[0].rstrip(".") + ".")
        )
    return table(("action", "what it does"), rows)


def _grammar() -> str:
    from tunegrad.opts.actions import base

    lines = inspect.cleandoc(base.__doc__ or "").splitlines()
    return fence("\n".join(x.strip() for x in lines if ":=" in x))


def _parse_errors() -> str:
    bad = (
        "melt(axis=m)", "tile(axis=m)", "tile(axis=m, size=4, axis=n)", "tile(axis=m, size=big)",
        ("tile(m, 4, "
            "5)"),
        "tile(axis=m, size=4", "upcast(axis=m1) !",
    )  # fmt: skip
    return fence("\n".join(_parse_error(x) for x in bad))


def _parse_error(text: str) -> str:
    try:
        parse_actions(text)
    except IllegalAction as e:
        return f"{text:<32} {e}"
    raise AssertionError(f"{text} was expected not to parse")


def _sections() -> str:
    return "\n\n".join(section(name) for name in sorted(ACTIONS))


BLOCKS: dict[str, Callable[[], str]] = {
    "overview": _overview,
    "grammar": _grammar,
    "parse-errors": _parse_errors,
    "actions": partial(_sections),
}
