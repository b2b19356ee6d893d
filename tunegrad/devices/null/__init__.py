"""The null device: compiles for any target and runs nothing."""
