"""The picture of a federation."""

from __future__ import annotations

from xml.etree import ElementTree

from whet.federated import History, Round, rounds_svg


def history(*accuracies: float, step: int = 1000) -> History:
    rounds = (Round(i, a, 1.0, 1.0, i * step, i * step) for i, a in enumerate(accuracies))
    return History({}, tuple(rounds))


def curves(svg: str) -> list[list[tuple[float, float]]]:
    root = ElementTree.fromstring(svg)
    lines = root.iter("{http://www.w3.org/2000/svg}polyline")
    return [[tuple(map(float, p.split(","))) for p in line.get("points").split()] for line in lines]


def test_curves_are_where_the_numbers_are() -> None:
    svg = rounds_svg({"a": history(0.1, 0.5, 0.9), "b": history(0.1, 0.2, 0.3, step=500)}, "T")
    first, second, bytes_a, bytes_b = curves(svg)
    assert len(first) == 3 and first[0][0] < first[1][0] < first[2][0]
    assert first[0][1] > first[1][1] > first[2][1]  # upwards
    rise = [p[0][1] - p[-1][1] for p in (first, second, bytes_a, bytes_b)]
    assert abs(rise[0] / rise[1] - 4) < 0.01
    assert abs(rise[2] / rise[3] - 2) < 0.01
    assert "a: 90.0 %" in svg and "b: 30.0 %" in svg and "kB sent and received" in svg


def test_pictures_of_little_are_drawn() -> None:
    for found in (history(0.5), history(0.5, 0.5), history(0.0, 1.0, step=0)):
        for curve in curves(rounds_svg({"x": found})):
            assert all(0 <= x <= 1100 and 0 <= y <= 520 for x, y in curve)
