"""The rules of kernels, and proofs that programs have no races."""
