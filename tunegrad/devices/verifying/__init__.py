"""Verification of a kernel: its inputs, its expected outputs, and the comparison of the two."""
