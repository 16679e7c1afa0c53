"""What a gradient tells about the data it was computed from, and what hides it.

gradients   what an attacker sees of a program, and the same gradients in PyTorch
attack      one call for the attacks on images
dlg         Deep Leakage from Gradients: match the gradients by L-BFGS
idlg        labels from the gradient of the last layer
cosine      match the direction of the gradients, with a prior for images
analytic    read the input of a linear layer off its gradient
text        tokens from the gradients of a transformer
defences    noise, pruning, rounding, clipping
score       how much was recovered
strip       pictures side by side
"""
