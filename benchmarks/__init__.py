"""Benchmarks: tunegrad next to its peers, interleaved, on this machine.

Not shipped; see ``benchmarks/README.md``.
"""
