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
audit       attack the update that a program would send, on one page
updates     what that update is; choices, costs: defences by name, and training behind them
words       ids in an audit; verdict, page: findings in words and as HTML
membership  who was trained on; properties: what the data have in common; roc: how well that works
accounting  (epsilon, delta) of clipping and noise, with what it assumes
"""

from . import defences
from .accounting import Account, account, account_table, accounts
from .attack import attack
from .audit import Attempt, Audit, audit
from .choices import defence
from .encoder import Encoder, masked_step
from .gradients import Observation, differentiable, observe
from .identify import Determined, determined
from .membership import (
    alignment_scores,
    confidences,
    lira,
    loss_scores,
    losses,
    norm_scores,
    sample_gradients,
)
from .properties import PropertyAttack
from .recovered import Recovered, Snapshot
from .roc import Rate, Roc, roc_svg
from .score import Score, score
from .strip import over_iterations, strip
from .text import RecoveredText, recover_text, recovered_tokens
from .updates import sent_by

__all__ = [
    "Account", "Attempt", "Audit", "Determined", "Encoder", "Observation", "PropertyAttack",
    "Rate", "Recovered", "RecoveredText", "Roc", "Score", "Snapshot", "account", "account_table",
    "accounts", "alignment_scores", "attack", "audit", "confidences", "defence", "defences",
    "determined", "differentiable", "lira", "loss_scores", "losses", "masked_step", "norm_scores",
    "observe", "over_iterations", "recover_text", "recovered_tokens", "roc_svg",
    "sample_gradients", "score", "sent_by", "strip",
]  # fmt: skip
