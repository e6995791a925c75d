"""Fails the test that misused a CUDA stream, a copy or stream-ordered memory."""

__version__ = "0.1.0"
