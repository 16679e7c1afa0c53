"""Install the frameworks that whet is measured against, each into an environment of its own.

    python -m benchmarks.step.peers.install             into .venv-peers, where the study looks
    python -m benchmarks.step.peers.install FOLDER      elsewhere: set the variables that it prints
    python -m benchmarks.step.peers.install FOLDER tf   some environments only

Their requirements contradict each other, hence several. About 5 GB in all.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / ".venv-peers"

# Each list is one call of pip. torch goes first and alone, as a looser request would bring CUDA.
ENVIRONMENTS = {
    "jax": [["jax", "tinygrad"]],
    "tf": [["tensorflow"]],
    "ort": [
        ["torch==2.13.0"],
        ["onnxruntime-training==1.19.2", "onnx==1.16.2", "numpy<2"],
    ],
}


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        print(f"-- {name}: {', '.join(word for words in ENVIRONMENTS[name] for word in words)}")
        venv.create(folder / name, with_pip=True)
        python = folder / name / "bin" / "python"
        for words in ENVIRONMENTS[name]:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)
        if folder != FOLDER:
            print(f"export WHET_PEER_PYTHON_{name.upper()}={python}")


if __name__ == "__main__":
    asked = sys.argv[2:] or list(ENVIRONMENTS)
    if unknown := [name for name in asked if name not in ENVIRONMENTS]:
        raise SystemExit(f"there is no {unknown[0]!r}; there are: {', '.join(ENVIRONMENTS)}")
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else FOLDER, asked)
