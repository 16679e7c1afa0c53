"""A compiled program trains as PyTorch does: optimizers, schedules, clipping, state, randomness."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from tiny import Batch, assert_same, convnet, images, mlp, torch_step, vectors
from whet.ir import DType, Type
from whet.ops.random import Dropout

Make = Callable[[nn.Module], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "weight decay": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.05),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "nesterov": lambda m: torch.optim.SGD(
        m.parameters(), lr=0.1, momentum=0.8, weight_decay=0.01, nesterov=True
    ),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    "adam weight decay": lambda m: torch.optim.Adam(
        m.parameters(), lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1
    ),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.02, weight_decay=0.1),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01),
    "rmsprop momentum": lambda m: torch.optim.RMSprop(
        m.parameters(), lr=0.01, alpha=0.9, eps=1e-6, weight_decay=0.05, momentum=0.8
    ),
    "rmsprop centered": lambda m: torch.optim.RMSprop(
        m.parameters(), lr=0.01, weight_decay=0.05, momentum=0.5, centered=True
    ),
    "rmsprop groups": lambda m: torch.optim.RMSprop(
        [{"params": m.fc1.parameters(), "centered": True}, {"params": m.fc2.parameters()}], lr=0.01
    ),
    "groups": lambda m: torch.optim.SGD(
        [
            {"params": m.fc1.parameters(), "lr": 0.01},
            {"params": [m.fc2.weight], "momentum": 0.5},
            {"params": [m.fc2.bias], "lr": 0.4, "weight_decay": 0.2},
        ],
        lr=0.1,
    ),
    "adam groups": lambda m: torch.optim.AdamW(
        [{"params": m.fc1.parameters(), "betas": (0.5, 0.9)}, {"params": m.fc2.parameters()}],
        lr=0.03,
    ),
    "a group at rest": lambda m: torch.optim.SGD(
        [{"params": m.fc1.parameters(), "lr": 0.0}, {"params": m.fc2.parameters()}], lr=0.1
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps_are_those_of_pytorch(name: str) -> None:
    model = mlp()
    optimizer = OPTIMIZERS[name](model)
    start = copy.deepcopy(model.state_dict())
    batches = vectors()
    trainer = whet.compile(model, next(batches)[:1], optimizer=optimizer).load()
    for _ in range(10):
        x, y = next(batches)
        assert trainer.step(x, y) == pytest.approx(torch_step(model, optimizer, x, y), rel=1e-5)
    assert_same(trainer, model)
    assert (trainer.state_dict()["fc2.weight"] - start["fc2.weight"]).norm() > 0.05


@pytest.mark.parametrize("name", ["nesterov", "adam", "adamw", "rmsprop", "rmsprop centered"])
def test_training_goes_on_where_an_optimizer_stands(name: str) -> None:
    """The moments and the step count of the optimizer are compiled in."""
    model = mlp()
    optimizer = OPTIMIZERS[name](model)
    assert_goes_on(model, optimizer, vectors(), steps=5)


def test_moments_of_a_convolution_are_laid_out_as_its_weights() -> None:
    model = convnet(norm=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    assert_goes_on(model, optimizer, images(), steps=3)


def assert_goes_on(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[Batch], steps: int
) -> None:
    """Some steps by PyTorch, then as many by PyTorch and by the program, which agree."""
    for _ in range(steps):
        torch_step(model, optimizer, *next(batches))
    trainer = whet.compile(model, next(batches)[:1], optimizer=optimizer).load()
    for _ in range(steps):
        x, y = next(batches)
        assert trainer.step(x, y) == pytest.approx(torch_step(model, optimizer, x, y), rel=1e-5)
    assert_same(trainer, model)


def test_compiling_leaves_the_model_and_its_optimizer_alone() -> None:
    model = nn.Sequential(convnet(dropout=0.5), Remembering(3, 2)).train()
    model[0].bn.eval()
    optimizer = torch.optim.Adam(model.parameters())
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    whet.compile(model, next(images())[:1], optimizer=optimizer)
    assert [m.training for m in model.modules()] == modes
    assert optimizer.state == {} and all(p.grad is None for p in model.parameters())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_the_rate_can_change_at_every_step() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["adamw"](model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    batches = vectors()
    trainer = whet.compile(model, next(batches)[:1], optimizer=optimizer).load()
    for _ in range(6):
        x, y = next(batches)
        rate = optimizer.param_groups[0]["lr"]
        ours = trainer.step(x, y, lr=rate)
        assert ours == pytest.approx(torch_step(model, optimizer, x, y), rel=1e-5)
        schedule.step()
    assert_same(trainer, model)


def test_a_rate_of_zero_changes_nothing_and_groups_keep_their_ratio() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["groups"](model)
    (x, y), *_ = batches = [next(vectors())]
    trainer = whet.compile(model, batches[0][:1], optimizer=optimizer).load()
    before = trainer.save()
    trainer.step(x, y, lr=0.0)
    parameters = trainer.arrays()
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(parameters[name], p.detach().numpy())
    trainer.load(before)
    for group in optimizer.param_groups:
        group["lr"] *= 3
    trainer.step(x, y, lr=0.03)
    torch_step(model, optimizer, x, y)
    assert_same(trainer, model)


@pytest.mark.parametrize("limit", [0.05, 100.0], ids=["clips", "does not clip"])
def test_gradients_are_clipped_as_by_clip_grad_norm(limit: float) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    batches = vectors()
    x, y = next(batches)
    nn.functional.cross_entropy(model(x), y).backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
    assert 0.05 < norm < 100.0, "one limit is below the norm, one above"
    trainer = whet.compile(model, (x,), optimizer=optimizer, clip_norm=limit).load()
    for _ in range(6):
        x, y = next(batches)
        theirs = torch_step(model, optimizer, x, y, clip_norm=limit)
        assert trainer.step(x, y) == pytest.approx(theirs, rel=1e-5)
    assert_same(trainer, model)


def test_only_what_requires_a_gradient_and_is_in_the_optimizer_is_trained() -> None:
    model = mlp()
    model.fc1.weight.requires_grad = False
    optimizer = torch.optim.SGD([*model.fc1.parameters(), model.fc2.weight], lr=0.1)
    batches = vectors()
    program = whet.compile(model, next(batches)[:1], optimizer=optimizer)
    assert set(program.storage.params) == {"fc1.bias", "fc2.weight"}
    assert set(program.storage.frozen) >= {"fc1.weight", "fc2.bias"}
    trainer = program.load()
    for _ in range(3):
        x, y = next(batches)
        trainer.step(x, y)
        torch_step(model, optimizer, x, y)
    assert_same(trainer, model)
    np.testing.assert_allclose(trainer.predict(x), model(x).detach().numpy(), rtol=1e-4, atol=1e-6)


# Accumulation --------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [None, 0.05])
@pytest.mark.parametrize("name", ["nesterov", "adamw"])
def test_collected_gradients_are_those_of_one_large_batch(
    name: str, clip_norm: float | None
) -> None:
    model = mlp()
    optimizer = OPTIMIZERS[name](model)
    large = vectors(batch=12)
    x, y = next(large)
    whole = whet.compile(model, (x,), optimizer=optimizer, clip_norm=clip_norm).load()
    parts = whet.compile(
        model, (x[:4],), optimizer=optimizer, clip_norm=clip_norm, accumulate=True
    ).load()
    for _ in range(3):
        x, y = next(large)
        losses = [parts.gradients(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]
        if clip_norm is None:
            model.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            for key, p in model.named_parameters():
                sums = parts.collected()[key]
                np.testing.assert_allclose(sums / 3, p.grad.numpy(), rtol=1e-4, atol=1e-7)
        parts.apply(scale=1 / 3)
        assert all(not g.any() for g in parts.collected().values()), "apply clears"
        theirs = torch_step(model, optimizer, x, y, clip_norm=clip_norm)
        assert np.mean(losses) == pytest.approx(theirs, rel=1e-5)
        assert whole.step(x, y) == pytest.approx(theirs, rel=1e-5)
    assert_same(whole, model)
    assert_same(parts, model)


def test_collecting_changes_no_parameter_and_steps_can_be_mixed() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["adam"](model)
    batches = vectors()
    trainer = whet.compile(model, next(batches)[:1], optimizer=optimizer, accumulate=True).load()
    for turn in range(4):
        x, y = next(batches)
        before = trainer.arrays()
        if turn % 2:
            trainer.gradients(x, y)
            for name, array in trainer.arrays().items():
                np.testing.assert_array_equal(array, before[name])
            trainer.apply()
        else:
            trainer.step(x, y)
        torch_step(model, optimizer, x, y)
    assert_same(trainer, model)


# Dropout -------------------------------------------------------------------------------------

N, P = 4096, 0.3


class Masked(nn.Module):
    """The gradient of the sum of its output for `w` is the dropout mask, scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, N))
        self.first, self.second = nn.Dropout(P), nn.Dropout(P)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (torch.stack([self.first(self.w + x), self.second(self.w + x)]),)


