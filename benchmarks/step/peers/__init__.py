"""The programs that the step study measures: each trains the same network on the same batch.

A peer is a module with `prepare(case, threads, variant)`, which gives a function that does one
training step and returns its loss. It runs in a process of its own (`worker.py`), with the Python
in which its framework is installed (`install.py` makes those).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from .install import FOLDER

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Peer:
    title: str
    module: str
    variant: str = ""
    environment: str = ""  # one of install.py's, or "" for the Python that runs the study

    def python(self) -> str:
        """$WHET_PEER_PYTHON_TF, what install.py made, or this Python."""
        if found := os.environ.get(f"WHET_PEER_PYTHON_{self.environment.upper()}"):
            return found
        made = FOLDER / self.environment / "bin" / "python"
        return str(made) if self.environment and made.exists() else sys.executable


PEERS = {
    "torch": Peer("PyTorch", "torch_peer", "channels_last"),
    "nchw": Peer("PyTorch NCHW", "torch_peer", "contiguous_format"),
    "compile": Peer("torch.compile", "torch_peer", "compile"),
    "jax": Peer("JAX", "jax_peer", environment="jax"),
    "tf": Peer("TensorFlow", "tf_peer", environment="tf"),
    "litert": Peer("LiteRT", "litert_peer", environment="tf"),
    "ort": Peer("ONNX Runtime", "ort_peer", environment="ort"),
    "tinygrad": Peer("tinygrad", "tinygrad_peer", environment="jax"),
    "portable": Peer("whet portable", "whet_peer", "portable"),
    "whet": Peer("whet", "whet_peer"),
    "int8": Peer("whet int8", "whet_peer", "int8"),
}
