"""What a training logged: by epoch, as Keras has it, and drawn as curves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BuildError
from ..report.curves import curves_svg
from ..writing import write_whole


@dataclass
class History:
    """`history["loss"][2]` is the loss of the third epoch; `epoch` counts them from 0."""

    history: dict[str, list[float]] = field(default_factory=dict)
    epoch: list[int] = field(default_factory=list)

    def add(self, logs: Mapping[str, float]) -> None:
        self.epoch.append(len(self.epoch))
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)

    @property
    def rows(self) -> list[dict[str, float]]:
        """The logs of each epoch."""
        return [{name: values[i] for name, values in self.history.items()} for i in self.epoch]

    def __repr__(self) -> str:
        last = ", ".join(f"{n} {v[-1]:.4g}" for n, v in self.history.items() if v)
        return f"<History of {len(self.epoch)} epochs: {last}>"

    def svg(self, title: str = "Training") -> str:
        """Curves over epochs; a quantity and that of the validation data share a panel."""
        panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for name, values in self.history.items():
            points = [(i + 1.0, v) for i, v in zip(self.epoch, values, strict=True)]
            if name != "lr":
                panels.setdefault(name.removeprefix("val_"), {})[name] = points
        count = len(self.epoch)
        return curves_svg(panels, title, f"{count} epoch{'s' * (count != 1)}", "epoch")

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str | Path) -> Path:
        """Write numbers to a .json file, or the curves to an .svg file."""
        path = Path(path)
        if path.suffix not in (".json", ".svg"):
            raise BuildError(f"{path} is neither .json nor .svg")
        text = self.svg() if path.suffix == ".svg" else json.dumps(self.as_dict(), indent=1) + "\n"
        try:
            write_whole(path, text)
        except OSError as error:
            raise BuildError(f"cannot write {path}", why=str(error.strerror)) from error
        return path

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has neither NaN nor infinity."""
        return {name: [plain(v) for v in values] for name, values in self.history.items()}


def plain(value: float) -> float | None:
    return value if abs(value) < float("inf") else None  # NaN is not below it either
