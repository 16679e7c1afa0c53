"""The front end for PyTorch: torch.export, then one handler for each aten operator."""
