"""The reference device: the interpreter."""
