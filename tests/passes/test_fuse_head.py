"""A loss over many classes is made without all the scores; programs train as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whet
from rewriting import assert_same_meaning, expect, names, parse, peak
from stored_forms import rounded
from tiny import assert_same, torch_step
from whet.errors import DataError
from whet.ir import Graph
from whet.ops.linear_loss import LinearCrossEntropy, LinearCrossEntropyStored
from whet.passes import PASSES
from whet.passes.frozen_forms import Bytes
from whet.passes.fuse_head import fuse_head, fuse_trained_head
from whet.passes.slice_first import slice_first
from whet.runtime import Trainer
from whet.runtime.build import fast

# --- slice_first


def test_rows_are_taken_before_a_linear_layer() -> None:
    expect(
        slice_first,
        """
        %x : f32[2,8,4] input; %w : f32[9,4] param; %b : f32[9] param
        %h = linear %x, %w, %b : f32[2,8,9]
        %y = slice %h {axis=1, start=1, stop=8, step=2} : f32[2,4,9]
        %z = slice %y {axis=0, stop=1} : f32[1,4,9]
        return %z""",
        """
        %x.rows = slice %x {axis=1, start=1, stop=8, step=2} : f32[2,4,4]
        %x.rows.rows = slice %x.rows {stop=1} : f32[1,4,4]
        %z = linear %x.rows.rows, %w, %b : f32[1,4,9]
        return %z""",
        rtol=1e-12,
    )


def test_so_are_rows_by_number_and_of_another_shape() -> None:
    expect(
        slice_first,
        """
        %x : f32[2,8,4] input; %w : f32[9,4] param; %places : i32[3] const = [7, 0, 9]
        %h = linear %x, %w : f32[2,8,9]
        %h.view = reshape %h {shape=(16, 9)} : f32[16,9]
        %y = take %h.view, %places : f32[3,9]
        return %y""",
        """
        %x.view = reshape %x {shape=(16, 4)} : f32[16,4]
        %x.view.rows = take %x.view, %places : f32[3,4]
        %y = linear %x.view.rows, %w : f32[3,9]
        return %y""",
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(
            """
            %h = linear %x, %w : f32[2,8,9]
            %y = slice %h {axis=2, stop=3} : f32[2,8,3]
            return %y""",
            id="columns",
        ),
        pytest.param(
            """
            %h = linear %x, %w : f32[2,8,9]
            %y = slice %h {axis=1, stop=7} : f32[2,7,9]
            return %y, %h""",
            id="all of it is returned",
        ),
        pytest.param(
            """
            %h = linear %x, %w : f32[2,8,9]
            %h.view = reshape %h {shape=(2, 72)} : f32[2,72]
            %y = slice %h.view {axis=0, stop=1} : f32[1,72]
            return %y""",
            id="rows are merged",
        ),
        pytest.param(
            """
            %h = linear %x, %v : f32[2,8,1]
            %y = slice %h {axis=1, stop=7} : f32[2,7,1]
            return %y""",
            id="x is larger",
        ),
    ],
)
def test_a_slice_stays_behind_the_layer(nodes: str) -> None:
    leaves = "%x : f32[2,8,4] input; %w : f32[9,4] param; %v : f32[1,4] param"
    graph = parse(leaves + nodes)
    assert slice_first(graph) is graph


# --- fuse_head: graphs

LEAVES = """
%x : f32[2,16,8] input; %labels : i32[2,16] label; %w : f32[9000,8] param; %b : f32[9000] param
%c : f32[2,16,8] param
%one : f32[] const = [1.0]
"""


def head(*, scale: str = "%one", bias: bool = False, trains: bool = False, views: bool = False,
         first: str = "", **attrs: Any) -> Graph:  # fmt: skip
    """A model of one number for each of x, then the head; and how all of it trains."""
    own = ", ".join(f"{k}={v}" for k, v in attrs.items())
    own = f" {{{own}}}" if own else ""
    shape = "f32[32,9000]" if views else "f32[2,16,9000]"
    y, dy, labels = ("%y.view", "%dy.view", "%l.view") if views else ("%y", "%dy", "%labels")
    lines = [
        "%u = mul %x, %c : f32[2,16,8]",
        f"%y = linear %u, %w{', %b' * bias} : f32[2,16,9000]",
        *["%y.view = reshape %y {shape=(32, 9000)} : f32[32,9000]",
          "%l.view = reshape %labels {shape=(32,)} : i32[32]"] * views,
        f"%loss = cross_entropy {y}, {labels}{own} : f32[]",
        *[first] * bool(first),
        f"{dy} = cross_entropy_dx {scale}, {y}, {labels}{own} : {shape}",
        *["%dy = reshape %dy.view {shape=(2, 16, 9000)} : f32[2,16,9000]"] * views,
        "%du = linear_dx %dy, %w : f32[2,16,8]",
        *["%dw = linear_dw %dy, %u : f32[9000,8]", "%w.next = add %w, %dw : f32[9000,8]"] * trains,
        *["%db.sum = sum %dy {axes=(0, 1)} : f32[1,1,9000]",
          "%db = reshape %db.sum {shape=(9000,)} : f32[9000]",
          "%b.next = add %b, %db : f32[9000]"] * (trains and bias),
        "%dc = mul %du, %x : f32[2,16,8]",
        "%c.next = add %c, %dc : f32[2,16,8]",
        "state %c <- %c.next",
        *["state %w <- %w.next"] * trains,
        *["state %b <- %b.next"] * (trains and bias),
        "return %loss",
    ]  # fmt: skip
    leaves = LEAVES if bias else LEAVES.replace("; %b : f32[9000] param", "")
    return parse(leaves.strip() + "\n" + "\n".join(lines))


def assert_no_scores(graph: Graph) -> None:
    """No value has a number for every row and class."""
    sizes = {v.name: v.type.elements for node in graph.nodes for v in node.outs}
    assert max(sizes.values()) <= 9000 * 8, sizes


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"mean": False}, {"ignore_index": 3}])
def test_a_frozen_head_becomes_one_operator(views: bool, bias: bool, attrs: Any) -> None:
    before = head(views=views, bias=bias, **attrs)
    after = fuse_head(before)
    assert names(after) == ["mul", "linear_cross_entropy", "mul", "add"]
    assert [v.name for v in after.nodes[1].outs] == ["loss", "du"]
    assert_same_meaning(before, after, rtol=1e-9)
    assert_no_scores(after)
    assert peak(after) < peak(before) / 8
    assert fuse_trained_head(before) is before


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_so_does_one_that_trains(views: bool, bias: bool) -> None:
    before = head(views=views, bias=bias, trains=True)
    after = fuse_trained_head(before)
    (node,) = [n for n in after.nodes if n.op is LinearCrossEntropy]
    assert len(node.outs) == 3 + bias
    assert_same_meaning(before, after, rtol=1e-9)
    assert_no_scores(after)
    assert fuse_head(before) is before


def test_the_gradient_is_multiplied_by_that_of_the_loss() -> None:
    half = "%half = mul %loss, %loss : f32[]"  # known after the loss
    for trains in (False, True):
        before = head(first=half, scale="%half", bias=True, trains=trains)
        after = (fuse_trained_head if trains else fuse_head)(before)
        assert LinearCrossEntropy in {n.op for n in after.nodes}
        assert_same_meaning(before, after, rtol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        ("return %loss", "return %loss, %y"),
        ("return %loss", "return %loss, %dy"),
        ("return %loss", "%other = relu %y : f32[2,16,9000]\n  return %loss, %other"),
        ("return %loss", "%other = relu %dy : f32[2,16,9000]\n  return %loss, %other"),
        ("cross_entropy %y, %labels", "cross_entropy %y, %labels, %v"),
        ("cross_entropy %y, %labels", "cross_entropy %y, %labels {smoothing=0.1}"),
        ("cross_entropy_dx %one, %y, %labels", "cross_entropy_dx %one, %y, %labels {mean=False}"),
        ("linear_dx %dy, %w", "linear_dx %dy, %v2"),
        ("9000", "500"),
    ],
    ids=["scores", "gradient", "read", "gradient read", "weights", "smoothing", "two losses",
         "other weights", "few classes"],
)  # fmt: skip
def test_other_heads_stay(change: tuple[str, str]) -> None:
    text = str(head()).replace(
        "%one :", "%v : f32[9000] param\n  %v2 : f32[9000,8] param\n  %one :"
    )
    for line in ("%v : f32[9000] param\n  ", "%v2 : f32[9000,8] param\n  "):
        if line.split()[0] not in change[1].split(" {")[0].replace(",", "").split():
            text = text.replace(line, "")
    assert change[0] in text
    graph = parse(text.replace(*change))
    assert fuse_head(graph) is graph and fuse_trained_head(graph) is graph


def test_both_run_by_default() -> None:
    assert {"slice_first", "fuse_head", "fuse_trained_head"} <= {p.name for p in PASSES}


# --- programs

CLASSES, LENGTH = 4100, 20


class Tiny(nn.Module):
    """Words, a layer that trains, and a score for every word."""

    def __init__(self, *, bias: bool = False, train_head: bool = False, width: int = 12) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(CLASSES, width)
        self.layer = nn.Linear(width, width)
        self.head = nn.Linear(width, CLASSES, bias=bias)
        self.table.requires_grad_(False)
        self.head.requires_grad_(train_head)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.tanh(self.layer(self.table(ids))))
        return scores


def by_place(scores: Tensor, labels: Tensor, **options: Any) -> Tensor:
    return F.cross_entropy(scores.transpose(1, 2), labels, **options)


def next_word(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores[:, :-1].reshape(-1, CLASSES), labels[:, 1:].reshape(-1))


def shifted_labels(scores: Tensor, labels: Tensor) -> Tensor:
    """As transformers does it."""
    labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(scores.float().view(-1, CLASSES), labels.view(-1))


def summed(scores: Tensor, labels: Tensor) -> Tensor:
    return by_place(scores, labels, reduction="sum")


def twice(scores: Tensor, labels: Tensor) -> Tensor:
    return by_place(scores, labels) * 2 + 1


def weighted(scores: Tensor, labels: Tensor) -> Tensor:
    return by_place(scores, labels, weight=torch.linspace(0.5, 1, CLASSES))


def smoothed(scores: Tensor, labels: Tensor) -> Tensor:
    return by_place(scores, labels, label_smoothing=0.1)


LOSSES: dict[Callable[..., Tensor], bool] = {  # and whether they can be fused
    by_place: True,
    next_word: True,
    shifted_labels: True,
    summed: True,
    twice: True,
    weighted: False,
    smoothed: False,
}


def batch(ignored: float, seed: int = 1) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, CLASSES, (2, LENGTH), generator=g)
    labels = torch.randint(0, CLASSES, (2, LENGTH), generator=g)
    labels[torch.rand(2, LENGTH, generator=g) < ignored] = -100
    return ids, labels


def compiled(model: nn.Module, loss: Callable[..., Tensor], **options: Any) -> whet.Program:
    ids, labels = batch(0.5)
    adam = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    return whet.compile(model, (ids,), loss=loss, labels=labels, optimizer=adam, **options)


def is_fused(program: whet.Program) -> bool:
    return LinearCrossEntropy in {n.op for n in program.entries["train_step"].nodes}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("train_head", [False, True])
def test_gradients_are_those_of_pytorch(loss: Callable[..., Tensor], train_head: bool) -> None:
    """And so are ten steps; half of the labels do not count."""
    model = Tiny(bias=train_head, train_head=train_head)
    program = compiled(model, loss, clip_norm=1.0 if train_head else None)
    assert is_fused(program) == LOSSES[loss]
    report = program.check()
    assert report.gradients and max(report.gradients.values()) < 1e-5


@pytest.mark.parametrize("train_head", [False, True])
@pytest.mark.parametrize("portable", [False, True])
def test_so_are_steps_with_all_few_and_some_labels(train_head: bool, portable: bool) -> None:
    model = Tiny(bias=train_head, train_head=train_head)
    program = compiled(model, next_word, portable=portable, clip_norm=1.0 if train_head else None)
    assert is_fused(program)
    theirs = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    trainer = program.load()
    for seed, ignored in enumerate([0.0, 0.9, 0.5]):
        ids, labels = batch(ignored, seed)
        right = torch_step(model, theirs, ids, labels, next_word, 1.0 if train_head else None)
        assert trainer.step(ids, labels) == pytest.approx(right, rel=1e-5)
    assert_same(trainer, model, rtol=1e-3, atol=1e-5)


def test_a_step_without_labels_is_refused_as_before() -> None:
    """PyTorch's mean over no label is NaN."""
    ids, labels = batch(1.0)
    results = []
    for without in ((), ("fuse_head",)):
        trainer = compiled(Tiny(), by_place, without=without).load()
        start = trainer.save()
        with pytest.raises(whet.WhetError) as error:
            trainer.step(ids, labels)
        results.append(str(error.value))
        assert trainer.save() == start
    assert results[0] == results[1]


