"""A whole model as a value: what a session holds, compares and sends, where the process that runs
it holds code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.runtime import Argument

__all__ = ["Compiled", "WholeModel"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of compiling a schedule: the hash of its program, or the error."""

    program: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class WholeModel:
    """A plan with the action text of every kernel by key; ``graph`` are the nodes that it computes,
    none where nothing but its kernels' own verification says what that is.

    Two plans of one graph (other forms of images, edges, variants) have the same ``graph``, and the
    same outputs.
    """

    name: str
    graph: tuple[Node, ...]
    plan: LaunchPlan
    inputs: tuple[Argument, ...]
    actions: Mapping[str, str]

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants of its plan."""
        return sum(b.nbytes for b in self.plan.buffers if b.role == "const")

    @property
    def output_bytes(self) -> int:
        """Bytes of the outputs of its plan."""
        return sum(self.plan.buffers[i].nbytes for i in self.plan.outputs)