@pytest.fixture(scope="module")
def masked() -> whet.Program:
    def weighted_sum(output: Tensor, weights: Tensor) -> Tensor:
        return (output * weights).sum()

    return whet.compile(
        Masked().train(), (torch.zeros(N),), loss=weighted_sum, labels=torch.ones(2, N),
        accumulate=True,
    )  # fmt: skip


def mask(trainer: whet.Trainer, site: int = 0) -> np.ndarray:
    """What one site lets through in the next step, as 0 or 1 / (1 - P)."""
    weights = np.zeros((2, N), np.float32)
    weights[site] = 1
    before = trainer.save()
    trainer.gradients(np.zeros(N, np.float32), weights)
    found = trainer.collected()["w"]
    trainer.load(before)
    return found


def test_the_mask_in_c_is_the_reference_bit_for_bit(masked: whet.Program) -> None:
    trainer = masked.load()
    ones = np.ones(N, np.float32)
    for seed, steps in ((0, 0), (1, 0), (1, 3), (0xFFFFFFFF, 1)):
        trainer.seed(seed)
        for _ in range(steps):
            trainer.step(np.zeros(N, np.float32), np.ones((2, N), np.float32), lr=0.0)
        for site in (0, 1):
            rng = np.array([seed, steps], np.uint32).view(np.int32)
            right = Dropout.ref(Dropout.Attrs(p=P, site=site), ones, rng)
            np.testing.assert_array_equal(mask(trainer, site), right)


