"""Live elements as leaves of their own, and whole weights only where they are read."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.utils import prune

import whet
from rewriting import assert_same_meaning, names, parse
from whet.ir import Live
from whet.ops.largest import Spread
from whet.passes.split_live import find_live, split_live, stored_whole

BEFORE = """
    %x : f32[2,4] input; %w : f32[3,4] param; %b : f32[3] param
    %y = linear %x, %w, %b : f32[2,3]
    %z = sum %w {axes=(0,)} : f32[1,4]
    return %y, %z"""


def test_linear_layers_read_live_elements_and_others_the_whole() -> None:
    before = parse(BEFORE)
    live = np.arange(12).reshape(3, 4) % 3 == 1
    before.data["w"][~live] = 0
    parts = find_live(before, {"w": live}, ["w"])
    after = split_live(before, parts)
    assert names(after) == ["linear_live", "reshape", "spread", "reshape", "sum"]
    np.testing.assert_array_equal(after.data["w.part"], before.data["w"][live])
    assert "w" not in after.data and after.data["w.live"].nbytes == 2
    assert_same_meaning(before, after, rtol=1e-9)


def test_what_others_read_may_be_stored_whole() -> None:
    before = parse(BEFORE)
    parts = find_live(before, {"w": np.eye(3, 4) == 1, "b": np.arange(3) > 0}, ["w", "b"])
    whole = stored_whole(parts, before)
    assert list(parts) == ["w.part", "b.part"] and list(whole) == ["w", "b"]
    assert all(isinstance(part, Live) and part.whole for part in whole.values())
    assert split_live(before, whole).nodes == before.nodes


def test_a_whole_weight_is_made_right_before_each_reader() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten()]
    for layer in layers[::2][:2]:
        prune.random_unstructured(layer, "weight", 0.9)
    net = nn.Sequential(*layers, nn.Linear(32, 2)).eval()
    step = whet.compile(net, (torch.zeros(1, 3, 6, 6),), optimizer="adam").entries["train_step"]
    nodes = [node for node in step.nodes if not node.op.view]
    made = [i for i, node in enumerate(nodes) if node.op is Spread]
    assert [nodes[i + 1].op.name for i in made] == ["conv2d_fused", "conv2d_fused", "conv2d_dx"]
