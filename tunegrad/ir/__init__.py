"""The forms of a program, a module each: ``graph``, ``kernel``, ``looptree`` and ``program``; with
their dtypes, expressions, index algebra, layouts and targets.

On shelves with a face each: ``fusion`` (a graph to kernels), ``rewrites`` (of graphs, before it),
``variants`` (of kernels), ``validate`` (plans against graphs), ``interpret`` (what forms mean),
``verify`` (rules and proofs), ``text``.
"""
