"""Memory of a training step: what each optimisation is worth, and against PyTorch.

python -m benchmarks.memory            everything, a few minutes; writes README.md
python -m benchmarks.memory ladder     the schemes of arXiv:2206.15472, pass by pass
python -m benchmarks.memory int8       the same schemes in int8, measured in the built program
python -m benchmarks.memory resident   peak resident memory of a bare process against PyTorch
python -m benchmarks.memory kept       activations that ResNet-50 keeps at 224 x 224
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.memory.parts import integers, kept, ladder, resident

PAGE = Path(__file__).with_name("README.md")
PARTS = {"ladder": ladder, "int8": integers, "resident": resident, "kept": kept}


def main(names: list[str]) -> None:
    if not set(names) <= PARTS.keys():
        raise SystemExit(__doc__)
    parts = []
    for name in names or PARTS:
        parts.append(PARTS[name]())
        print(parts[-1], flush=True)
    if not names:
        head = "# Memory, measured\n\nMade by `python -m benchmarks.memory`.\n\n"
        PAGE.write_text(head + "\n".join(parts))


if __name__ == "__main__":
    main(sys.argv[1:])
