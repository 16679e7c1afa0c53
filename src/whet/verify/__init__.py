"""Programs against PyTorch, and integer programs against NumPy to the bit."""
