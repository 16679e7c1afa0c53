"""Bring models in: `model.py` says what a front end gives, `torch/` is the one for PyTorch."""
