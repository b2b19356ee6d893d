"""Rewrites of graphs before they are fused: narrower and packed numbers, repeats, ranges."""
