"""What a gradient tells about the data it was computed from, and what hides it.

gradients   what an attacker sees of a program, and the same gradients in PyTorch
attack      one call for the attacks on images
dlg         Deep Leakage from Gradients: match the gradients by L-BFGS
idlg        labels from the gradient of the last layer
cosine      match the direction of the gradients, with a prior for images
analytic    read the input of a linear layer off its gradient
text        words from the gradients of a transformer
identify    what the gradients determine, whatever the optimiser
defences    noise, pruning, rounding, clipping
score       how much was recovered
strip       pictures side by side
"""

from . import defences
from .attack import attack
from .encoder import Encoder, masked_step
from .gradients import Observation, differentiable, observe
from .identify import Determined, determined
from .recovered import Recovered, Snapshot
from .score import Score, score
from .strip import over_iterations, strip
from .text import RecoveredText, recover_text, recovered_tokens

__all__ = [
    "Determined", "Encoder", "Observation", "Recovered", "RecoveredText", "Score", "Snapshot",
    "attack", "defences", "determined", "differentiable", "masked_step", "observe",
    "over_iterations", "recover_text", "recovered_tokens", "score", "strip",
]  # fmt: skip
