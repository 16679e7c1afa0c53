"""`exact` has the bits of the portable kernels: operator by operator, and over whole trainings."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import c_kernels
import whet
from kernel_checks import SAMPLES
from kernel_samples import Numbers, Sample
from same_bits import assert_same_bits
from tiny import Batch, convnet, images
from whet.ir import Array, Builder, Node, Op, Role, f32
from whet.ir.interp import OPEN, interpret, is_open, run_exact


def portable_nodes(sample: Sample) -> Iterator[tuple[Node, list[Array]]]:
    files = {path.stem for path in c_kernels.sources("ref")}
    for node, arrays in sample.nodes():
        call = node.op.call(node)
        if call is not None and call.source in files:
            yield node, arrays


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_an_operator_has_the_bits_of_its_kernel(sample: Sample) -> None:
    """With `exact` or, where the operator has none, with `ref`."""
    for node, arrays in portable_nodes(sample):
        if is_open(node.op):
            assert node.op.exact is None
            continue
        wanted = c_kernels.execute(node, arrays)
        with np.errstate(over="ignore"):
            outs = run_exact(node, arrays)
        for value, given, right in zip(node.outs, outs, wanted, strict=True):
            assert not node.op.exact or np.asarray(given).dtype == value.type.dtype.numpy
            given = np.asarray(given, value.type.dtype.numpy)
            assert_same_bits(given, right, f"{node.op.name} {node.attrs}")


def test_open_operators_have_samples() -> None:
    names = {n.op.name for s in SAMPLES for n, _ in s.nodes() if is_open(n.op)}
    assert names <= set(Op.registry) and OPEN <= names


ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1.0], np.float32)


@pytest.mark.parametrize(
    "name", ["relu_dx", "hardtanh_dx", "clamp_dx", "exp", "log", "sigmoid", "tanh", "erf", "gelu"]
)
def test_odd_numbers_have_the_bits_of_the_kernel(name: str) -> None:
    b = Builder("odd")
    op = Op.registry[name]
    count = 2 if name.endswith("_dx") else 1
    ins = [b.leaf(f"x{i}", f32(len(ODD) ** count), Role.INPUT) for i in range(count)]
    arrays = [a.ravel().copy() for a in np.meshgrid(*[ODD] * count)]
    b.emit(op, *ins)
    with np.errstate(invalid="ignore"):  # -inf * 0
        (wanted,), (given,) = (f(b.nodes[0], arrays) for f in (c_kernels.execute, run_exact))
    assert_same_bits(given, wanted)


# --- sums


@pytest.mark.parametrize("n", [1, 15, 16, 17, 2047, 2048, 2049, 2064, 5000])
def test_sums_of_every_length_have_the_bits_of_the_kernels(n: int) -> None:
    """Around a tile, a chunk of tiles, and a chunk of rows."""
    g = Numbers(f"sums{n}")
    samples = [
        Sample(Op.registry["sum_squares"], (g.normal(n),), {}, "squares"),
        Sample(Op.registry["softmax"], (g.normal(2, n),), {"axis": 1}, "softmax"),
        Sample(Op.registry["sum"], (g.normal(n, 3),), {"axes": (0,)}, "columns"),
        Sample(Op.registry["sum"], (g.normal(2, 3, n),), {"axes": (0, 2)}, "lines"),
        Sample(Op.registry["linear"], (g.normal(3, n), g.normal(2, n)), {}, "few rows"),
        Sample(Op.registry["linear"], (g.normal(4, n), g.normal(2, n)), {}, "many rows"),
    ]
    for sample in samples:
        for node, arrays in portable_nodes(sample):
            for given, right in zip(
                run_exact(node, arrays), c_kernels.execute(node, arrays), strict=True
            ):
                assert_same_bits(given, right, sample.name)


# --- trainings

Make = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw in bf16": lambda p: torch.optim.AdamW([{"params": p, "moments": "bf16"}], lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
}


def mlp() -> nn.Module:
    torch.manual_seed(0)
    layers = OrderedDict(
        fc1=nn.Linear(100, 70), act=nn.ReLU(), fc2=nn.Linear(70, 70), act6=nn.ReLU6(),
        fc3=nn.Linear(70, 33),
    )  # fmt: skip
    return nn.Sequential(layers)


def vectors(batch: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(1)
    while True:
        x = torch.randn(batch, 100, generator=generator)
        yield x, torch.randint(33, (batch,), generator=generator)


def twenty_steps(program: Any, batches: Iterator[Batch]) -> None:
    """The loss of every step, and all that training changes, in C and in NumPy."""
    trainer = program.load()
    graph = program.entries["train_step"]
    (x_leaf,), (y_leaf,) = graph.leaves_of(Role.INPUT), graph.leaves_of(Role.LABEL)
    changed: dict[str, Array] = {}
    for _ in range(20):
        x, y = next(batches)
        stored = x.numpy() if x.ndim == 2 else x.numpy().transpose(0, 2, 3, 1)
        feed = {x_leaf.name: stored, y_leaf.name: y.numpy(), "lr": np.float32(program.lr)}
        (loss,), changed = interpret(graph, feed | changed, execute=run_exact)
        assert_same_bits(np.float32(trainer.step(x, y)).reshape(()), loss)
        for name, array in changed.items():
            assert_same_bits(trainer._view(name), array.ravel(), name)
    assert changed


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        pytest.param(name, batch, marks=[pytest.mark.slow] if i and batch == 5 else [])
        for i, name in enumerate(OPTIMIZERS)
        for batch in (1, 5)
    ],
)
def test_twenty_steps_of_an_mlp(name: str, batch: int) -> None:
    """A batch of one is summed in lanes, a larger one in blocks."""
    model, batches = mlp(), vectors(batch)
    optimizer = OPTIMIZERS[name](model.parameters())
    program = whet.compile(model, next(batches)[:1], optimizer=optimizer, portable=True)
    twenty_steps(program, batches)


def test_twenty_steps_with_clipped_gradients_and_smoothed_labels() -> None:
    model, batches = mlp(), vectors(5)
    program = whet.compile(
        model,
        next(batches)[:1],
        loss=nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.rand(33) + 0.5),
        optimizer=OPTIMIZERS["nesterov"](model.parameters()),
        clip_norm=0.5,
        portable=True,
    )
    twenty_steps(program, batches)


@pytest.mark.parametrize("update", ["full", "last-1"])
def test_twenty_steps_of_a_convolutional_network(update: str) -> None:
    model, batches = convnet(norm=False), images()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    program = whet.compile(
        model, next(batches)[:1], optimizer=optimizer, portable=True, update=update
    )
    twenty_steps(program, batches)
