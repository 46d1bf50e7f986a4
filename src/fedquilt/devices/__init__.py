"""Devices and memory: device and precision, CUDA graphs, Triton kernels, offload to disk, the C allocator."""
