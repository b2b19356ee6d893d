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
    from .graphs import Unvalidated as Unvalidated
    from .plans import Group as Group
    from .plans import groups_of as groups_of
    from .plans import validate_group as validate_group
    from .rewrites import Validation as Validation
    from .rewrites import check_rewrite as check_rewrite
    from .rewrites import validated as validated
    from .rewrites import validated_guards as validated_guards
    from .rewrites import validated_rewrite as validated_rewrite
    from .rewrites import validation as validation
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "graphs": "Unvalidated",
            "plans": "Group groups_of validate_group",
            "rewrites": (
                "Validation check_rewrite validated validated_guards validated_rewrite validation"
            ),
        },
    )
