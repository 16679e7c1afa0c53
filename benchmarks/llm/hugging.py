"""Models of transformers, which takes seconds to import: functions import this when called."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.llm.packages import minilm
from whet.llm import Task


def declare_vision_operators() -> list[torch.library.Library]:
    """transformers imports torchvision, whose C++ part fits one version of torch only.

    Nothing here calls these two operators, but without them the import fails.
    """
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return []
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return [library]
    return []


LIBRARIES = declare_vision_operators()  # they last as long as something holds them

import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class Classifier(nn.Module):
    """A linear layer on the mean of the vectors of a sentence."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, classes)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        counted = mask.unsqueeze(-1).to(hidden.dtype)
        scores: Tensor = self.head((hidden * counted).sum(1) / counted.sum(1).clamp(min=1e-9))
        return scores


def minilm_classifier(classes: int = 2) -> Classifier:
    encoder = transformers.BertModel.from_pretrained(
        minilm(), add_pooling_layer=False, dtype=torch.float32
    )
    return Classifier(encoder, classes).eval()


def minilm_sequence() -> nn.Module:
    """MiniLM as a classifier of `transformers`, whose head is random."""
    torch.manual_seed(0)
    kind = transformers.BertForSequenceClassification
    return Task(kind.from_pretrained(minilm(), dtype=torch.float32), ("input_ids",)).eval()
