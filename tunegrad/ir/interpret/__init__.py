"""The meaning of graphs, kernels and programs, in numpy: the oracle of everything else."""
