"""Plans that are validated, each part of them once."""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
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
from ..rewrites.ranges import Guard, guarded
from .graphs import Unvalidated
from .plans import Group, groups_of, validate_group
from .rewrites import check_guards, check_rewrite

__all__ = ["Validation", "validated", "validated_guards", "validated_rewrite", "validation"]

_log = logging.getLogger(__name__)

_lock = ForkSafeLock()
_by_node: weakref.WeakKeyDictionary[Node, dict[Hashable, str]] = weakref.WeakKeyDictionary()
"""Faults by buffers' nodes and the launches that write them: "" where all is right."""

_by_text: dict[str, str] = {}
"""The same by a digest of all that it depends on."""

_DEEP = "operations inside one another, deeper than Python's stack"


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of validating a plan: how many buffers stand for nodes, and those that could not
    be validated, each with the name of its launch and the reason.
    """

    buffers: int
    left_out: tuple[tuple[str, str], ...]


def validated(plan: LaunchPlan, outputs: tuple[Node, ...] | None = None) -> LaunchPlan:
    """The plan, whose kernels compute the graph that its buffers' nodes are of.

    ``outputs``: what its outputs are; None where no graph says it. A warning names the buffers that
    can not be worked out. Raises WrongPlan.
    """
    found = validation(plan, outputs)
    for name, why in dict.fromkeys(found.left_out):
        _warn(name, why)
    return plan


def validated_guards(outputs: tuple[Node, ...]) -> tuple[tuple[Node, ...], tuple[Guard, ...]]:
    """A graph without WITHIN nodes and its guards, as ``ranges.guarded``, which are compared with
    it. Raises WrongPlan, and IndexOutOfRange as that.
    """
    after, guards = guarded(outputs)
    if after != outputs:
        check_guards(outputs, after, guards)
    return after, guards


def validated_rewrite(
    before: tuple[Node, ...],
    after: tuple[Node, ...],
    steps: Sequence[Step],
    narrow: DType | None = None,
    on_purpose: bool = False,
) -> tuple[Node, ...]:
    """``after``, which computes what ``before`` does; as ``check_rewrite``, with a warning for what
    can not be compared.
    """
    for why in check_rewrite(before, after, steps, narrow, on_purpose):
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
    groups = list(groups_of(plan))
    with _lock:
        found = _found(groups)
    left_out = ((g.launch.name, why) for g, why in zip(groups, found, strict=True) if why)
    return Validation(len(groups), tuple(left_out))


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


def _found(groups: Sequence[Group]) -> list[str]:
    """Reasons why buffers can not be validated; "" for one that is right. Raises WrongPlan."""
    keys = [g.key for g in groups]
    new: dict[str, tuple[Group, list[Node]]] = {}
    texts: dict[int, str] = {}
    for i, (group, key) in enumerate(zip(groups, keys, strict=True)):
        if key not in _by_node.setdefault(group.node, {}):
            cone = group.cone()
            texts[i] = hashlib.sha256(group.text(cone).encode()).hexdigest()
            if texts[i] not in _by_text:
                new.setdefault(texts[i], (group, cone))
    deep = _validated(new) if new else set()
    for i, text in texts.items():
        if text not in deep:
            _by_node[groups[i].node][keys[i]] = _by_text[text]
    return [
        _DEEP if texts.get(i) in deep else _by_node[g.node][key]
        for i, (g, key) in enumerate(zip(groups, keys, strict=True))
    ]


def _validated(new: Mapping[str, tuple[Group, list[Node]]]) -> set[str]:
    """Learn what is not known in this process: from disk, where a plan had all of it, or by
    validating each. Returns those for which this caller's stack was too deep: another's may do.
    """
    cache, key = _cache_at(cache_dir() / "validated"), _key(new)
    kept = cache.get(key)
    if kept is not None:
        _by_text.update(zip(new, kept.decode().split("\n"), strict=True))
        return set()
    deep = set()
    for text, (group, cone) in new.items():
        try:
            validate_group(group, cone)
            _by_text[text] = ""
        except Unvalidated as error:
            _by_text[text] = " ".join(str(error).split())
        except RecursionError:
            deep.add(text)
    if not deep:
        cache.put(key, "\n".join(_by_text[text] for text in new).encode())
    return deep


@lru_cache(maxsize=2)
def _cache_at(directory: Path) -> ObjectCache:
    """Apart from objects, which are many: a process that writes looks at all of them."""
    return ObjectCache(directory)


def _key(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join((f"validated plan {VALIDATION}", *texts)).encode()).hexdigest()