def test_masks_have_the_right_rate_and_differ(masked: whet.Program) -> None:
    trainer = masked.load()
    trainer.seed(5)
    masks = [mask(trainer, 0), mask(trainer, 1)]
    trainer.step(np.zeros(N, np.float32), np.ones((2, N), np.float32), lr=0.0)
    masks.append(mask(trainer, 0))
    trainer.seed(6)
    masks.append(mask(trainer, 0))
    sigma = np.sqrt(P * (1 - P) / N)
    for m in masks:
        assert set(np.unique(m)) == {np.float32(0), np.float32(1 / (1 - P))}
        assert abs((m == 0).mean() - P) < 4 * sigma
    for i, one in enumerate(masks):
        for other in masks[:i]:
            both = ((one == 0) & (other == 0)).mean()
            assert abs(both - P * P) < 4 * np.sqrt(P * P * (1 - P * P) / N), "independent"


def test_equal_seeds_give_equal_training(masked: whet.Program) -> None:
    one, two = masked.load(), masked.load()
    x, y = np.zeros(N, np.float32), np.ones((2, N), np.float32)

    def run(trainer: whet.Trainer, seed: int) -> list[float]:
        trainer.load(start)
        trainer.seed(seed)
        return [trainer.step(x, y, lr=0.1) for _ in range(3)]

    start = one.save()
    assert run(one, 3) == run(two, 3) == run(one, 3)
    assert run(one, 3) != run(one, 4)


def test_dropout_is_off_in_prediction(masked: whet.Program) -> None:
    trainer = masked.load()
    x = np.random.default_rng(0).normal(size=N).astype(np.float32)
    right = trainer.arrays()["w"] + x
    np.testing.assert_array_equal(trainer.predict(x), np.stack([right, right]))


def test_a_model_in_eval_mode_draws_no_random_numbers() -> None:
    model = convnet(dropout=0.5).eval()
    program = whet.compile(model, next(images())[:1])
    assert "rng" not in program.storage.state
    ops = {n.op.name for g in program.entries.values() for n in g.nodes}
    assert "dropout" not in ops and "batch_norm_train" not in ops


# State of the model itself -------------------------------------------------------------------


def test_running_statistics_end_where_pytorch_has_them() -> None:
    model = convnet().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = images(batch=3)
    x, _ = next(batches)
    trainer = whet.compile(model, (x,), optimizer=optimizer).load()
    for _ in range(8):
        x, y = next(batches)
        assert trainer.step(x, y) == pytest.approx(torch_step(model, optimizer, x, y), rel=1e-5)
    assert_same(trainer, model)
    assert {"bn.running_mean", "bn.running_var"} <= set(trainer.state_dict())
    right = model.eval()(x).detach().numpy()
    np.testing.assert_allclose(trainer.predict(x), right, rtol=1e-4, atol=1e-5)
    model.train()
    changed = model(x).detach().numpy()
    assert np.abs(changed - right).max() > 1e-2, "eval mode makes a difference here"


def test_a_frozen_batch_norm_inside_a_model_in_training_stays_frozen() -> None:
    model = convnet().train()
    model.bn.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = images()
    trainer = whet.compile(model, next(batches)[:1], optimizer=optimizer).load()
    for _ in range(3):
        x, y = next(batches)
        trainer.step(x, y)
        torch_step(model, optimizer, x, y)
    assert "bn.running_mean" not in trainer.state_dict()
    assert_same(trainer, model)


class Remembering(nn.Module):
    """Buffers that are used after they change, and one that takes over another's old value."""

    def __init__(self, width: int = 5, batch: int = 4) -> None:
        super().__init__()
        self.fc = nn.Linear(width, 3)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("last", torch.zeros(batch, width))
        self.register_buffer("before_last", torch.zeros(batch, width))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.5).add_(0.5 * x.detach().mean(0))
        oldest = self.before_last
        self.before_last = self.last
        self.last = x.detach()
        return self.fc(x - self.mean + 0.1 * (x - oldest))


