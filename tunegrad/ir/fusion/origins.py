"""Names the layers of a model that its kernels came from, by the parameters that they read.

    launch reads layer2.0.conv1.weight (folded), layer2.0.bn1.bias (folded)  -->  layer2.0.conv1+bn1
    launch reads no parameter, but what query and key wrote                  -->  after query, key

Parameters carry their names from modules to kernels (``kernel_origin``); parts of a name end with a
dot, or with a slash as in ONNX files. A kernel that is launched several times comes from several
layers.
"""

from __future__ import annotations

import re

from ..expr import Op
from ..graph import GraphOp
from .naming import INPUT
from .plan import Launch, LaunchPlan

__all__ = ["layers_of"]

_OPERATIONS = frozenset((*map(str, GraphOp), *map(str, Op)))
_FOLDED = " (folded)"
_AFTER = "after "
_PART = re.compile(r"[^./]*[./]?")


def layers_of(plan: LaunchPlan) -> dict[str, tuple[str, ...]]:
    """By kernel key: where its launches come from, in their order, each once.

    A launch without parameters comes ``after`` those that wrote what it reads, or is named by the
    model's inputs that it reads; of what has neither there is nothing.
    """
    wrote: dict[int, str] = {}
    found: dict[str, dict[str, None]] = {}
    for launch in plan.launches:
        args = [plan.memory(i) for i in launch.args]
        said = _module(launch) or _after(args, wrote) or _inputs(launch)
        for p, buffer in zip(launch.kernel.params, args, strict=True):
            if p.role == "out":
                wrote[buffer] = said
        found.setdefault(launch.kernel.key, {}).update({said: None} if said else {})
    return {key: tuple(layers) for key, layers in found.items()}


def _module(launch: Launch) -> str:
    """The modules whose parameters it reads, as ``layer2.0.conv1+bn1``; "" where it reads none."""
    names = [n for n in launch.origin if n not in _OPERATIONS and not n.endswith(INPUT)]
    owners = dict.fromkeys(_owner(n.removesuffix(_FOLDED)) for n in names)
    paths = [_PART.findall(owner)[:-1] for owner in owners]
    if not paths:
        return ""
    shared = 0
    while all(len(p) > shared + 1 and p[: shared + 1] == paths[0][: shared + 1] for p in paths):
        shared += 1
    return "".join(paths[0][:shared]) + "+".join("".join(p[shared:]) for p in paths)


def _owner(parameter: str) -> str:
    """The module of a parameter; a parameter that no module holds stands for itself."""
    return parameter.rpartition(".")[0] or parameter


def _after(args: list[int], wrote: dict[int, str]) -> str:
    """Origin of a launch without parameters: the layers that wrote what it reads, through kernels
    that have no parameters either.
    """
    before = dict.fromkeys(
        layer for i in args for layer in wrote.get(i, "").removeprefix(_AFTER).split(", ") if layer
    )
    return f"{_AFTER}{', '.join(before)}" if before else ""


def _inputs(launch: Launch) -> str:
    names = (n.removesuffix(INPUT) for n in launch.origin if n.endswith(INPUT))
    return "+".join(dict.fromkeys(names))
