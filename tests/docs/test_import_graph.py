"""The picture of the import graph shows the packages as they are."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from import_graph import PICTURE, direct, figures, package_graph, picture, rows_of
from imports import module_graph


def test_the_picture_is_up_to_date() -> None:
    assert PICTURE.read_text() == picture(), "run: make house"


def test_the_picture_has_a_box_for_every_package_and_an_arrow_for_every_direct_import() -> None:
    svg = ElementTree.fromstring(picture())
    names = [element.text for element in svg.iter() if element.tag.endswith("}text")]
    uses = package_graph(late=False)
    assert {*names} >= {"whet" if name == "__init__" else name for name in uses}
    solid = [e for e in svg.iter() if e.get("fill") == "none" and not e.get("stroke-dasharray")]
    assert len(solid) == sum(map(len, direct(uses).values()))


def test_arrows_point_down_and_leave_out_what_others_imply() -> None:
    uses = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert rows_of(uses) == {"a": 0, "b": 1, "c": 2, "d": 1}
    assert direct(uses) == {"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": {"c"}}


def test_the_figures_count_modules_and_cycles() -> None:
    modules, edges, _, cycles = (int(n) for n in re.findall(r"(\d+)$", figures(), re.M)[:4])
    uses = module_graph(late=False)
    assert (modules, edges, cycles) == (len(uses), sum(map(len, uses.values())), 0)
    assert modules > 150
