"""A device that somebody added: the recipe of CONTRIBUTING, as small as it gets.

It runs programs by the interpreter, so that all of it is here: the value that travels, and what it
says of itself. An engine of its own would be a second class.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.reference_device import ReferenceDevice
from tunegrad.errors import DeviceError
from tunegrad.ir.target import Rates, Target
from tunegrad.trial import Fingerprint

TARGET = Target(
    "toy", "cpu", "abacus", threads=1, rates=Rates(flops=(("f32", 1e6),), launch_s=1e-3)
)


@dataclass(frozen=True, slots=True)
class ToyDevice(ReferenceDevice):
    """``beads`` is a fact of the machine that changes the answer."""

    target: Target = TARGET
    beads: int = 10

    name = "toy"

    def describe(self) -> str:
        return f"an abacus of {self.beads} beads"

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        fields = {"device": "toy", "arch": "abacus", "beads": str(self.beads), "numerics": numerics}
        return Fingerprint(tuple(sorted(fields.items())))


def toy(part: str, threads: int | None) -> ToyDevice:
    """What the registry calls: ``toy``, or ``toy:20`` for another number of beads."""
    if part and not part.isdigit():
        raise DeviceError(f"device toy:{part}: the part is a number of beads")
    return ToyDevice(beads=int(part or 10))
