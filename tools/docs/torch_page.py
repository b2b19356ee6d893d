"""The block of docs/TORCH.md: operators of ATen that are there, by family."""

from __future__ import annotations

from tunegrad.frontend.torch.aten import FAMILIES, TABLE

from .fences import table

__all__ = ["BLOCKS"]


def _operators() -> str:
    rows = [
        (
            family,
            str(len(names)),
            " ".join(f"`{n.removesuffix('.default')}`" for n in sorted(names)),
        )
        for family, names in FAMILIES.items()
    ]
    return f"{len(TABLE)} overloads.\n\n" + table(("family", "overloads", "operators"), rows)


BLOCKS = {"operators": _operators}
