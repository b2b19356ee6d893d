"""Reports on code: what a kernel's machine code holds and takes, and a model that is only
compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CodeFacts", "CompiledReport", "CompiledRow", "KernelResources"]


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """Machine code of a kernel: its hot loop (all of it, where there is no loop), and what the
    whole spills.

    ``vector_bits`` is the width of the vectors that are multiplied and added; ``loads`` and
    ``stores`` count vector instructions with a memory operand; ``spills`` those of them on the
    stack.
    """

    vector_bits: int
    fmas: int
    loads: int
    stores: int
    spills: int
    calls: int
    instructions: int
    kernel_spills: int
    kernel_instructions: int


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Resources that a kernel takes by its compiler: registers and bytes of spills of one
    work-item, bytes that a group shares.

    ``unit_groups`` is how many groups one unit of the device runs at a time for all that, and
    ``occupancy`` their work-items in proportion to the most that it holds; 0 where not known.
    """

    registers: int
    spilled_bytes: int
    shared_bytes: int
    unit_groups: int = 0
    occupancy: float = 0.0


@dataclass(frozen=True, slots=True)
class CompiledRow:
    """One distinct kernel, compiled by its default schedule and not run.

    ``resources`` are None where the compiler does not tell; ``error`` is its words where it
    refused.
    """

    kernel: str
    key: str
    uses: int
    actions: str
    groups: int
    items: int
    compile_s: float
    resources: KernelResources | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CompiledReport:
    """A model on a device that runs nothing: ``seconds`` of lowering and compiling together."""

    model: str
    device: str
    seconds: float
    rows: tuple[CompiledRow, ...]

    @property
    def failed(self) -> int:
        """Number of kernels that did not compile."""
        return sum(bool(row.error) for row in self.rows)
