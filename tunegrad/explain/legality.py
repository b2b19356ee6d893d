"""Check of a file's action texts on this machine, by the kernels' own texts.

    row  -->  the machine's fields  -->  this machine with so many threads, or another one: unknown
         -->  the kernel's text     -->  the kernel again, or a text that is none: unknown
         -->  the actions           -->  applied to its loop tree: legal, or the broken rule

The texts are a stranger's. What one row may cost is bounded by the kernel parser and by the number
of actions, what a file may cost by a time after which rows are taken as they are: what is not legal
is never run, as loading and tuning apply the actions themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic

from tunegrad import devices
from tunegrad.db import Claim, Finding, actions_fault
from tunegrad.devices import Device
from tunegrad.errors import DeviceError, IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.parse_kernel import read_back
from tunegrad.ir.target import Target
from tunegrad.ir.variants import variants_of
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.trial import Fingerprint

LONGEST_S = 60.0
"""Checking a file ends after this long; a schedule takes a millisecond, the largest 0.2 s."""

OTHER_MACHINE = "of another machine"
OTHER_SPACE = "of another space version"
NO_KERNEL = "the text does not parse as a kernel"
ENDED = f"the {LONGEST_S:g} s for it were over"

_KERNELS = 512
"""Kernels that are remembered: a file has a model's rows together, of a hundred at most."""

_THREADS = re.compile(r"[1-9][0-9]{0,5}")
_SHOWN = 300


@dataclass(slots=True)
class Legality:
    """A rule for ``import_store``, of one file.

    Mutable: it remembers kernels, machines and the time that it took.

    ``device`` is what rows may be of, for a number of threads; by default the CPU, and what a row's
    machine names.
    """

    device: Callable[[str, int | None], Device] = devices.open
    clock: Callable[[], float] = monotonic
    spent_s: float = 0.0
    targets: dict[Fingerprint, Target | None] = field(default_factory=dict)
    kernels: Callable[[str], Kernel | None] = field(
        default_factory=lambda: lru_cache(_KERNELS)(read_back)
    )

    def __call__(self, claim: Claim) -> Finding:
        """The fault of a row's action text or choice, or why that can not be told."""
        if claim.kind == "schedule" and (fault := actions_fault(claim.actions)):
            return Finding(fault=fault)
        if claim.space_version != SPACE_VERSION:
            return Finding(unchecked=OTHER_SPACE)
        if self.spent_s >= LONGEST_S:
            return Finding(unchecked=ENDED)
        began_s = self.clock()
        try:
            return self._verdict(claim)
        finally:
            self.spent_s += self.clock() - began_s

    def _verdict(self, claim: Claim) -> Finding:
        target = self._target(claim.machine)
        if target is None:
            return Finding(unchecked=OTHER_MACHINE)
        kernel = self.kernels(claim.kernel_text)
        if claim.kind in ("images", "cut"):
            return (
                Finding(fault="must be a variant, as the text is a kernel's")
                if kernel
                else Finding()
            )
        if kernel is None:
            return Finding(unchecked=NO_KERNEL)
        if claim.kind == "variant":
            names = variants_of(kernel)
            known = f"must be a variant of this kernel: {', '.join(names)}"
            return Finding() if claim.actions in names else Finding(fault=known)
        try:
            Space(kernel, target).tree(Schedule.parse(claim.actions))
        except IllegalAction as error:
            return Finding(fault=f"must be legal here: {' '.join(str(error).split())[:_SHOWN]}")
        return Finding()

    def _target(self, machine: Fingerprint) -> Target | None:
        """This machine's target with the fingerprint's threads; None when it is another machine."""
        if machine not in self.targets:
            here = device_of(machine, self.device)
            self.targets[machine] = here.target if here else None
        return self.targets[machine]


def device_of(
    machine: Fingerprint, opened: Callable[[str, int | None], Device] = devices.open
) -> Device | None:
    """The device of this machine that has a fingerprint; None where that is of another one."""
    fields = dict(machine.fields)
    found = _THREADS.fullmatch(fields.get("threads", ""))
    try:
        here = opened(fields.get("device", ""), int(found[0]) if found else None)
    except DeviceError:
        return None
    return here if here.fingerprint(fields.get("numerics", "")) == machine else None
