"""Token by token, with a cache, a graph means what it does for a whole sequence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from rewriting import parse
from whet.errors import FrontendError
from whet.ir import Array, Graph, Role
from whet.ir.interp import interpret
from whet.passes.add_generation import add_generation

LENGTH = 5

# Tables by position: rotations, what is added to every row, and a table that trains.
PREDICT = """
graph predict {
  %words : f32[7,8] param
  %places : f32[9,8] param
  %ids : i32[1,5] input
  %cos : f32[1,5,1,2] const
  %sin : f32[1,5,1,2] const
  %each : f32[5,8] const
  %order : i32[5] const
  %e = take %words, %ids : f32[1,5,8]
  %p = take %places, %order : f32[5,8]
  %pe = mul %p, %each : f32[5,8]
  %x = add %e, %pe : f32[1,5,8]
  %h = reshape %x {shape=(1, 5, 2, 4)} : f32[1,5,2,4]
  %q = rotary %h, %cos, %sin : f32[1,5,2,4]
  %rows = reshape %x {shape=(5, 8)} : f32[5,8]
  %part = slice %rows {axis=1, start=4, stop=8} : f32[5,4]
  %k = reshape %part {shape=(1, 5, 1, 4)} : f32[1,5,1,4]
  %v = neg %k : f32[1,5,1,4]
  %y, %top, %share = attention %q, %k, %v {scale=0.5, causal=True} : f32[1,5,2,4], f32[1,2,5], f32[1,2,5]
  %z = reshape %y {shape=(1, 5, 8)} : f32[1,5,8]
  %out = linear %z, %words : f32[1,5,7]
  return %out
}
"""  # noqa: E501


def numbers() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    sizes = [(7, 8), (9, 8), (5, 8), (1, 5, 1, 2), (1, 5, 1, 2)]
    names = ["words", "places", "each", "cos", "sin"]
    found: dict[str, Array] = {
        name: rng.normal(size=size) for name, size in zip(names, sizes, strict=True)
    }
    return found | {"order": np.array([3, 1, 4, 0, 8], np.int32)}


def run(graph: Graph, ids: Array, at: int, caches: Mapping[str, Array]) -> tuple[list[Array], ...]:
    feed = {"ids": ids, "position": np.array(at, np.int32), **caches}
    return interpret(graph, feed, real=np.float64)  # type: ignore[return-value]


def test_positions_one_by_one_and_several_at_once_mean_the_same() -> None:
    whole = parse(PREDICT, numbers())
    entries = add_generation({"predict": whole})
    read, decode = entries["prefill"], entries["decode"]
    ids = np.array([[4, 1, 6, 6, 0]], np.int32)
    (wanted,), _ = interpret(whole, {"ids": ids}, real=np.float64)
    empty = {v.name: np.full(v.shape, 99.0) for v in decode.leaves_of(Role.CACHE)}
    assert len(empty) == 2 and [v.shape for v in read.leaves_of(Role.INPUT)] == [(1, 2)]

    caches = dict(empty)
    for at in range(LENGTH):
        (found,), caches = run(decode, ids[:, at : at + 1], at, caches)
        np.testing.assert_allclose(found[0, 0], wanted[0, at], rtol=1e-12)

    some = dict(empty)
    for at in (0, 2):
        nothing, some = run(read, ids[:, at : at + 2], at, some)
        assert nothing == []
    for name, rows in some.items():
        np.testing.assert_allclose(rows[:4], caches[name][:4], rtol=1e-12)
        np.testing.assert_array_equal(rows[4:], 99.0)
    assert [n.op.name for n in read.nodes].count("linear") == 0  # nobody reads its scores


@pytest.mark.parametrize(
    ("line", "instead", "why"),
    [
        ("causal=True", "causal=False", "not causal"),
        ("attention %q, %k, %v", "attention %q, %k, %v, %mask", "a mask besides"),
        ("attention %q, %k, %v", "attention %q, %other, %v", "not among the positions"),
        ("%v = neg %k", "%v = softmax %k {axis=1}", "softmax works on all positions"),
        ("%v = neg %k", "%v = cumsum %k {axis=1}", "cumsum works on all positions"),
        ("%e = take %words, %ids : f32[1,5,8]",
         "%back = take %ids, %order {axis=1} : i32[1,5]\n  %e = take %words, %back : f32[1,5,8]",
         "take works on all positions"),
        ("return %out", "return %cos", "no scores for each position"),
    ],
)  # fmt: skip
def test_what_mixes_positions_is_refused(line: str, instead: str, why: str) -> None:
    assert PREDICT.count(line) == 1
    text = PREDICT.replace(line, instead).replace(
        "  %e = take %words", "  %mask : f32[1,1,5,5] const\n  %other : f32[1,5,1,4] const\n"
        "  %e = take %words", 1
    )  # fmt: skip
    if "%back" in instead:
        text = PREDICT.replace(line, instead)
    data = numbers() | {"mask": np.zeros((1, 1, 5, 5)), "other": np.ones((1, 5, 1, 4))}
    with pytest.raises(FrontendError, match="token by token") as error:
        add_generation(
            {"predict": parse(text, {n: a for n, a in data.items() if f"%{n} :" in text})}
        )
    assert why in str(error.value)
