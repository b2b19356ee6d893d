"""CUDA devices: programs as CUDA C++, compiled by NVRTC, loaded and launched by the driver."""
