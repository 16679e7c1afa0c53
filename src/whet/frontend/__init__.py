"""Import models: `model.py` defines the result of a front end, `torch/` is the one for PyTorch."""