def test_buffers_of_a_model_change_as_in_pytorch() -> None:
    torch.manual_seed(0)
    model = Remembering()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = vectors()
    trainer = whet.compile(model, next(batches)[:1], optimizer=optimizer).load()
    for _ in range(4):
        x, y = next(batches)
        assert trainer.step(x, y) == pytest.approx(torch_step(model, optimizer, x, y), rel=1e-5)
        assert set(trainer.state_dict()) == set(model.state_dict())
        assert_same(trainer, model)


# Going back and forth ------------------------------------------------------------------------


def test_what_was_trained_goes_back_into_pytorch_by_name() -> None:
    model = convnet(seed=0).train()
    batches = images()
    x, _ = next(batches)
    trainer = whet.compile(model, (x,)).load()
    for _ in range(3):
        trainer.step(*next(batches), lr=0.1)
    fresh = convnet(seed=9)
    missing = fresh.load_state_dict(trainer.state_dict(), strict=False)
    assert missing.unexpected_keys == [] and missing.missing_keys == []
    right = fresh.eval()(x).detach().numpy()
    np.testing.assert_allclose(trainer.predict(x), right, rtol=1e-5, atol=1e-6)


def test_a_state_dict_can_be_put_in_from_pytorch() -> None:
    x, _ = next(images())
    trainer = whet.compile(convnet(seed=0).train(), (x,)).load()
    other = convnet(seed=9).eval()
    trainer.load_state_dict(other.state_dict())
    right = other(x).detach().numpy()
    np.testing.assert_allclose(trainer.predict(x), right, rtol=1e-5, atol=1e-6)
    for name, tensor in trainer.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_a_checkpoint_continues_training_exactly() -> None:
    model = convnet(dropout=0.3).train()
    batches = images()
    x, _ = next(batches)
    program = whet.compile(model, (x,), optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))
    one, two = program.load(), program.load()
    one.seed(3)
    for _ in range(3):
        one.step(*next(batches))
    two.load(one.save())
    for _ in range(3):
        x, y = next(batches)
        assert one.step(x, y) == two.step(x, y)
    assert one.save() == two.save()


def test_a_checkpoint_file_is_the_bytes_save_returns(tmp_path: Any) -> None:
    program = whet.compile(mlp(), next(vectors())[:1])
    one, two = program.load(), program.load()
    one.step(*next(vectors()))
    blob = one.save(tmp_path / "checkpoint.bin")
    assert (tmp_path / "checkpoint.bin").read_bytes() == blob
    two.load(tmp_path / "checkpoint.bin")
    assert two.save() == blob


def test_two_networks_side_by_side_are_independent() -> None:
    batches = vectors()
    x, y = next(batches)
    program = whet.compile(mlp(), (x,), optimizer=None)
    other = whet.compile(mlp(seed=5), (x,))
    one, two, three = program.load(), program.load(), other.load()
    still = two.save(), three.save()
    alone = [one.step(*next(batches), lr=0.1) for _ in range(3)]
    assert (two.save(), three.save()) == still
    batches = vectors()
    next(batches)
    mixed = []
    for _ in range(3):
        x, y = next(batches)
        mixed.append(two.step(x, y, lr=0.1))
        three.step(x, y, lr=0.3)
        three.predict(x)
    assert mixed == alone
    assert two.save() == one.save() != three.save()


def test_prediction_changes_nothing_but_the_arena() -> None:
    x, _ = next(vectors())
    trainer = whet.compile(mlp(), (x,)).load()
    before = trainer.save()
    first = trainer.predict(x)
    assert trainer.save() == before
    np.testing.assert_array_equal(trainer.predict(x), first)
    np.testing.assert_allclose(first, mlp()(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_numpy_and_torch_tensors_are_taken_alike() -> None:
    x, y = next(vectors())
    program = whet.compile(mlp(), (x,))
    one, two = program.load(), program.load()
    ours = one.step(x.double().numpy(), y.numpy().astype(np.int16))
    assert ours == two.step((x,), y)
    strided = torch.empty(5, 4).copy_(x.T).T
    assert not strided.is_contiguous()
    np.testing.assert_array_equal(one.predict(strided), one.predict(x))


def test_the_borders_of_a_program_have_pytorchs_shapes() -> None:
    x, _ = next(images())
    program = whet.compile(convnet(), (x,))
    assert program.tensors["input"].shape == (2, 3, 6, 4)
    assert program.tensors["input"].type == Type(DType.F32, (2, 6, 4, 3)), "stored channels last"
    assert program.tensors["stem.weight"].shape == (4, 3, 3, 3)
    assert program.load().predict(x).shape == (2, 3)
