"""A small encoder in the style of BERT, to attack: random weights, words as tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IGNORED = -100  # the label of a position that the loss leaves out


class Encoder(nn.Module):
    """Embeddings of words and places, layer norm, attention layers, and a prediction per place."""

    def __init__(
        self,
        vocabulary: int = 1000,
        length: int = 12,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.empty(length, width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.eval()

    @property
    def length(self) -> int:
        return len(self.place)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, length]; logits [batch * length, vocabulary]."""
        return self.predict(self.embed(tokens))

    def predict(self, words: Tensor) -> Tensor:
        """From the embeddings of words."""
        x = self.first_input(words)
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.head(x).flatten(0, 1)
        return found

    def first_input(self, words: Tensor) -> Tensor:
        """What the first attention layer is given."""
        found: Tensor = self.norm(words + self.place[: words.shape[-2]])
        return found


def masked_step(tokens: Tensor, at: list[int], mask: int) -> tuple[Tensor, Tensor]:
    """Input and labels of a step of masked language modelling: hidden words are to be predicted."""
    hidden, labels = tokens.clone(), torch.full_like(tokens, IGNORED)
    hidden[:, at] = mask
    labels[:, at] = tokens[:, at]
    return hidden, labels.flatten()
