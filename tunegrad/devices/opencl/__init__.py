"""OpenCL devices, through pyopencl."""
