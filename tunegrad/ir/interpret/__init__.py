"""The meaning of graphs and kernels, in numpy: the oracle of everything else."""
