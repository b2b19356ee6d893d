# mypy: implicit-reexport
"""Running models: with the stored winners, never searching, never writing to the store.

    model   -->  graph  -->  constants folded  -->  plan of launches
    kernel  -->  stored winner, a near one, or the default  -->  code (cached, or compiled)

All of it is bound to memory once; then numpy in, one native call, numpy out.

Its modules are imported when one of its names is asked for: computing a tensor loads no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .choosing import Choice, OnMiss, choices, compiled_choice, process_compiler, stale
    from .loaded import LoadedModel
    from .loading import UNITS, StorePath, compile, load, measured_deviation
    from .quantising import Quantized, quantize
    from .realizing import realize
    from .training import TrainStep
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
