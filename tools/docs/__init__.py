"""Documents whose blocks are made by running the code.

A page holds ``<!-- run: NAME -->`` ... ``<!-- end -->``; what stands between is what ``NAME``
printed. ``python -m tools.docs`` runs them all and rewrites the pages, ``--check`` compares and
exits 3 where one is old.
"""

from .pages import PAGES, SLOW, rewritten

__all__ = ["PAGES", "SLOW", "rewritten"]
