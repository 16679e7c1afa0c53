"""What each layer alone can lose: accuracy over the share of its weights that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ..common.plot import percent_svg
from ..common.progress import Progress, bar
from .iterate import Evaluate, accuracy
from .magnitude import check_share, largest
from .store import Results, checksum
from .tables import aligned
from .weights import Layers, check_finite, finish, flat, weights

SHARES = (0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)


@dataclass(frozen=True)
class Sensitivity:
    """Accuracy of the whole model by layer and by the share of that layer that is kept."""

    base: float
    rows: Mapping[str, Mapping[float, float]]

    def __str__(self) -> str:
        shares = list(next(iter(self.rows.values())))
        lines = [("kept", *(f"{100 * share:g} %" for share in shares))]
        lines += [(name, *(f"{row[s]:.2f}" for s in shares)) for name, row in self.rows.items()]
        return f"{aligned(lines)}\nunpruned: {self.base:.2f}"

    def svg(self, title: str = "Sensitivity to pruning") -> str:
        curves = {
            name: sorted((100 * share, found) for share, found in row.items())
            for name, row in self.rows.items()
        }
        words = f"one layer pruned, without retraining; unpruned: {self.base:.2f} %"
        return percent_svg(curves, title, words, "weights kept in that layer, %", self.base)

    def shares(self, lost: float = 1.0) -> dict[str, float]:
        """The least share of each layer at which the accuracy is at most `lost` points lower.

        As a scope for `prune`. Layers add up: all of them together lose more.
        """
        return {
            name: min((s for s, found in row.items() if self.base - found <= lost), default=1.0)
            for name, row in self.rows.items()
        }


def sensitivity(
    model: nn.Module,
    evaluate: Evaluate,
    ratios: Sequence[float] = SHARES,
    *,
    layers: Layers = None,
    folder: str | Path | None = None,
    progress: bool | Progress | None = None,
) -> Sensitivity:
    """Prune one layer at a time to each share, evaluate, and restore it.

    `ratios` are the shares that are kept. At least one weight is. The model is unchanged
    afterwards. With a folder, a scan that was interrupted goes on where it was.
    """
    for share in ratios:
        check_share(share, "a ratio")
    shares = sorted(dict.fromkeys(map(float, ratios)), reverse=True)
    finish(model)
    found = weights(model, layers)
    check_finite(found)
    path = None if folder is None else Path(folder) / "sensitivity.json"
    results = Results(path, {"model": checksum(model)})
    if "base" not in results:
        results.put("base", accuracy(evaluate, model))
    with bar(progress) as show:
        done, total = 0, len(found) * len(shares)
        show("sensitivity", done, total)
        for name, weight in found.items():
            for share in shares:
                key = f"{name} {share!r}"
                if key not in results:
                    with lowered(weight.tensor, share):
                        results.put(key, accuracy(evaluate, model))
                done += 1
                show("sensitivity", done, total)
    rows = {name: {s: float(results[f"{name} {s!r}"]) for s in shares} for name in found}
    return Sensitivity(float(results["base"]), rows)


class lowered:
    """A weight with its smallest numbers zero, for a while."""

    def __init__(self, tensor: nn.Parameter, share: float) -> None:
        self.tensor, self.share = tensor, share

    def __enter__(self) -> None:
        self.saved = self.tensor.detach().clone()
        values = np.abs(flat(self.saved))
        count = max(1, int(self.share * len(values) + 0.5))
        drop = torch.from_numpy(~largest(values, count)).view(self.tensor.shape)
        with torch.no_grad():
            self.tensor.masked_fill_(drop.to(self.tensor.device), 0.0)

    def __exit__(self, *_: object) -> None:
        with torch.no_grad():
            self.tensor.copy_(self.saved)
