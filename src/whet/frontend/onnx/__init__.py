"""ONNX files as PyTorch modules."""

from .load import from_onnx

__all__ = ["from_onnx"]
