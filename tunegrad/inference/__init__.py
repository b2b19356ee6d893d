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
    from .choosing import Choice as Choice
    from .choosing import OnMiss as OnMiss
    from .choosing import choices as choices
    from .choosing import compiled_choice as compiled_choice
    from .choosing import process_compiler as process_compiler
    from .choosing import stale as stale
    from .loaded import LoadedModel as LoadedModel
    from .loading import UNITS as UNITS
    from .loading import StorePath as StorePath
    from .loading import compile as compile  # noqa: A004 - the word that every such library uses
    from .loading import load as load
    from .loading import measured_deviation as measured_deviation
    from .quantising import Quantized as Quantized
    from .quantising import quantize as quantize
    from .realizing import realize as realize
    from .training import TrainStep as TrainStep
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "choosing": "Choice OnMiss choices compiled_choice process_compiler stale",
            "loaded": "LoadedModel",
            "loading": "UNITS StorePath compile load measured_deviation",
            "quantising": "Quantized quantize",
            "realizing": "realize",
            "training": "TrainStep",
        },
    )
