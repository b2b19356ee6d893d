"""Plans that are validated, each part of them once."""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tunegrad.config import cache_dir
from tunegrad.errors import WrongPlan
from tunegrad.forks import ForkSafeLock
from tunegrad.object_cache import ObjectCache

from ..dtypes import DType
from ..fusion.plan import VALIDATION, LaunchPlan
from ..graph import GraphOp, Node, Step
from .graphs import Unvalidated
from .plans import Group, groups_of, validate_group
from .rewrites import check_rewrite

__all__ = ["Validation", "validated", "validated_rewrite", "validation"]

_log = logging.getLogger(__name__)

_lock = ForkSafeLock()
_by_node: weakref.WeakKeyDictionary[Node, dict[Hashable, str]] = weakref.WeakKeyDictionary()
"""What was found by buffers' nodes and what writes them: "" where it is right."""

_by_text: dict[str, str] = {}
"""The same by a digest of all that it depends on."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What is known of a plan: how many buffers stand for nodes, and which of them could not be
    validated, each with the name of its launch and why.
    """

    buffers: int
    left_out: tuple[tuple[str, str], ...]


def validated(plan: LaunchPlan, outputs: tuple[Node, ...] | None = None) -> LaunchPlan:
    """The plan, whose kernels compute the graph that its buffers' nodes are of.

    ``outputs``: what its outputs are; None where no graph says it. What can not be worked out is
    named in a warning. Raises WrongPlan.
    """
    found = validation(plan, outputs)
    for name, why in dict.fromkeys(found.left_out):
        _warn(name, why)
    return plan


def validated_rewrite(
    before: tuple[Node, ...],
    after: tuple[Node, ...],
    steps: Sequence[Step],
    narrow: DType | None = None,
) -> tuple[Node, ...]:
    """``after``, which computes what ``before`` does; as ``check_rewrite``, with a warning for what
    can not be compared.
    """
    for why in check_rewrite(before, after, steps, narrow):
        _warn_of_graph(why)
    return after


@lru_cache(maxsize=1024)
def _warn(name: str, why: str) -> None:
    """Once a process for each."""
    _log.warning("plan: launch %s is not validated against its graph: %s", name, why)


@lru_cache(maxsize=1024)
def _warn_of_graph(why: str) -> None:
    """Once a process for each."""
    _log.warning("graph: a rewrite is not validated: %s", why)


def validation(plan: LaunchPlan, outputs: tuple[Node, ...] | None = None) -> Validation:
    """Validate a plan, what is not known of it; as ``validated``."""
    if outputs is not None:
        _check_outputs(plan, outputs)
    buffers, left_out = 0, []
    for group in groups_of(plan):
        buffers += 1
        why = _found(group)
        if why:
            left_out.append((group.launch.name, why))
    return Validation(buffers, tuple(left_out))


def _check_outputs(plan: LaunchPlan, outputs: tuple[Node, ...]) -> None:
    """Each output is the buffer of its node; fences around a node are that node."""
    nodes = [plan.buffers[i].node for i in plan.outputs]
    if len(nodes) != len(outputs):
        raise WrongPlan(f"plan: it has {len(nodes)} outputs, its graph {len(outputs)}")
    for i, n, o in zip(plan.outputs, nodes, outputs, strict=True):
        if not isinstance(n, Node) or _unfenced(n) is not _unfenced(o):
            raise WrongPlan(f"plan: output {plan.buffers[i]} stands for {n}, and is {o}")


def _unfenced(n: Node) -> Node:
    while n.op is GraphOp.CONTIGUOUS:
        n = n.srcs[0]
    return n


def _found(group: Group) -> str:
    """Why a buffer can not be validated; "" where it is right. Raises WrongPlan."""
    key = group.key
    with _lock:
        known = _by_node.setdefault(group.node, {})
        if key in known:
            return known[key]
        cone = group.cone()
        text = hashlib.sha256(group.text(cone).encode()).hexdigest()
        why = _by_text.get(text)
        if why is None:
            why = _kept(text)
        if why is None:
            try:
                why = _validated(group, cone)
            except RecursionError:  # it is the caller's stack that was deep: the next may do
                return "operations inside one another, deeper than Python's stack"
            _keep(text, why)
        known[key] = _by_text[text] = why
        return why


def _validated(group: Group, cone: list[Node]) -> str:
    try:
        validate_group(group, cone)
    except Unvalidated as error:
        return str(error)
    return ""


def _cache() -> ObjectCache:
    """Apart from objects, which are many: a process that writes looks at all of them."""
    return _cache_at(cache_dir() / "validated")


@lru_cache(maxsize=2)
def _cache_at(directory: Path) -> ObjectCache:
    return ObjectCache(directory)


def _kept(text: str) -> str | None:
    body = _cache().get(_key(text))
    return None if body is None else body.decode()


def _keep(text: str, why: str) -> None:
    _cache().put(_key(text), why.encode())


def _key(text: str) -> str:
    return hashlib.sha256(f"validated plan {VALIDATION} {text}".encode()).hexdigest()
