"""PTX stands in one table: what a kernel's text has of it is a wrapper that is held to its twin."""

import re

from tunegrad.render.cuda import CONVERSIONS, CUDA, WRAPPERS


def test_every_helper_with_ptx_is_a_wrapper():
    texts = "\n".join(w.text for w in WRAPPERS.values())
    inline = [name for name, text in CUDA.helpers.items() if re.search(r"\basm\b", text)]
    assert set(inline) <= set(CONVERSIONS)
    for name in CONVERSIONS:
        (line,) = (x for x in CUDA.helpers[name].splitlines() if not x.startswith("#"))
        assert line in texts
