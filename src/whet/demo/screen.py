"""Terminal output of the demos."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

console = Console(highlight=False, soft_wrap=True)
say = console.print


class Steps:
    """A progress bar over steps; the loss, if there is one, is smoothed over some ten steps.

    A transient bar is cleared at the end, and not shown where nothing can be cleared.
    """

    def __init__(self, label: str, count: int, stays: bool = True) -> None:
        self.bar = Progress(
            TextColumn(f"  {label}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeElapsedColumn(),
            console=console,
            transient=not stays,
            disable=not (stays or console.is_terminal),
        )
        self.task = self.bar.add_task("", total=count, loss="")
        self.smooth: float | None = None

    def __enter__(self) -> Steps:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def done(self, loss: float | None = None, more: str = "") -> None:
        """One more step, and what else there is to say about it."""
        if loss is not None:
            self.smooth = loss if self.smooth is None else 0.9 * self.smooth + 0.1 * loss
        shown = "" if self.smooth is None else f"loss {self.smooth:.3f}"
        shown = ", ".join(part for part in (shown, more) if part)
        self.bar.update(self.task, advance=1, loss=shown)
