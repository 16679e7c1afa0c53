"""Language models: tokens, tasks and batches of sequences.

tokenizer = whet.llm.Tokenizer.from_gguf(path)     # the one in a model's file
model = whet.models.from_gguf(path, context=64)
ids, labels = whet.llm.pad([tokenizer.encode(text)], 64)
whet.compile(model, (ids,), loss=whet.llm.causal_lm_loss, labels=labels)
"""

from .batches import Padded, pad
from .slices import load_trained, save_trained
from .tasks import Pairs, Task, causal_lm_loss, token_loss
from .tokenizer import Tokenizer

__all__ = [
    "Padded", "Pairs", "Task", "Tokenizer", "causal_lm_loss", "load_trained", "pad", "save_trained",
    "token_loss",
]  # fmt: skip
