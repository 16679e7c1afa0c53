"""Who takes part in the step study: whet in several modes, and PyTorch training the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RATE = 1e-4  # of AdamW
RANK, ALPHA = 8, 16.0
BLOCKS = "sparse-2"  # the scheme whose parameters PyTorch trains as well


@dataclass(frozen=True)
class Peer:
    """`group` is what trains: full, lora or blocks. Those of a group have the same losses."""

    title: str
    group: str
    scheme: str = ""  # of whet; PyTorch has none
    options: Mapping[str, Any] = field(default_factory=dict)  # of whet.compile, or PyTorch's own
    rounded: bool = False  # computes in fewer bits, so that its losses are near the others' only
    large_only: bool = False  # not measured on the models with random weights

    @property
    def whet(self) -> bool:
        return bool(self.scheme)


# To measure another mode of whet, add a line. What `whet.compile` refuses is a dash with a reason.
PEERS = {
    "torch": Peer("PyTorch", "full"),
    "torch-fused": Peer("PyTorch, fused AdamW", "full", options={"fused": True}, large_only=True),
    "torch-lora": Peer("PyTorch, LoRA", "lora"),
    "torch-blocks": Peer("PyTorch, the same blocks", "blocks"),
    "compile": Peer("torch.compile", "full", options={"compile": True}, large_only=True),
    "compile-lora": Peer(
        "torch.compile, LoRA", "lora", options={"compile": True}, large_only=True
    ),
    "compile-blocks": Peer(
        "torch.compile, the same blocks", "blocks", options={"compile": True}, large_only=True
    ),
    "whet": Peer("whet", "full", "full"),
    "whet-lora": Peer("whet, LoRA", "lora", "lora"),
    "whet-sparse": Peer(f"whet, {BLOCKS}", "blocks", BLOCKS),
    "whet-sparse-gguf": Peer(
        f"whet, {BLOCKS}, blocks of the file", "blocks", BLOCKS, {"frozen": "gguf"},
        large_only=True,
    ),
}  # fmt: skip
