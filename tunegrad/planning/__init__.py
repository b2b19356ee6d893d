"""From a graph to the schedule of kernels that runs: forms of images, cuts, variants, as the store
has decided.
"""
