"""cuda-host: the very CUDA C++ that a GPU gets, built for this CPU and run by fibers."""
