"""Integer programs as a whole: what they mean, what they need, and what they refuse."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from integer_models import (
    DATA,
    SMALL,
    Branches,
    Residual,
    compiled,
    examples,
    needs_data,
    norms,
    trained,
)
from whet import models
from whet.errors import DataError, FrontendError
from whet.ir import DType, Role
from whet.ir.interp import interpret, run_exact
from whet.ir.quant import Quant
from whet.ops.settle import MOST
from whet.passes.machine import Machine
from whet.quantize.weights import weight_scales
from whet.targets import target_named
from whet.verify.integer import equal_steps, gradient_errors, rebuilt, runs_here, with_gradients

# Every two of these meet in one of the quick ones.
QUICK = {
    (True, "full", "residual"), (True, "full", "branches"), (True, "bias+last", "residual"),
    (False, "full", "residual"), (False, "bias+last", "branches"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("portable", "update", "name"),
    [
        pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow])
        for case in itertools.product((True, False), ("full", "bias+last"), SMALL)
    ],
)
def test_gradients_are_autograds_and_steps_are_the_references(
    name: str, update: str, portable: bool
) -> None:
    make, shape = SMALL[name]
    report = compiled(trained(make(), shape), shape, update=update, portable=portable).check(20)
    assert report.worst_gradient[1] < 2e-6
    assert len(report.losses) == 20
    if name == "residual":
        assert "bit for bit" in str(report) and all(a == b for a, b in report.losses)
    else:  # on the way back; forward it is integers
        assert set(report.rounded) <= {"upsample_bilinear_dx"}


def test_int8_head_gives_real_logits() -> None:
    shape = (2, 3, 16, 16)
    model = trained(Residual(), shape)
    program = compiled(model, shape, whet.Int8(head="int8"))
    program.check(5)
    assert program.tensors["head.weight"].type.dtype is DType.I8
    x = torch.randn(shape)
    with torch.no_grad():
        right = model(x).numpy()
    given = program.load().predict(x)
    assert np.abs(given - right).max() < 0.1 * np.abs(right).max()


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_calibration_keeps_what_the_network_says(method: str) -> None:
    shape = (1, 3, 16, 16)
    model = trained(Residual(), shape)
    program = compiled(model, shape, whet.Int8(method=method))
    trainer = program.load()
    errors, sizes = [], []
    for x in torch.cat(examples(shape, seed=5)):
        with torch.no_grad():
            right = model(x[None]).numpy()
        errors.append(np.square(trainer.predict(x[None]) - right).sum())
        sizes.append(np.square(right).sum())
    assert sum(errors) < 2e-3 * sum(sizes)


def test_given_scales_are_kept() -> None:
    quant = Quant.of_range(-1.0, 3.0)
    assert quant.zero == -64 and quant.number(0.0) == -64
    assert Quant.of_range(0.0, 6.0) == Quant(6 / 255, -128)
    assert Quant.of_range(0.0, 0.0) == Quant.of_range(-1.0, 1.0)
    weight = np.array([[1.0, -2.0], [0.0, 0.0], [1e-12, 0.0]])
    given = weight_scales(weight, 0, np.array([1.0, 0.0, 3.0]), 0.5)
    np.testing.assert_allclose(given[:2], [2 / 127, np.median([2 / 127, 1e-12 / 127])])
    assert 3.0 / (0.5 * given[2]) < MOST  # there is room for the bias


def test_inputs_are_int8_or_the_floats_they_stand_for() -> None:
    shape = (1, 3, 16, 16)
    program = compiled(trained(Residual(), shape), shape)
    trainer = program.load()
    x = torch.randn(shape)
    quant = program.quants["input"]
    whole = quant.quantize(x.numpy())
    np.testing.assert_array_equal(trainer.predict(x), trainer.predict(whole))
    assert program.memory["io"] == 3 * 16 * 16 + 4
    header = program.files["model.h"].decode()
    assert f"#define NET_INPUT_ZERO {quant.zero}" in header and "NET_INPUT_SCALE" in header
    with pytest.raises(DataError, match="int8"):
        trainer.predict(whole.astype(np.int32))
    with pytest.raises(DataError, match="not finite"):
        trainer.predict(np.full(shape, np.nan, np.float32))


def test_a_network_without_ranges_is_refused() -> None:
    model, shape = trained(Residual(), (1, 3, 16, 16)), (1, 3, 16, 16)
    nn.init.constant_(model.get_submodule("stem.0").weight, 10.0)  # so that large inputs overflow
    with pytest.raises(FrontendError, match=r"nothing is known about the range(.|\n)*calibrate="):
        whet.compile(model, (torch.zeros(shape),), dtype="int8")
    with pytest.raises(DataError, match=r"shape \(4, 3, 8, 8\), the model takes"):
        whet.compile(model, (torch.zeros(shape),), dtype="int8", calibrate=examples((1, 3, 8, 8)))
    with pytest.raises(DataError, match="calibrate=5 gives no batches"):
        whet.compile(model, (torch.zeros(shape),), dtype="int8", calibrate=5)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="nothing to calibrate with"):
        whet.compile(model, (torch.zeros(shape),), dtype="int8", calibrate=[])
    for number, words in ((float("inf"), "not finite"), (3e38, "overflows(.|\\n)*at ")):
        with pytest.raises(DataError, match=words):
            bad = [torch.full((1, 3, 16, 16), number)]
            whet.compile(model, (torch.zeros(shape),), dtype="int8", calibrate=bad)
    nn.init.constant_(model.get_submodule("last").weight, math.nan)
    with pytest.raises(DataError, match=r"last\.weight holds numbers that are not finite"):
        whet.compile(model, (torch.zeros(shape),), dtype="int8", calibrate=examples(shape))
    with pytest.raises(FrontendError, match="dtype='int4'"):
        whet.compile(model, (torch.zeros(shape),), dtype="int4")
    with pytest.raises(FrontendError, match="no rounding 'up'"):
        whet.Int8(rounding="up")


def test_checkpoints_hold_integers() -> None:
    shape = (2, 3, 16, 16)
    program = compiled(trained(Residual(), shape), shape, whet.Int8(rounding="carry8"))
    trainer, other = program.load(), program.load()
    x, y = torch.randn(shape), torch.tensor([1, 3])
    trainer.step(x, y)
    other.load(trainer.save())
    assert other.step(x, y) == trainer.step(x, y)
    assert trainer.arrays()["last.weight"].dtype == np.int8


def test_real_weights_come_and_go() -> None:
    model = trained(Branches(), (2, 3, 12, 12))  # without batch norm: the same network in PyTorch
    program = compiled(model, (2, 3, 12, 12), update="full")
    trainer, other = program.load(), program.load()
    start = trainer.state_dict()
    for name, tensor in model.state_dict().items():
        step = tensor.abs().max() / 100
        assert (start[name] - tensor).abs().max() <= step, name
    x, y = torch.randn(2, 3, 12, 12), torch.tensor([1, 3])
    for _ in range(3):
        trainer.step(x, y)
    other.load_state_dict(trainer.state_dict())
    np.testing.assert_array_equal(other.predict(x), trainer.predict(x))
    with pytest.raises(DataError, match="not finite"):
        other.load_state_dict({"a.weight": torch.full((6, 3, 3, 3), float("nan"))})


def test_hard_norms_shared_layers_and_two_heads() -> None:
    shape = (2, 3, 8, 8)
    model = norms(shape)
    program = compiled(model, shape, whet.Int8(rounding="carry16"), portable=True)
    program.check(5)
    kinds = {name: info.type.dtype for name, info in program.tensors.items()}
    assert kinds["twice.weight"] is kinds["h1.weight"] is kinds["h2.weight"] is DType.F32
    assert kinds["a.weight"] is kinds["c.weight"] is DType.I8
    x = torch.randn(shape)
    trainer = program.load()
    with torch.no_grad():
        right = model(x).numpy()
    assert np.abs(trainer.predict(x) - right).max() < 0.05 * np.abs(right).max()
    before = trainer.stored("c.weight")
    for _ in range(30):
        trainer.step(x, torch.tensor([1, 3]), lr=0.1)
    assert (before != trainer.stored("c.weight")).sum() > 20  # the branch of zeros learns


@pytest.mark.parametrize("rounding", ["nearest", "carry8", "master"])
def test_weights_pass_through_batch_norm_and_back(rounding: str) -> None:
    shape = (2, 3, 8, 8)
    model = norms(shape)
    with torch.no_grad():
        model.n.weight.uniform_(0.5, 1.5)
        model.m.weight.uniform_(0.5, 1.5)
    trainer = compiled(model, shape, whet.Int8(rounding=rounding)).load()
    x, y = torch.randn(shape), torch.tensor([0, 2])
    for _ in range(3):
        trainer.step(x, y, lr=0.02)
    copy = norms(shape)
    copy.load_state_dict(model.state_dict())
    copy.load_state_dict(trainer.state_dict(), strict=False)
    with torch.no_grad():
        right = copy(x).numpy()
    given = trainer.predict(x)
    assert np.abs(given - right).max() < 0.05 * np.abs(right).max()
    trainer.load_state_dict(copy.state_dict())
    np.testing.assert_array_equal(trainer.predict(x), given)
    trainer.step(x, y, lr=0.0)  # nothing beside the integers remembers other weights
    np.testing.assert_array_equal(trainer.predict(x), given)


class Edges(nn.Module):
    """Padding beyond the range of what is padded, and a mean that is a sum."""

    def __init__(self, pads: float) -> None:
        super().__init__()
        self.a, self.head, self.pads = nn.Conv2d(3, 8, 1), nn.Linear(8, 4), pads

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(torch.relu(self.a(x)), (1, 1, 1, 1), value=self.pads)
        return self.head(nn.functional.avg_pool2d(x, 2, divisor_override=1).mean((2, 3)))


@pytest.mark.parametrize("pads", [0.0, -1.0, 10.0])
def test_ranges_are_those_of_results(pads: float) -> None:
    shape = (1, 3, 8, 8)
    torch.manual_seed(0)
    model = Edges(pads).eval()
    trainer = compiled(model, shape, portable=True).load()
    x = examples(shape)[0][:1]
    with torch.no_grad():
        right = model(x).numpy()
    assert np.abs(trainer.predict(x) - right).max() < 0.03 * np.abs(right).max()


@pytest.mark.parametrize(
    ("products", "bias", "large"),
    [(9_000, True, False), (60_000, True, False), (70_000, False, False), (40_000, True, True)],
)
def test_sums_that_do_not_fit_stay_in_float(products: int, bias: bool, large: bool) -> None:
    """The largest bias and the largest products together; a bias may learn to be the largest."""
    first = nn.Linear(products, 2, bias=bias)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(2, 2)).eval()
    x = torch.randn(1, products)
    if large:
        x = torch.ones(1, products)
        nn.init.ones_(first.weight)
        nn.init.constant_(first.bias, 30_000.0)
    words = rf"2 operators(.|\n)*linear at .*, {2 * products:,} m"
    with pytest.warns(UserWarning, match=words):
        program = whet.compile(model, (x,), dtype="int8", calibrate=[x], update="last")
    with torch.no_grad():
        right = model(x).numpy()
    np.testing.assert_allclose(program.load().predict(x), right, rtol=0.05, atol=0.05)


def test_sums_that_fit_are_integers() -> None:
    for products, bias in ((8_000, True), (60_000, False)):
        model = nn.Sequential(nn.Linear(products, 2, bias=bias), nn.ReLU(), nn.Linear(2, 2)).eval()
        x = torch.randn(1, products)
        program = whet.compile(model, (x,), dtype="int8", calibrate=[x], update="last")
        assert "0.weight" in program.integer_rules.units


class Floats(nn.Module):
    """Operators that are not defined to the bit."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.a = nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3, padding=1)
        self.group, self.head = nn.GroupNorm(2, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.group(self.a(self.before(x))))
        return self.head(nn.functional.interpolate(x, scale_factor=2, mode="bilinear").mean((2, 3)))


