"""What language models are trained for: losses, and models with inputs by name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import FrontendError

IGNORED = -100  # the label of a position that does not count


def token_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of scores [batch, length, classes] for labels [batch, length], on average.

    Positions labelled -100 do not count. For token classification and masked language models.
    """
    return F.cross_entropy(scores.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)


def causal_lm_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The same for a model that predicts the next token: `labels` are the ids themselves.

    Position i is compared with label i + 1, as in Hugging Face's models. The scores stay whole, and
    the last position has a label of -100.
    """
    last = torch.full_like(labels[..., :1], IGNORED)
    return token_loss(scores, torch.cat([labels[..., 1:], last], dim=-1))


class Task(nn.Module):
    """A model of transformers that takes its inputs by name, in the order given here.

    Its output is the model's scores (`logits`) or, without a head, the vectors of all positions.
    """

    def __init__(
        self, model: nn.Module, inputs: Sequence[str] = ("input_ids", "attention_mask")
    ) -> None:
        super().__init__()
        if isinstance(inputs, str):
            raise FrontendError(
                f"inputs={inputs!r} is one name, not a sequence of names",
                try_=f"inputs=({inputs!r},)",
            )
        self.model = model
        self.inputs = tuple(inputs)

    def forward(self, *given: Tensor) -> Tensor:
        if len(given) != len(self.inputs):
            raise FrontendError(
                f"the task has {len(self.inputs)} inputs, got {len(given)}",
                why=", ".join(self.inputs),
            )
        output = self.model(**dict(zip(self.inputs, given, strict=True)))
        found: Tensor = output.logits if "logits" in output else output.last_hidden_state
        return found


class Pairs(nn.Module):
    """An encoder that learns which sentences belong together, from the others in a batch.

    Sentence i of the first half of the batch belongs to sentence i of the second. Inputs are ids
    and attention masks [2n, length]; scores are [n, n], cosines times `scale`, so that the label of
    row i is i and the loss is cross-entropy (arXiv:1807.03748).
    """

    def __init__(self, encoder: nn.Module, scale: float = 20.0) -> None:
        super().__init__()
        self.encoder = encoder
        self.scale = scale

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        left, right = self.embed(ids, mask).chunk(2)
        return left @ right.T * self.scale

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Sentences as vectors of length one: the mean of their positions."""
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        counted = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * counted).sum(1) / counted.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=-1)
