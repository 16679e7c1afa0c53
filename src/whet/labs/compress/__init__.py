"""Make a model small before it is trained on a device: pruning, weight sharing, storage."""
