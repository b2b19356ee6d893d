"""The forms of a program: graph, kernel, loop tree, program; index algebra, fusion, interpreters,
verifiers.
"""
