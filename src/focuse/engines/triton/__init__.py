"""Triton kernels of the GPU engine; only `focuse.engines.gpu` imports them, and only where triton is installed."""
