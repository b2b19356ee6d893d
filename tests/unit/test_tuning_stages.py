"""What the stages of a session say of its kernels while it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tunegrad.tuning.session import Session


def test_kernels_stand_under_the_names_that_their_searches_have() -> None:
    """Of two kernels of one name a model may run one in the end, which then needs no other name;
    what is known of it is known under the name that it was searched by.
    """
    kept = SimpleNamespace(name="output of conv", key="a" * 32, uses=3)
    stages = Session(
        cast(Any, None), cast(Any, [SimpleNamespace(kernels=(kept,))]), cast(Any, None)
    )
    searches: Any = [
        SimpleNamespace(
            task=SimpleNamespace(name=f"output of conv [{key * 6}]", key=key * 32),
            default_s=2.0,
            best_s=1.0,
            defaults=(SimpleNamespace(text="tile"),),
            texts={"tile"},
        )
        for key in "ba"
    ]
    (standing,) = stages._standings(searches)
    assert (standing.name, standing.key, standing.uses) == ("output of conv [aaaaaa]", kept.key, 3)