def test_what_is_not_defined_to_the_bit_is_named() -> None:
    shape = (2, 3, 8, 8)
    model = trained(Floats(), shape)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    report = compiled(model, shape, optimizer=opt).check(10)
    assert "but for rounding in batch_norm, batch_norm_dw, group_norm" in str(report)


def test_train_mode_is_left_with_a_word() -> None:
    shape = (1, 3, 16, 16)
    model = trained(Residual(), shape).train()
    with pytest.warns(UserWarning, match="compiled in eval mode"):
        whet.compile(model, (torch.zeros(shape),), dtype="int8", calibrate=examples(shape))
    with pytest.raises(FrontendError, match="needs no calibration"):
        whet.compile(model, (torch.zeros(shape),), calibrate=examples(shape))
    for bad in ({"x": torch.zeros(shape)}, "images", 3):
        with pytest.raises(DataError, match="a calibration batch is a"):
            whet.compile(model.eval(), (torch.zeros(shape),), dtype="int8", calibrate=[bad])


def test_memory_of_the_published_scheme() -> None:
    """Measured for the published program: an arena of 189,800 bytes, 230,416 of RAM in all."""
    model = models.mcunet_5fps(num_classes=10, folded=True).eval()
    shape = (1, 3, 128, 128)
    program = whet.compile(
        model, (torch.zeros(shape),), dtype="int8", calibrate=[torch.rand(1, 3, 128, 128)],
        update="mcunet-5fps-49kb", portable=True,
    )  # fmt: skip
    assert program.memory["arena"] < 125_000
    assert program.memory["ram"] < 210_000
    kinds = {n.op.name for n in program.entries["train_step"].nodes}
    assert {"stream_i8", "conv2d_i8_fused", "depthwise_i8_fused"} <= kinds
    assert not kinds & {"conv2d_i8", "depthwise_i8", "requantize", "conv2d", "depthwise"}


