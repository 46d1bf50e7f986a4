"""Where tensors are and how they are computed with: device, memory, offload to disk, CUDA graphs, Triton kernels."""
