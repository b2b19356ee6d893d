"""Running models: with the stored winners, never searching, never writing to the store.

    model   -->  graph   -->   constants folded   -->   schedule of kernels
    kernel  -->  stored winner, a near one, or the default   -->   code (from the cache, or
                                                                   compiled)

All of it is bound to memory once; then numpy in, one native call, numpy out.
"""

from tunegrad.inference.choosing import Choice, OnMiss, choices, compiled_choice, stale
from tunegrad.inference.loaded import LoadedModel
from tunegrad.inference.loading import StorePath, compile, load, measured_deviation  # noqa: A004
from tunegrad.inference.process import process_compiler
from tunegrad.inference.realizing import realize

__all__ = [
    "Choice",
    "LoadedModel",
    "OnMiss",
    "StorePath",
    "choices",
    "compile",
    "compiled_choice",
    "load",
    "measured_deviation",
    "process_compiler",
    "realize",
    "stale",
]