SCHEMES = {  # of arXiv:2206.15472; the first of all in every run
    "mcunet-5fps": ("99kb", "49kb", "74kb", "124kb", "148kb"),
    "mbv2-w0.35": ("49kb", "73kb", "99kb", "123kb", "138kb"),
    "proxyless-w0.3": ("98kb", "49kb", "74kb", "120kb", "148kb"),
}


@needs_data
@pytest.mark.parametrize(
    "name, scheme",
    [
        pytest.param(name, scheme, marks=[pytest.mark.slow] if n or i else [])
        for n, (name, schemes) in enumerate(SCHEMES.items())
        for i, scheme in enumerate(schemes)
    ],
)
def test_pretrained_networks_train_to_the_bit(name: str, scheme: str) -> None:
    """The networks of arXiv:2206.15472 under its schemes."""
    assert DATA is not None
    path = Path(DATA) / "imagenet-backbones" / f"{name}_int8.npz"
    model = models.load_int8_backbone(path).eval()
    torch.manual_seed(0)
    model.classifier[1] = nn.Linear(model.classifier[1].in_features, 10)
    program = whet.compile(
        model, (torch.zeros(1, 3, 128, 128),), dtype="int8", update=f"{name}-{scheme}"
    )
    report = program.check(20)
    assert report.worst_gradient[1] <= 2e-6
    assert all(a == b for a, b in report.losses)


