"""Rewrites of graphs before they are fused: folding, narrower and packed numbers, repeats."""
