"""Frozen weights in bytes: none twice, none where there is no room, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import whet
from tinytl_models import pictures, short
from whet.errors import FrontendError, SchemeError
from whet.labs import tinytl
from whet.ops.widen import narrowed


def test_rounded_weights_are_stored_in_bytes() -> None:
    x = pictures(2, 64)
    ready = tinytl.prepare(short(), x, bits=8)
    wide = whet.compile(ready, (x,), update="tinytl-l+b")
    narrow = whet.compile(ready, (x,), update="tinytl-l+b", frozen="int8")
    assert narrow.memory["frozen"] < 0.6 * wide.memory["frozen"]
    assert narrow.memory["ram"] <= wide.memory["ram"], "widened only where there is room"
    assert narrow.check(steps=5)
    assert narrow.load().predict(x.numpy()) == pytest.approx(
        ready(x).detach().numpy(), rel=1e-4, abs=1e-5
    )


@pytest.mark.parametrize("target", ["host", "cortex-m7"])
def test_no_weight_is_stored_twice(target: str) -> None:
    """Entry points have room for different weights: what one cannot widen stays in all."""
    x = pictures(1)
    ready = tinytl.prepare(short(), x, bits=8)
    program = whet.compile(ready, (x,), update="tinytl-l+b", frozen="int8", target=target, ram="1M")
    plain = whet.compile(ready, (x,), update="tinytl-l+b", target=target, ram="1M")
    stored = program.storage.frozen
    narrow = {n.removesuffix(".narrow") for n in stored if n.endswith(".narrow")}
    assert narrow and not narrow & stored.keys()
    assert program.memory["frozen"] < plain.memory["frozen"]
    assert program.memory["ram"] <= plain.memory["ram"]
    assert f"{program.in_bytes:,} B" in program.report()


def test_a_stream_widens_all_its_weights_at_once() -> None:
    """So what has room alone may have none beside the others."""
    x = pictures(8, 96)
    ready = tinytl.prepare(short(), x, lite_residual=False, bits=8)
    plain, narrow = (
        whet.compile(ready, (x,), update="last", frozen=frozen).memory for frozen in (None, "int8")
    )
    assert narrow["arena"] <= plain["arena"] and narrow["frozen"] < plain["frozen"]


def test_layers_are_computed_again_only_where_that_helps() -> None:
    """On a chip the input lies in the arena, and computing the stem again keeps it there."""
    x = pictures(1)
    ready = tinytl.prepare(short(), x)
    arena = {
        (target, again): whet.compile(
            ready, (x,), update="tinytl-l+b", target=target, ram="1M", rematerialize=again
        ).arena
        for target in ("host", "cortex-m7")
        for again in (False, "layers")
    }
    assert arena["host", "layers"] <= arena["host", False]
    assert arena["cortex-m7", "layers"] <= arena["cortex-m7", False]


def test_weights_that_are_not_rounded_are_rounded_to_a_scale_for_each_channel() -> None:
    x = pictures(2, 64)
    ready = tinytl.prepare(short(), x)
    plain = whet.compile(ready, (x,), update="tinytl-l+b")
    asked = whet.compile(ready, (x,), update="tinytl-l+b", frozen="int8")
    assert asked.memory["frozen"] < 0.6 * plain.memory["frozen"]
    assert asked.memory["ram"] <= plain.memory["ram"]
    assert 1e-3 < max(asked.rounded.values()) < 0.02
    assert asked.check(steps=2)


@pytest.mark.parametrize(
    ("update", "why"), [("full", "all weights train"), ("bias", "no layer has a large one")]
)
def test_a_program_without_a_large_frozen_weight_warns(update: str, why: str) -> None:
    model = nn.Linear(8, 4)
    with pytest.warns(UserWarning, match=f"no frozen weight is stored as int8: {why}"):
        whet.compile(model, (torch.zeros(1, 8),), update=update, frozen="int8")


def test_other_forms_are_refused() -> None:
    x = pictures()
    ready = tinytl.prepare(short(), x)
    with pytest.raises(SchemeError, match="for a float program"):
        whet.compile(ready, (x,), dtype="int8", calibrate=[x], frozen="int8")
    with pytest.raises(SchemeError, match='no frozen="int4"'):
        whet.compile(ready, (x,), frozen="int4")
    with pytest.raises(FrontendError, match="to 9 bits"):
        tinytl.prepare(short(), x, bits=9)


@pytest.mark.parametrize("last", [False, True])
def test_what_eight_bits_make_up(last: bool) -> None:
    random = np.random.default_rng(0)
    q = random.integers(-127, 128, (3, 4, 5)).astype(np.int8)
    q[0, 0, :], q[:, 0, 0] = 127, -127
    scale = random.uniform(0.1, 2.0, 5 if last else 3).astype(np.float32)
    weight = q * (scale if last else scale[:, None, None])
    found = narrowed(weight, last)
    assert found is not None
    assert np.array_equal(found[0], q) and found[1] == pytest.approx(scale)
    assert narrowed(random.normal(size=(3, 4, 5)), last) is None
    assert narrowed(np.where(weight > 0, weight, np.nan), last) is None
    assert narrowed(np.sign(weight).astype(np.float32), last) is not None, "of two bits"
    nothing = narrowed(np.zeros((2, 3)), last)
    assert nothing is not None and not nothing[0].any()
