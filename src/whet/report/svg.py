"""A small writer of SVG: elements as text, a page with a white panel, and plots with axes."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..names import printable

WIDTH, HEIGHT = 1100, 520
INK, GREY, RULE = "#222222", "#666666", "#e4e4e4"
Box = tuple[float, float, float, float]  # x, y, width, height
LETTER = 0.58  # mean width of a sans-serif letter, in font sizes


def number(x: float) -> str:
    """Two decimals are a hundredth of a pixel; the text is the same on every machine."""
    return f"{x:.2f}".rstrip("0").rstrip(".")


def element(tag: str, *children: str, **attributes: str | float) -> str:
    """One element. Children are SVG already; a trailing underscore frees Python's keywords."""
    words = [tag]
    for key, value in attributes.items():
        text = value if isinstance(value, str) else number(value)
        quoted = escape(text).replace('"', "&quot;")
        words.append(f'{key.rstrip("_").replace("_", "-")}="{quoted}"')
    content = "".join(children)
    return f"<{' '.join(words)}>{content}</{tag}>" if content else f"<{' '.join(words)}/>"


def escape(words: str) -> str:
    """Text for XML, which has no place for control characters."""
    return html.escape(printable(words), quote=False)


def text(x: float, y: float, words: str, size: float = 11, **attributes: str | float) -> str:
    return element("text", escape(words), x=x, y=y, font_size=size, **attributes)


def rect(x: float, y: float, width: float, height: float, *inside: str, **more: str | float) -> str:
    return element("rect", *inside, x=x, y=y, width=width, height=height, **more)


def rule(x1: float, y1: float, x2: float, y2: float, color: str, **more: str | float) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=color, **more)


def tooltip(words: str) -> str:
    return element("title", escape(words))


def page(
    title: str, subtitle: str, parts: Iterable[str], width: float = WIDTH, height: float = HEIGHT
) -> str:
    """The whole file, in ASCII; its own white panel keeps it readable on a dark page."""
    body = [
        tooltip(title),
        rect(0, 0, width, height, rx=6, fill="#ffffff"),
        text(20, 28, title, 16, font_weight="bold"),
        text(20, 47, subtitle, 12, fill=GREY),
        *parts,
    ]
    svg = element(
        "svg",
        "\n" + "\n".join(body) + "\n",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        font_family="sans-serif",
        fill=INK,
        role="img",
    )
    return svg.encode("ascii", "xmlcharrefreplace").decode() + "\n"


def legend(x: float, y: float, entries: Iterable[tuple[str, str]]) -> list[str]:
    """Pairs (colour, words) in one row that begins at `x`."""
    parts = []
    for color, words in entries:
        parts += [rect(x, y - 9, 10, 10, fill=color), text(x + 15, y, words)]
        x += 15 + 11 * LETTER * len(words) + 22
    return parts


def ticks(top: float, most: int) -> list[float]:
    """Round numbers from 0 up to `top`, at most `most` steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(top / most))
    step = next(s * power for s in (1, 2, 5, 10, 20) if top / (s * power) <= most)
    return [i * step for i in range(int(top / step) + 1)]


@dataclass(frozen=True)
class Plot:
    """A rectangle of the page with a scale on each side: x in units, y in bytes from below."""

    left: float
    top: float
    width: float
    height: float
    units: int
    bytes: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, unit: float) -> float:
        return self.left + self.width * unit / self.units

    def y(self, byte: float) -> float:
        return self.bottom - self.height * byte / self.bytes

    def frame(self) -> str:
        box = (self.left, self.top, self.width, self.height)
        return rect(*box, class_="plot", fill="none", stroke=GREY, stroke_width=0.8)

    def kib_axis(self, most: int) -> list[str]:
        parts = []
        for tick in ticks(self.bytes / 1024, most):
            y = self.y(1024 * tick)
            parts.append(rule(self.left, y, self.right, y, RULE))
            parts.append(text(self.left - 7, y + 4, f"{tick:,.10g}", text_anchor="end"))
        return parts

    def box(self, x: float, y: float, width: float, height: float) -> Box:
        """The rectangle, wide and high enough to be seen, pushed back inside the plot."""
        width, height = max(width, 0.6), max(height, 0.6)
        x = min(max(x, self.left), self.right - width)
        y = min(max(y, self.top), self.bottom - height)
        return x, y, width, height
