"""Triton kernels of the fused GPU engine; imported lazily, and only where triton is installed."""
