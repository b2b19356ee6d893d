"""The loops of a tiled kernel, by what each is for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Nest", "axis_of"]


@dataclass(frozen=True, slots=True)
class Nest:
    """Loop names by role, outer before inner; "" where there is none.

    ``k`` is the outer block of the longest reduce axis, ``others`` are shared axes that are in no
    register tile, ``registers`` the loops of the tile: rows, vectors, lanes.
    """

    k: str
    others: tuple[tuple[str, str], ...]
    rows: tuple[str, str]
    lanes: tuple[str, str]
    reduces: tuple[str, ...]
    registers: tuple[str, str, str]

    @property
    def tile(self) -> list[str]:
        """The loops of the register tile that there are."""
        return [x for x in self.registers if x]


def axis_of(loop: str) -> str:
    """The axis that a loop is a level of."""
    return loop.rstrip("0123456789")
