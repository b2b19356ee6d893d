"""Rules of each form, and proofs that programs have no races."""