@needs_data
@pytest.mark.parametrize("name", SCHEMES)
def test_pretrained_networks_keep_their_numbers(name: str) -> None:
    """Weights come back as the integers of the file, and features agree with the float network."""
    assert DATA is not None
    path = Path(DATA) / "imagenet-backbones" / f"{name}_int8.npz"
    model = models.load_int8_backbone(path).eval()
    program = whet.compile(model, (torch.zeros(1, 3, 128, 128),), dtype="int8", update="last")
    graph = program.source.imported().training.graph
    with np.load(path) as archive:
        stem = archive["stem.weight"].transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(graph.data["features.0.0.weight"], stem)
        bias = archive["stem.bias"]
        held = np.clip(bias.astype(np.int64), -MOST, MOST)  # and through float32
        np.testing.assert_allclose(graph.data["features.0.0.bias"], held, rtol=3e-7)
    grid = np.linspace(0, 6, 128)
    wave = np.sin(grid[:, None] * [1, 2, 3]) * np.cos(grid)[:, None, None]
    image = (wave * 100).astype(np.int8)[None]
    found: dict[str, Any] = {}

    def watch(node: Any, arrays: Any) -> Any:
        outs = run_exact(node, arrays)
        found[node.out.name] = outs[0]
        return outs

    predict = program.entries["predict"]
    (leaf,) = predict.leaves_of(Role.INPUT)
    interpret(predict, {leaf.name: image}, execute=watch)
    (features,) = (a for n, a in found.items() if n.endswith(".real"))
    real = program.quants["input"].dequantize(image).transpose(0, 3, 1, 2)
    with torch.no_grad():
        right = model.features(torch.from_numpy(real)).mean((2, 3)).numpy()
    assert np.corrcoef(features.ravel(), right.ravel())[0, 1] > 0.98


