"""Draw the import graph between the packages of whet and print its figures.

python tools/import_graph.py               draw docs/design/packages.svg
python tools/import_graph.py --tree DIR    print the figures of another checkout
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from imports import ROOT, Uses, cycles, files_of, module_graph, own, package_of, read_imports
from whet.report.svg import GREY, INK, element, number, page, rect, text, tooltip

PICTURE = ROOT.parents[1] / "docs" / "design" / "packages.svg"
LATE = "#b3261e"  # the colour of late imports
BOX = (92.0, 26.0)
GAP = (26.0, 26.0)  # between boxes, between rows
LANE = 16.0  # the width of an arrow that passes a row
TOP, MARGIN = 76.0, 40.0

Point = tuple[float, float]
Node = tuple[str, ...]  # (package,), or (from, to, row) where an arrow passes a row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, help="another checkout; draws nothing")
    asked = parser.parse_args()
    if asked.tree is None:
        PICTURE.write_text(picture())
        print(f"drew {PICTURE.relative_to(ROOT.parents[1])}")
    print(figures(ROOT if asked.tree is None else asked.tree.resolve() / "src" / "whet"))


def figures(root: Path = ROOT) -> str:
    """How many modules import each other, and the cycles among them."""
    uses = {late: module_graph(late, root) for late in (False, True)}
    edges = {late: sum(map(len, graph.values())) for late, graph in uses.items()}
    found = cycles(uses[True])
    lines = [
        f"modules                             {len(uses[True]):>4}",
        f"imports between modules             {edges[False]:>4}",
        f"  with those inside functions       {edges[True]:>4}",
        f"import-time cycles                  {len(cycles(uses[False])):>4}",
        f"cycles with late imports            {len(found):>4}",
        f"  modules in the largest            {len(found[0]) if found else 0:>4}",
    ]
    for cycle in found:
        lines += ["", f"{len(cycle)} modules that import each other:"]
        lines += [f"  {module}" for module in cycle]
    return "\n".join(lines)


# Which packages import which ---------------------------------------------------------------------


def package_graph(late: bool, root: Path = ROOT) -> dict[str, set[str]]:
    """Imports between packages: those at import time, or those that exist only in functions."""
    imports = [i for i in own(read_imports(root)) if i.package != i.target_package]
    uses: dict[bool, dict[str, set[str]]] = {
        kind: {package_of(file, root): set() for file in files_of(root)} for kind in (False, True)
    }
    for i in imports:
        uses[i.late][i.package].add(i.target_package)
    if late:
        return {name: uses[True][name] - uses[False][name] for name in uses[True]}
    return uses[False]


def reachable(uses: Uses, start: Iterable[str]) -> set[str]:
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += uses[name]
    return found


def direct(uses: Uses) -> dict[str, set[str]]:
    """Without the imports of what an imported package imports as well."""
    return {
        name: {t for t in targets if t not in reachable(uses, targets - {t})}
        for name, targets in uses.items()
    }


def rows_of(uses: Uses) -> dict[str, int]:
    """The row of each package: one below the lowest of those that import it."""
    rows: dict[str, int] = {}

    def row(name: str) -> int:
        if name not in rows:
            above = [user for user, targets in uses.items() if name in targets]
            rows[name] = max((row(user) + 1 for user in above), default=0)
        return rows[name]

    return {name: row(name) for name in uses}


# The picture -------------------------------------------------------------------------------------


def picture() -> str:
    everything, late = package_graph(late=False), package_graph(late=True)
    uses, rows = direct(everything), rows_of(everything)
    paths = {(a, b): path(a, b, rows) for a, targets in uses.items() for b in sorted(targets)}
    levels = ordered(rows, paths.values())
    at = positions(levels)
    width = max(x for x, _ in at.values()) + BOX[0] / 2 + MARGIN
    height = TOP + len(levels) * (BOX[1] + GAP[1]) + MARGIN / 2
    parts = [arrow([at[node] for node in nodes]) for nodes in paths.values()]
    outward = sorted(
        (a, b) for a, targets in late.items() for b in targets if a in reachable(everything, [b])
    )
    for i, (a, b) in enumerate(outward):
        parts.append(bow(at[(a,)], at[(b,)], width + 10 + 26 * i))
    width += 20 + 26 * len(outward) if outward else 0
    for name in sorted(rows):
        parts.append(box(name, at[(name,)], sorted(everything[name])))
    words = "An arrow points at what a package imports; imports implied by others are left out."
    if outward:
        words += " Dashed: the other way, inside functions."
    return page("The packages of whet", words, parts, max(width, 800), height)


def path(start: str, end: str, rows: Mapping[str, int]) -> list[Node]:
    """The boxes of an arrow and the points where it passes the rows between them."""
    between = range(rows[start] + 1, rows[end])
    return [(start,), *((start, end, str(row)) for row in between), (end,)]


def ordered(rows: Mapping[str, int], paths: Iterable[list[Node]]) -> list[list[Node]]:
    """The nodes of every row from left to right, each near those that it is joined with."""
    paths = list(paths)
    level_of = {(name,): row for name, row in rows.items()}
    level_of |= {node: int(node[2]) for nodes in paths for node in nodes if len(node) == 3}
    levels: list[list[Node]] = [[] for _ in range(max(level_of.values()) + 1)]
    for node in sorted(level_of):
        levels[level_of[node]].append(node)
    joined: dict[Node, list[Node]] = defaultdict(list)
    for nodes in paths:
        for a, b in pairwise(nodes):
            joined[a].append(b)
            joined[b].append(a)
    for _ in range(24):  # sweeps down and up; they settle long before
        for step in (1, -1):
            for level in levels[::step]:
                at = positions(levels)
                level.sort(key=lambda node: centre(node, joined[node], at))
    return levels


def centre(node: Node, others: list[Node], at: Mapping[Node, Point]) -> tuple[float, Node]:
    return (sum(at[n][0] for n in others) / len(others) if others else at[node][0], node)


def positions(levels: list[list[Node]]) -> dict[Node, Point]:
    """The middle of every node; rows are centred over each other."""
    widths = [sum(room(node) for node in level) for level in levels]
    at = {}
    for i, level in enumerate(levels):
        x = MARGIN + (max(widths) - widths[i]) / 2
        for node in level:
            at[node] = (x + room(node) / 2, TOP + i * (BOX[1] + GAP[1]) + BOX[1] / 2)
            x += room(node)
    return at


def room(node: Node) -> float:
    return BOX[0] + GAP[0] if len(node) == 1 else LANE


def box(name: str, at: Point, imports: list[str]) -> str:
    width, height = BOX
    x, y = at[0] - width / 2, at[1] - height / 2
    shown = "whet" if name == "__init__" else name
    words = f"{shown} imports {', '.join(imports) or 'no other package'}"
    frame = rect(x, y, width, height, rx=5, fill="#f4f6f8", stroke=GREY)
    label = text(at[0], at[1] + 4, shown, 12, text_anchor="middle")
    return element("g", tooltip(words), frame, label)


def arrow(points: list[Point]) -> str:
    """From the lower edge of the first box to the upper edge of the last."""
    (x0, y0), *between, (x1, y1) = points
    half, tip = BOX[1] / 2, 5.0
    stops = [(x0, y0 + half), *corners(between), (x1, y1 - half - tip)]
    words = f"M {number(stops[0][0])} {number(stops[0][1])}"
    for (ax, ay), (bx, by) in pairwise(stops):
        middle = (ay + by) / 2
        words += " C " + " ".join(map(number, (ax, middle, bx, middle, bx, by)))
    return line(words, INK) + head((x1, y1 - half), INK)


def corners(points: Iterable[Point]) -> Iterator[Point]:
    """Where an arrow passes a row it runs straight down beside the boxes."""
    for x, y in points:
        yield (x, y - BOX[1] / 2)
        yield (x, y + BOX[1] / 2)


def bow(start: Point, end: Point, far: float) -> str:
    """An arrow upwards, on the right of everything."""
    (x0, y0), (x1, y1) = (start[0] + BOX[0] / 2, start[1]), (end[0] + BOX[0] / 2, end[1])
    parts = (x0, y0, far, y0, far, y1, x1 + 6, y1)
    words = "M {} {} C {} {} {} {} {} {}".format(*map(number, parts))
    tip = element("path", d=triangle((x1, y1), (7, 4), (7, -4)), fill=LATE)
    return line(words, LATE, stroke_dasharray="5 4") + tip


def line(words: str, color: str, **more: str) -> str:
    return element("path", d=words, fill="none", stroke=color, stroke_width=1.1, **more)


def head(at: Point, color: str) -> str:
    return element("path", d=triangle(at, (-4, -7), (4, -7)), fill=color)


def triangle(at: Point, *others: Point) -> str:
    (x, y), words = at, []
    for dx, dy in ((0.0, 0.0), *others):
        words.append(f"{number(x + dx)} {number(y + dy)}")
    return f"M {' L '.join(words)} Z"


if __name__ == "__main__":
    main()
