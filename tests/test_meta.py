"""Planning a model on PyTorch's meta device: the same bytes, without any weights."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import whet
from whet.errors import BuildError, FrontendError, SchemeError
from whet.ir import is_meta, meta_array
from whet.llm import causal_lm_loss
from whet.models import lenet
from whet.models.llama import Llama, LlamaConfig
from whet.report.layers import layers

SMALL = LlamaConfig(
    vocabulary=320, width=64, hidden=96, blocks=2, heads=4, kv_heads=2, head=16, context=16
)
IDS = torch.zeros(1, 12, dtype=torch.int64)


def language_model(device: str, config: LlamaConfig = SMALL) -> whet.Program:
    return compiled(device, "full", None, config)


def compiled(
    device: str, update: str, frozen: str | None, config: LlamaConfig = SMALL
) -> whet.Program:
    torch.manual_seed(0)
    with torch.device(device):
        model = Llama(config).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return whet.compile(
        model, (IDS,), loss=causal_lm_loss, labels=IDS, optimizer=optimizer, update=update,
        frozen=frozen,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("update", "frozen"),
    [
        ("full", None),
        ("sparse-1", "q4_1"),
        ("lora-1", "int8"),
        ("sparse-1", "kmeans4"),
        pytest.param("last-1", "q8_0", marks=pytest.mark.slow),
        pytest.param("lora-1", "q4_0", marks=pytest.mark.slow),
    ],
)
def test_the_plan_is_that_of_the_model_with_weights(update: str, frozen: str | None) -> None:
    real, meta = compiled("cpu", update, frozen), compiled("meta", update, frozen)
    assert meta.memory == real.memory
    assert layers(meta) == layers(real)
    assert meta.plans["train_step"].buffers and meta.narrow_forms == real.narrow_forms
    said, expected = (
        [line for line in p.report().splitlines() if "the largest error" not in line]
        for p in (meta, real)
    )
    assert said == expected


def test_parts_of_weights_and_networks_of_pictures_are_planned_too() -> None:
    x = torch.randn(2, 1, 28, 28)
    scheme = whet.Scheme([whet.Rule("fc*.weight", channels=0.25), whet.Rule("*.bias")])
    with torch.device("meta"):
        meta = lenet()
    for model in (nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                                nn.Linear(8 * 26 * 26, 10)).eval(),):  # fmt: skip
        real = whet.plan(model, (x,), "bias+last")
        assert whet.plan(model.to("meta"), (x,), "bias+last") == real
    for frozen in (None, "int8"):
        now = whet.plan(meta, (x,), scheme, frozen=frozen)
        assert now == whet.plan(lenet(), (x,), scheme, frozen=frozen)


def test_what_needs_weights_is_refused(tmp_path: Path) -> None:
    program = language_model("meta")
    for use in (
        program.load,
        program.check,
        lambda: program.write(tmp_path),
        lambda: program.save(tmp_path / "program.whet"),
        lambda: program.files,
    ):
        with pytest.raises(BuildError, match="can only be planned") as error:
            use()
        assert "load_state_dict" in str(error.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SchemeError, match="needs the values"):
        compiled("meta", "last", "gguf")
    x = torch.randn(1, 1, 28, 28)
    with pytest.raises(FrontendError, match="needs the values"):
        whet.compile(lenet().to("meta"), (x,), dtype="int8", calibrate=[x])


class Masked(nn.Module):
    """Adds a buffer where another is not zero."""

    def __init__(self, read: bool) -> None:
        super().__init__()
        self.fc, self.read = nn.Linear(4, 4), read
        self.register_buffer("mask", torch.tensor([0, 1, 1, 0]))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x) + self.shift
        return torch.where(self.mask != 0, y, 0.0) if self.read else y


def test_a_buffer_that_a_plan_may_depend_on_needs_its_values() -> None:
    x = torch.randn(3, 4)
    assert whet.plan(Masked(False).to("meta"), (x,)) == whet.plan(Masked(False), (x,))
    with pytest.raises(FrontendError, match="'mask' has no values"):
        whet.plan(Masked(True).to("meta"), (x,))
    model = Masked(True).to("meta")
    model.mask = torch.tensor([0, 1, 1, 0])
    assert whet.plan(model, (x,)) == whet.plan(Masked(True), (x,))


def test_values_that_do_not_exist_are_not_made_up() -> None:
    array = meta_array((1 << 20, 1 << 20), np.float32, "weight")
    for alike in (array.T, array[3:], array.reshape(-1), array * 2, array.copy(), array != 0):
        assert is_meta(alike) and alike.strides == (0,) * alike.ndim
    assert (array != 0).dtype == bool and (array * 2).shape == array.shape
    for use in (array.any, array.max, array.tobytes, lambda: (array == 0).all()):
        with pytest.raises(FrontendError, match=r"weight.* has no values"):
            use()


def test_no_weight_is_allocated() -> None:
    """Three blocks, 10 GB."""
    language_model("meta")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wide = LlamaConfig(
        vocabulary=8192, width=8192, hidden=22528, blocks=3, heads=4, kv_heads=4, head=2048,
        context=16,
    )  # fmt: skip
    program = compiled("meta", "sparse-1", "q4_1", wide)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert program.parameters > 2_500_000_000 and grown < 200 << 10, f"{grown} KiB"
