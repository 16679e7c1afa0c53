"""Losses that take several targets, or more of a model than its prediction."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whet
from tiny import convnet, mlp
from whet.errors import DataError, FrontendError

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
LABELS = (torch.tensor([0, 2, 1, 2]), torch.linspace(-1, 1, 12).reshape(4, 3))


def both(output: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
    names, scores = target
    return F.cross_entropy(output, names) + 0.5 * F.mse_loss(output, scores)


def compiled(**options: Any) -> whet.Program:
    return whet.compile(mlp(), (X,), loss=both, labels=LABELS, **options)


class Hidden(nn.Module):
    """Returns what its hidden layer has computed, too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> whet.Outputs:
        hidden = torch.tanh(self.net.fc1(x))
        return whet.Outputs(self.net.fc2(hidden), (hidden,))


def near(output: whet.Outputs, target: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(output.prediction, target[0]) + F.mse_loss(output.others[0], target[1])


def test_every_label_has_a_name_and_a_size() -> None:
    header = compiled().files["model.h"].decode()
    assert "const int32_t *label,\n" in header and "const float *label_1," in header
    assert "#define NET_LABEL_ELEMENTS 4\n" in header
    assert "#define NET_LABEL_1_ELEMENTS 12\n" in header
    assert "typedef int32_t net_label_t;\ntypedef float net_label_1_t;\n" in header


def test_a_step_is_pytorchs() -> None:
    program = compiled(accumulate=True)
    report = program.check()
    assert len(report.gradients) == 4 and max(report.gradients.values()) < 1e-5
    model, trainer = mlp(), program.load()
    loss = both(model(X), LABELS)
    assert trainer.step(X, LABELS) == pytest.approx(loss.item(), rel=1e-6)
    assert trainer.predict(X).shape == (4, 3)


def test_labels_that_do_not_fit() -> None:
    trainer = compiled().load()
    with pytest.raises(DataError, match="the loss takes 2 labels, got 1"):
        trainer.step(X, LABELS[0])
    with pytest.raises(DataError, match="the loss takes 2 labels, got 3"):
        trainer.step(X, (*LABELS, X))
    with pytest.raises(DataError, match=r"label_1 has shape \(4, 2\)"):
        trainer.step(X, (LABELS[0], LABELS[1][:, :2]))
    with pytest.raises(DataError, match="a label or id is out of range"):
        trainer.step(X, (LABELS[0] + 1, LABELS[1]))
    with pytest.raises(FrontendError, match="must be a tensor, or a tuple of tensors"):
        whet.compile(mlp(), (X,), loss=both, labels=[LABELS])
    search = whet.Workbench.of(mlp(), (X,), loss=both, labels=LABELS)
    with pytest.raises(DataError, match="the loss takes 2 labels, the data have one"):
        search.check_samples((X.numpy(),), LABELS[0].numpy())


def test_one_label_may_stand_in_a_tuple() -> None:
    program = whet.compile(
        mlp(), (X,), loss=lambda out, target: F.mse_loss(out, target[0]), labels=LABELS[1:]
    )
    program.check(steps=2)
    plain = whet.compile(mlp(), (X,), loss="mse").load()
    assert program.load().step(X, LABELS[1:]) == plain.step(X, LABELS[1])
    alone = whet.compile(mlp(), (X[:1],)).load()
    assert alone.step(X[:1], (2,), lr=0.0) == alone.step(X[:1], LABELS[0][1:2], lr=0.0)


def test_a_loss_takes_more_than_the_prediction() -> None:
    labels = LABELS[0], torch.linspace(-1, 1, 32).reshape(4, 8)
    program = whet.compile(Hidden(), (X,), loss=near, labels=labels)
    assert max(program.check().gradients.values()) < 1e-5
    trainer = program.load()
    assert trainer.step(X, labels, lr=0.0) == pytest.approx(near(Hidden()(X), labels).item())
    np.testing.assert_allclose(trainer.predict(X), mlp()(X).detach().numpy(), rtol=1e-5)
    assert [value.type.shape for value in program.entries["predict"].outputs] == [(4, 3)]


def test_an_image_as_a_label_lies_as_images_do() -> None:
    """Model and map are stored channels last, from arrays in PyTorch's order."""
    model = convnet()
    x = torch.randn(2, 3, 6, 4)
    weighed = torch.randn(2, 3, 6, 4)

    def loss(output: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(output, target[0]) + (output * target[1].mean((2, 3))).sum()

    program = whet.compile(model.eval(), (x,), loss=loss, labels=(torch.tensor([0, 1]), weighed))
    program.check(steps=2)
    assert program.axes["label_1"].startswith("2 x 6 x 4 x 3: N x D2 x D3 x D1")


def test_the_example_program_of_the_host_reads_both(tmp_path: Path) -> None:
    program = compiled()
    folder = program.write(tmp_path)
    subprocess.run(["make", "-s"], cwd=folder, check=True, capture_output=True)
    parts = [X.numpy(), LABELS[0].numpy().astype(np.int32), LABELS[1].numpy()]
    (tmp_path / "data.bin").write_bytes(b"".join(part.tobytes() for part in parts))
    run = subprocess.run(
        ["./net", "data.bin", "1", "0.01"], cwd=folder, check=True, capture_output=True, text=True
    )
    loss = program.load().step(X, LABELS, lr=0.01)
    assert f"loss {loss:.6f}" in run.stdout


def test_a_board_takes_several_labels(tmp_path: Path) -> None:
    assert shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"), "make setup-mcu"
    chip, here = compiled(target="cortex-m7"), compiled(portable=True).load()
    with chip.load() as board:
        theirs = [board.step(X, LABELS) for _ in range(3)]
        assert theirs == [here.step(X, LABELS) for _ in range(3)]
        assert board.predict(X).tobytes() == here.predict(X).tobytes()
    assert board.watched.outside == 0
    twice = torch.cat([X, X]), tuple(torch.cat([y, y]) for y in LABELS)
    chip.write(tmp_path, samples=twice)
    text = (tmp_path / "samples.h").read_text()
    assert "#define NET_SAMPLES 2" in text and "net_label_1_t label_1[" in text
    subprocess.run(["make", "-s"], cwd=tmp_path, check=True, capture_output=True)
    with pytest.raises(DataError, match="there are 8 inputs and 4 and 8 labels"):
        chip.write(tmp_path, samples=(twice[0], (LABELS[0], twice[1][1])))


def test_integers_train_with_several_labels() -> None:
    program = compiled(dtype="int8", calibrate=[X])
    program.check(steps=3)
    trainer = program.load()
    first, *_, last = [trainer.step(X, LABELS, lr=0.1) for _ in range(50)]
    assert last < 0.9 * first