@pytest.mark.parametrize("loss", [by_place, next_word, shifted_labels], ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrong", [-1, CLASSES])
def test_a_label_out_of_range_is_refused(loss: Callable[..., Tensor], wrong: int) -> None:
    trainer = compiled(Tiny(), loss).load()
    ids, labels = batch(0.5)
    labels[1, 3] = wrong
    start = trainer.save()
    with pytest.raises(DataError):
        trainer.step(ids, labels)
    assert trainer.save() == start


def test_the_scores_take_no_memory() -> None:
    """Nor do those of a step that only gathers gradients."""
    options: dict[str, Any] = {"accumulate": True}
    before, after = (
        compiled(Tiny(), next_word, without=without, **options)
        for without in (("slice_first", "fuse_head"), ())
    )
    scores = 4 * 2 * (LENGTH - 1) * CLASSES
    for entry in ("train_step", "gradients"):
        assert before.plans[entry].arena > scores > 4 * after.plans[entry].arena
        sizes = [v.type.bytes for n in after.entries[entry].nodes for v in n.outs]
        assert max(sizes) < scores / 8


def test_a_head_that_trains_is_fused_where_that_takes_less_memory() -> None:
    """Alone, its update is made of blocks of the gradient; with clipping, of all of it."""
    model = Tiny(train_head=True)
    blocks, whole = (compiled(model, by_place, clip_norm=limit) for limit in (None, 1.0))
    apart = compiled(model, by_place, clip_norm=1.0, without=("fuse_trained_head",))
    assert not is_fused(blocks) or blocks.memory["ram"] < apart.memory["ram"]
    assert is_fused(whole) and not is_fused(apart)
    assert whole.plans["train_step"].arena < apart.plans["train_step"].arena


def test_any_number_of_threads_gives_the_same_bits() -> None:
    for train_head in (False, True):
        model = Tiny(bias=True, train_head=train_head)
        program = compiled(model, next_word, clip_norm=1.0)
        assert is_fused(program)
        found = [trained(program, threads) for threads in (1, 2, 3)]
        assert found[0] == found[1] == found[2]


def trained(program: whet.Program, threads: int) -> tuple[list[float], bytes]:
    trainer = Trainer(program, (*fast(program), "-O1", "-DWHET_GRAIN=1"), threads)
    return [trainer.step(*batch(0.3, seed)) for seed in range(3)], trainer.save()


@pytest.mark.parametrize("form", ["kmeans4", "int8", "q4_1"])
def test_a_frozen_head_is_read_as_it_is_stored(form: str) -> None:
    program = compiled(Tiny(width=32), next_word, frozen=form)
    ops = names(program.entries["train_step"])
    assert "linear_cross_entropy_stored" in ops and "linear_stored_dx" not in ops
    sizes = [v.type.bytes for n in program.entries["train_step"].nodes for v in n.outs]
    assert max(sizes) < 4 * LENGTH * CLASSES / 8
    report = program.check(steps=2)
    assert report.gradients and max(report.gradients.values()) < 1e-5


def test_then_steps_have_the_bits_of_the_same_weight_in_floats() -> None:
    """On any number of threads."""
    model = rounded(Tiny(width=32), "q8_0", "table.weight", "head.weight")
    floats, stored = (compiled(model, next_word, frozen=form) for form in (None, "q8_0"))
    assert is_fused(floats) and not stored.rounded
    right = trained(floats, 1)
    assert trained(stored, 1) == right and trained(stored, 3) == right


def test_a_bias_trains_beside_a_head_as_it_is_stored() -> None:
    model = Tiny(width=32, bias=True)
    model.head.bias.requires_grad_(True)
    program = compiled(model, by_place, frozen="q8_0", clip_norm=1.0)
    (node,) = (n for n in program.entries["train_step"].nodes if n.op is LinearCrossEntropyStored)
    assert len(node.outs) == 3
    assert program.check(steps=3)


def test_a_few_scores_are_smaller_than_rows_of_a_weight_in_floats() -> None:
    graph = parse(str(head()).replace("[2,16", "[1,16").replace(",8]", ",320]"))
    assert fuse_head(graph) is not graph and fuse_head(graph, Bytes()) is graph


def test_prediction_is_the_layer_alone() -> None:
    model = Tiny()
    program = compiled(model, next_word)
    ops = names(program.entries["predict"])
    assert "linear" in ops and "linear_cross_entropy" not in ops
    ids, _ = batch(0.0)
    np.testing.assert_allclose(program.load().predict(ids), model(ids).detach(), atol=1e-5)
