"""What model.h says about the order of axes is how a program reads its arrays, for every rank."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from whet.emit.program import Program
from whet.ir import Array
from whet.ir.axes import in_words, names_by_order, plain_names


class Ids(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(ids)).mean(1))


def pooled(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


class Moved(nn.Module):
    """Axes that the model moves before its layer: what they are for is not known."""

    def __init__(self, layer: nn.Module, *order: int) -> None:
        super().__init__()
        self.layer, self.order = pooled(layer), order

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.permute(*self.order))


class Steps(nn.Module):
    """Samples are the second axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][-1]


# A model, an example of its input, and what model.h says about it and about the output.
CASES = {
    "vectors": (
        pooled(nn.Linear(5, 4), nn.Tanh()), torch.randn(2, 5),
        "2 x 5: N x D, as in PyTorch", "2 x 3: N x D, as in PyTorch",
    ),
    "ids": (
        Ids(), torch.randint(9, (2, 6)),
        "2 x 6: N x D, as in PyTorch", "2 x 3: N x D, as in PyTorch",
    ),
    "sequences": (
        pooled(nn.Conv1d(6, 4, 3), nn.Tanh()), torch.randn(2, 6, 8),
        "2 x 6 x 8: N x C x L, as in PyTorch", "2 x 3: N x D, as in PyTorch",
    ),
    "sequences, scaled first": (
        nn.Sequential(nn.Tanh(), pooled(nn.Conv1d(6, 4, 3))), torch.randn(1, 6, 8),
        "1 x 6 x 8: N x C x L, as in PyTorch", "1 x 3: N x D, as in PyTorch",
    ),
    "tokens": (
        pooled(nn.Linear(8, 2), nn.Tanh()), torch.randn(2, 6, 8),
        "2 x 6 x 8: N x D1 x D2, as in PyTorch", "2 x 3: N x D, as in PyTorch",
    ),
    "pictures": (
        pooled(nn.Conv2d(3, 4, 3), nn.Tanh()), torch.randn(2, 3, 6, 5),
        "2 x 6 x 5 x 3: N x H x W x C, channels last; PyTorch has N x C x H x W",
        "2 x 3: N x D, as in PyTorch",
    ),
    "pictures to pictures": (
        nn.Conv2d(3, 4, 3), torch.randn(2, 3, 6, 5),
        "2 x 6 x 5 x 3: N x H x W x C, channels last; PyTorch has N x C x H x W",
        "2 x 4 x 3 x 4: N x H x W x C, channels last; PyTorch has N x C x H x W",
    ),
    "sequences to sequences": (
        nn.Conv1d(3, 4, 3), torch.randn(2, 3, 6),
        "2 x 3 x 6: N x C x L, as in PyTorch",
        "2 x 4 x 4: N x L x C, channels last; PyTorch has N x C x L",
    ),
    "one picture": (
        nn.Conv2d(3, 4, 3), torch.randn(3, 6, 5),
        "3 x 6 x 5: C x H x W, as in PyTorch",
        "4 x 3 x 4: H x W x C; PyTorch has C x H x W",
    ),
    "sequences, channels last": (
        Moved(nn.Conv1d(8, 4, 3), 0, 2, 1), torch.randn(2, 8, 8),
        "2 x 8 x 8: N x D1 x D2, as in PyTorch", "2 x 3: N x D, as in PyTorch",
    ),
    "pictures, channels last": (
        Moved(nn.Conv2d(6, 4, 3), 0, 3, 1, 2), torch.randn(2, 6, 6, 6),
        "2 x 6 x 6 x 6: N x D2 x D3 x D1; PyTorch has N x D1 x D2 x D3",
        "2 x 3: N x D, as in PyTorch",
    ),
    "four axes": (
        pooled(nn.Linear(5, 2)), torch.randn(2, 3, 4, 5),
        "2 x 4 x 5 x 3: N x D2 x D3 x D1; PyTorch has N x D1 x D2 x D3",
        "2 x 3: N x D, as in PyTorch",
    ),
    "samples second": (
        Steps(), torch.randn(5, 2, 4),
        "5 x 2 x 4: D1 x D2 x D3, as in PyTorch", "2 x 3: D1 x D2, as in PyTorch",
    ),
    "five axes": (
        pooled(nn.Linear(3, 2), nn.Tanh()), torch.randn(2, 3, 2, 4, 3),
        "2 x 3 x 2 x 4 x 3: N x D1 x D2 x D3 x D4, as in PyTorch", "2 x 3: N x D, as in PyTorch",
    ),
}  # fmt: skip


