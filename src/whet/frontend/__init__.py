"""Bring models in. `torch.py` needs PyTorch; nothing else in whet does."""
