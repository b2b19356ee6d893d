"""The CPU as a device: native kernels on a team of threads."""