def compiled(case: str, **options: str) -> tuple[nn.Module, Tensor, Tensor, Program]:
    torch.manual_seed(0)
    model, x, *_ = CASES[case]
    output = model(x)  # a lazy layer finds its size
    is_class = output.ndim == 2
    loss = nn.CrossEntropyLoss() if is_class else nn.MSELoss()
    y = torch.arange(len(output)) % 3 if is_class else torch.randn(output.shape)
    return model, x, y, whet.compile(model.eval(), (x,), loss=loss, **options)


def notes(header: str) -> dict[str, str]:
    """What a header says about each array, however many lines that takes."""
    found = re.findall(r"/\* (input|label|output): (.*?) \*/\n#define", header, re.DOTALL)
    return {name: re.sub(r"\s*\n \*\s*", " ", note) for name, note in found}


def laid_out(array: Array, note: str) -> Array:
    """An array of PyTorch's as a reader of the note would store it."""
    sizes, _, words = note.partition(": ")
    stored, _, theirs = words.partition("; PyTorch has ")
    names = re.sub(r", .*", "", stored).split(" x ")
    original = theirs.split(" x ") if theirs else names
    moved = array.transpose([original.index(name) for name in names])
    assert list(moved.shape) == [int(n) for n in sizes.split(" x ")]
    return np.ascontiguousarray(moved)


@pytest.mark.parametrize("case", CASES)
def test_a_file_laid_out_by_the_header_trains_as_in_pytorch(case: str, tmp_path: Path) -> None:
    model, x, y, program = compiled(case, target="portable")
    folder = program.write(tmp_path)
    said = notes((folder / "model.h").read_text())
    _, _, of_input, of_output = CASES[case]
    assert (said["input"], said["output"]) == (of_input, of_output)
    main = (folder / "main.c").read_text()
    for name, note in said.items():
        assert re.search(rf" \*   {name} +{re.escape(note)}\n", main), "main.c says the same"

    ids = {torch.int64: np.int32, torch.float32: np.float32}
    arrays = [
        laid_out(t.numpy().astype(ids[t.dtype]), said[n]) for n, t in (("input", x), ("label", y))
    ]
    (folder / "data.bin").write_bytes(b"".join(a.tobytes() for a in arrays))
    subprocess.run(["make", "-s", "CFLAGS=-O1 -ffp-contract=off"], cwd=folder, check=True)
    done = subprocess.run(
        ["./net", "data.bin", "1"], cwd=folder, check=True, capture_output=True, text=True
    )
    (loss,) = re.findall(r"step +1  loss ([\d.]+)", done.stdout)
    criterion = nn.CrossEntropyLoss() if y.dtype == torch.int64 else nn.MSELoss()
    assert float(loss) == pytest.approx(float(criterion(model(x), y).detach()), abs=2e-6)

    output = program.load().predict(x)
    (info,) = program.outputs
    assert info.axes == of_output
    stored = output.transpose(info.order)
    assert np.array_equal(laid_out(output, of_output), stored), "and so does what comes out"


@pytest.mark.parametrize("case", ["sequences", "pictures"])
def test_firmware_says_the_same(case: str) -> None:
    *_, program = compiled(case, target="cortex-m7")
    files = {name: program.files[name].decode() for name in ("model.h", "main.c", "samples.h")}
    for name, note in notes(files["model.h"]).items():
        assert re.search(rf" \*   {name} +{re.escape(note)}\n", files["main.c"])
        if name != "output":
            assert f"/* {note} */" in files["samples.h"]


def test_pages_quote_what_is_generated() -> None:
    page = (Path(__file__).parents[2] / "docs" / "microcontrollers.md").read_text()
    for case in ("sequences", "pictures"):
        words = CASES[case][2].partition(": ")[2].partition(";")[0]
        assert f"`{words}`" in page


def test_any_order_of_axes_can_be_said() -> None:
    assert in_words(("A", "B", "C"), (2, 0, 1)) == "C x A x B; PyTorch has A x B x C"
    assert in_words(("N",), (0,)) == "N, as in PyTorch"
    assert plain_names(1) == ("N",)
    assert names_by_order((0, 2, 3, 4, 1)) == ("N", "C", "D", "H", "W")
