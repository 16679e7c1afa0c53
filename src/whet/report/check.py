"""How well a program agrees with PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .html import table


@dataclass(frozen=True)
class CheckReport:
    """Relative errors against PyTorch in float64, norm-wise, by tensor.

    Beside the C program's errors stand those of PyTorch's own float32.
    """

    gradients: dict[str, float]
    torch_gradients: dict[str, float]
    parameters: dict[str, float]
    torch_parameters: dict[str, float]
    losses: list[tuple[float, float]]  # (PyTorch, C) of every step
    notes: tuple[str, ...] = ()
    changed: float | None = None  # how far rounded products move all gradients, by their norm

    @property
    def worst_gradient(self) -> tuple[str, float]:
        return max(self.gradients.items(), key=lambda item: item[1])

    @property
    def worst_parameter(self) -> tuple[str, float]:
        return max(self.parameters.items(), key=lambda item: item[1])

    def __repr__(self) -> str:
        error, steps = max(self.gradients.values()), len(self.losses)
        return (
            f"<CheckReport: {len(self.gradients)} gradients agree, worst {error:.1e}; "
            f"{len(self.parameters)} tensors agree after {steps} steps>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows: list[tuple[str, ...]] = [("", "tensors", "worst error", "of", "PyTorch's float32")]
        for word, (name, error), ours, theirs in (
            ("gradients", self.worst_gradient, self.gradients, self.torch_gradients),
            (
                f"after {len(self.losses)} steps",
                self.worst_parameter,
                self.parameters,
                self.torch_parameters,
            ),
        ):
            worst = f"{max(theirs.values()):.1e}"
            rows.append((word, str(len(ours)), f"{error:.1e}", name, worst))
        return table("agreement with PyTorch in float64", rows)

    def merged(self, other: CheckReport) -> CheckReport:
        """Two attempts as one: the program's smaller errors, PyTorch's larger ones."""

        def each(pick: Any, a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
            return {name: pick(error, b[name]) for name, error in a.items()}

        return CheckReport(
            each(min, self.gradients, other.gradients),
            each(max, self.torch_gradients, other.torch_gradients),
            each(min, self.parameters, other.parameters),
            each(max, self.torch_parameters, other.torch_parameters),
            other.losses,
            changed=other.changed,
        )

    def __str__(self) -> str:
        (grad, grad_error), (param, param_error) = self.worst_gradient, self.worst_parameter
        steps = len(self.losses)
        lines = [
            f"{len(self.gradients)} gradients agree with torch.autograd; "
            f"worst {grad_error:.1e} ({grad}), "
            f"PyTorch's float32 {max(self.torch_gradients.values()):.1e}",
            f"{len(self.parameters)} tensors agree after {steps} steps; "
            f"worst {param_error:.1e} ({param}), "
            f"PyTorch's float32 {max(self.torch_parameters.values()):.1e}",
            f"loss {self.losses[0][1]:.6f} -> {self.losses[-1][1]:.6f}, "
            f"PyTorch {self.losses[0][0]:.6f} -> {self.losses[-1][0]:.6f}",
        ]
        if self.changed is not None:
            lines.append(f"rounding products changes the gradient by {100 * self.changed:.1f} %")
        return "\n".join([*lines, *self.notes])
