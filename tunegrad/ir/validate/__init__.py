# mypy: implicit-reexport
"""Plans are validated against the graphs that they are of, when they are made.

    graph  --rules, cuts, layouts, variants-->  plan          every buffer that stands for a node:
                                                              its kernels compute that node

Both sides are worked out at drawn elements, in numbers in which no rounding hides a term
(``numbers``). A validated buffer is remembered: in this process by its node and its launches, on
disk by their text, so equal layers cost one, and a second process none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .graphs import Unvalidated
    from .plans import Group, groups_of, validate_group
    from .rewrites import (
        Validation, check_rewrite, validated, validated_guards, validated_rewrite, validation,
    )  # fmt: skip
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
