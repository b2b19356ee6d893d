"""Renderers: programs as LLVM IR or C-family text."""