def test_gradient_and_step_checks_notice_mistakes() -> None:
    shape = (1, 3, 16, 16)
    program = compiled(trained(Residual(), shape), shape, accumulate=True)
    trainer = program.load()
    batch = ((torch.randn(shape),), torch.tensor([2]))
    trainer._view("last.weight")[:] //= 2
    errors = gradient_errors(trainer, batch)
    assert max(errors.values()) > 1e-3
    with pytest.raises(whet.errors.CheckError, match="differs from its reference after 1 steps"):
        equal_steps(trainer, [batch])


def test_a_check_is_of_the_program_that_was_compiled() -> None:
    """For its machine and with its choices; for a chip, the same program built for this machine."""
    shape = (1, 3, 16, 16)
    model = trained(Residual(), shape)
    plain = compiled(model, shape)
    own = rebuilt(plain, replace(plain.options, machine=Machine(wake=5000.0), grow=False))
    assert runs_here(own) is own and own.files != plain.files
    assert with_gradients(own).options == replace(own.options, accumulate=True)
    chip = compiled(model, shape, target="cortex-m7")
    assert runs_here(chip).options == replace(chip.options, target=target_named("portable"))
    assert str(runs_here(chip).entries["train_step"]) == str(chip.entries["train_step"])


def test_every_gradient_is_measured_by_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is a small part of the whole may not be wrong either."""
    shape = (1, 3, 16, 16)
    trainer = compiled(trained(Residual(), shape), shape, accumulate=True).load()
    batch = ((torch.randn(shape),), torch.tensor([2]))
    trainer.gradients(*batch)
    right = trainer.collected()
    norms = {name: float(np.linalg.norm(array)) for name, array in right.items()}
    least = min(norms, key=norms.__getitem__)
    assert 0 < norms[least] < 1e-4 * max(norms.values())
    wrong = {**right, least: right[least] * np.float32(1.001)}
    monkeypatch.setattr(trainer, "collected", lambda: wrong)
    errors = gradient_errors(trainer, batch)
    assert errors[least] == pytest.approx(1e-3, rel=1e-3)
    assert max(error for name, error in errors.items() if name != least) < 2e-6


def test_a_gradient_that_cancels_is_measured_by_the_whole() -> None:
    """That of a bias that a norm takes out again: 0, but for rounding."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6), nn.Conv2d(6, 4, 3, 2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 4)).eval()
    report = compiled(model, (2, 3, 9, 9)).check(2)
    assert report.gradients["0.bias"] < 1e-5 and report.gradients["0.weight"] < 1e-5
