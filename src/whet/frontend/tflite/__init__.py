"""TFLite files of int8 networks as PyTorch modules with their scales."""

from .load import from_tflite as from_tflite
