"""Compressed files: the same numbers back, and sizes to the byte."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tiny import ConvNet, mlp
from whet.errors import CheckpointError, DataError
from whet.labs.compress.centroids import hold_shared, release
from whet.labs.compress.fields import Damaged
from whet.labs.compress.sharing import round_to_f16, share
from whet.labs.compress.storage import decode, encode, load, measure, read, save
from whet.labs.compress.tensors import absolute, relative

METHOD_OF_A_WEIGHT = {
    (1.0, None): "raw",
    (1.0, 4): "codebook",
    (0.1, None): "sparse",
    (0.1, 4): "sparse codebook",
    (0.7, 1): "codebook",
}


def lenet_300_100(density: float | None = None, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    model = nn.Sequential(*layers)
    return thinned(model, density) if density is not None else model


def thinned(model: nn.Module, density: float) -> nn.Module:
    """Normal weights, pruned at random, as a mask does it: half of the zeros are -0.0."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_()
                parameter *= torch.rand_like(parameter) < density
    return model


def same_bits(one: nn.Module, other: nn.Module) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        a, b = ((t + 0 if t.is_floating_point() else t).numpy() for t in (tensor, second[name]))
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name


@pytest.mark.parametrize(("density", "bits"), METHOD_OF_A_WEIGHT)
def test_a_model_comes_back_to_the_bit(density: float, bits: int | None, tmp_path: Path) -> None:
    model = thinned(nn.Sequential(nn.Linear(60, 50), nn.BatchNorm1d(50)), density)
    model(torch.randn(9, 60))
    if bits is not None:
        share(model, bits)
    path = tmp_path / "model.whtc"
    sizes = save(model, path)
    assert sizes["0.weight"].method == METHOD_OF_A_WEIGHT[density, bits]
    assert sizes.total == path.stat().st_size == measure(model).total
    other = nn.Sequential(nn.Linear(60, 50), nn.BatchNorm1d(50))
    assert load(path, other) is other
    same_bits(model, other)
    assert other[1].num_batches_tracked.item() == 1 and other[1].num_batches_tracked.shape == ()
    assert [p.name for p in tmp_path.iterdir()] == ["model.whtc"]


def test_sizes_account_for_every_byte() -> None:
    """Each kind of byte, against what it must be for 1,000 weights of which every tenth lives."""
    weight = np.zeros(1000, np.float32)
    weight[9::10] = np.tile([0.1, -0.2, 0.3, -0.4], 25).astype(np.float32)
    blob, sizes = encode({"w": weight})
    (found,) = sizes.tensors
    assert (found.method, found.elements, found.nonzeros, found.dense) == (
        "sparse codebook", 1000, 100, 4000)  # fmt: skip
    assert (found.codebook, found.indices, found.values) == (16, 25, 0)
    assert sizes.header == 21 and found.bits == 8 * (25 + found.positions) / 100
    # filler and rest in 3 bits (7 + 2), which are two symbols as frequent: one bit each, 25 bytes;
    # a table of 8 lengths. Nine zeros in 4 bits would take 50.
    assert (found.positions, found.tables) == (25, 4)
    assert len(blob) == sizes.total == 21 + 25 + 4 + 16 + 25 + found.header
    assert sizes.ratio == 4000 / len(blob)
    assert sizes.as_dict()["header"] == 21 + found.header
    np.testing.assert_array_equal(decode(blob)["w"], weight)


def test_the_table_says_the_same_as_text_and_in_markdown() -> None:
    sizes = measure(thinned(mlp(), 1.0))
    lines = str(sizes).splitlines()
    assert lines[0].split()[0] == "tensor" and lines[-2].split()[0] == "file"
    assert lines[-1].startswith(f"{sizes.total:,} bytes, {sizes.ratio:.1f} times")
    assert lines[1].split()[:3] == ["fc1.weight", "raw", "40"]
    table = [line.strip("| ").split(" | ") for line in sizes.markdown().splitlines()]
    assert [row[0] for row in table[2:]] == [t.name for t in sizes.tensors] + ["file"]
    assert int(table[-1][10].replace(",", "")) == sizes.total


@pytest.mark.parametrize(
    "array",
    [
        np.array(3, np.int64),
        np.array(-(2**40)),
        np.array([True, False, True]),
        np.zeros((0, 3), np.float32),
        np.zeros((5, 4, 3)),
        np.ones(1, np.float16),
        np.array([1e-300, math.pi, math.inf]),
        np.arange(-128, 128, dtype=np.int8),
        np.arange(70_000, dtype=np.int32),
        np.array([0.5, 0.25, 65504.0], np.float32),
        np.frombuffer(bytes.fromhex("010080 7f ffffffff 000080ff 000000000000807f"), "<f4"),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::2],
        np.arange(3, dtype=">f4"),
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)
def test_arrays_of_every_type_come_back(array: np.ndarray) -> None:
    """NaN with any content, infinity, scalars, empty arrays, other strides and byte orders."""
    blob, sizes = encode({"a": array, "b": array})
    for found in decode(blob).values():
        assert found.dtype == array.dtype.newbyteorder("=") and found.shape == array.shape
        np.testing.assert_array_equal(found.view(), array)
        assert found.tobytes() == array.astype(found.dtype).tobytes()
        assert found.flags.writeable
    assert sizes["b"].total <= sizes["a"].total and len(blob) == sizes.total


def test_small_numbers_are_stored_in_small_types() -> None:
    def bytes_of(array: np.ndarray) -> int:
        return encode({"a": array})[1]["a"].values

    rising = np.arange(1, 120)
    assert bytes_of(rising.astype(np.float32)) == bytes_of(rising) == 119
    assert bytes_of((rising / 256).astype(np.float32)) == 2 * 119
    assert bytes_of((rising / 3).astype(np.float32)) == 4 * 119
    assert bytes_of(np.arange(1000)) == 2 * 1000
    assert bytes_of((rising / 3).astype(np.float16).astype(np.float64)) == 2 * 119


def test_minus_zero_becomes_zero_and_nothing_else_changes() -> None:
    given = np.array([-0.0, 1.0, -1.0, np.nan, 5e-324], np.float64)
    found = decode(encode({"a": given})[0])["a"]
    assert not np.signbit(found[0]) and found[1:].tobytes() == given[1:].tobytes()


def test_masks_of_pytorch_make_sparse_tensors() -> None:
    """They multiply, which makes -0.0 of negative weights."""
    model = lenet_300_100()
    prune.l1_unstructured(model[0], "weight", 0.9)
    prune.remove(model[0], "weight")
    found = measure(model)["0.weight"]
    assert (found.method, found.nonzeros) == ("sparse", 23_520)


@pytest.mark.parametrize("width", range(1, 9))
def test_positions_come_back(width: int) -> None:
    random = np.random.default_rng(width)
    for density in (1.0, 0.5, 0.01):
        places = np.flatnonzero(random.random(5000) < density)
        symbols = relative(places, width)
        steps = 2**width - 1
        gaps = np.diff(places, prepend=-1) - 1
        assert len(symbols) == len(places) + (gaps // steps).sum() and symbols.max() <= steps
        np.testing.assert_array_equal(absolute(symbols, width, len(places), 5000), places)
    with pytest.raises(Damaged, match="positions are not those of"):
        absolute(symbols, width, len(places), int(places[-1]))


def test_equal_tensors_are_stored_once() -> None:
    model = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 50))
    model[1].weight = model[0].weight
    sizes = measure(model)
    assert sizes["1.weight"].method == "copy" and sizes["1.weight"].total < 20
    assert sizes.dense == 4 * (50 * 50 + 2 * 50), "what is tied is in memory once"
    model[1].weight = nn.Parameter(model[0].weight.detach().clone())
    equal = measure(model)
    assert equal.total == sizes.total and equal.dense == 4 * 2 * (50 * 50 + 50)
    same_bits(model, from_bytes(model))


def from_bytes(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    arrays = decode(encode({n: t.numpy() for n, t in model.state_dict().items()})[0])
    other.load_state_dict({n: torch.from_numpy(a) for n, a in arrays.items()})
    return other


def test_the_size_of_the_literature() -> None:
    """Deep Compression has 1,070 kB to 27 kB, 40 times, for this network at 8 % of its weights.

    Random positions are the worst case. Entropy is the bound for any code of single symbols."""
    model = lenet_300_100(0.08)
    share(model, 5)
    round_to_f16(model)
    sizes = measure(model)
    assert sizes.dense == 4 * 266_610
    assert sizes.ratio > 39.5 and sizes.total < 27_000
    bits = 0.0
    for weight in (p.detach().numpy() for p in model.parameters() if p.ndim > 1):
        share_of = [np.mean(weight != 0), np.mean(weight == 0)]
        bits -= weight.size * np.sum(share_of * np.log2(share_of))
        counts = np.unique(weight[weight != 0], return_counts=True)[1]
        bits -= np.sum(counts * np.log2(counts / counts.sum()))
    coded = sum(t.positions + t.indices for t in sizes.tensors if t.codebook)
    assert bits / 8 * 0.999 < coded < bits / 8 * 1.01


def test_the_file_of_another_model_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m"
    save(mlp(1), path)
    for other, why in (
        (ConvNet(), "the file has no stem.weight, bn.weight, bn.bias, bn.running_mean and"),
        (nn.Sequential(), "the model has no fc1.weight"),
        (
            mlp().double(),
            r"fc1.weight is float32\[8, 5\] in the file, float64\[8, 5\] in the model",
        ),
    ):
        before = copy.deepcopy(other)
        with pytest.raises(CheckpointError, match=why):
            load(path, other)
        same_bits(other, before)


def test_what_cannot_be_stored_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "m"
    model = mlp()
    save(model, path)
    before = path.read_bytes()
    share(model, 2)
    hold_shared(model)
    with pytest.raises(DataError, match=r"not a weight(.|\n)*release"):
        save(model, path)
    release(model)
    with pytest.raises(DataError, match="its type is bfloat16"):
        save(mlp().bfloat16(), path)
    with pytest.raises(DataError, match="at most 255 are allowed"):
        save(nn.ModuleDict({"n" * 260: nn.Linear(1, 1)}), path)
    with pytest.raises(CheckpointError, match="cannot write"):
        save(mlp(), tmp_path / "none" / "m")
    with pytest.raises(CheckpointError, match="cannot read"):
        read(tmp_path / "none")
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_the_same_model_gives_the_same_bytes() -> None:
    arrays = {n: t.numpy() for n, t in lenet_300_100(0.1).state_dict().items()}
    assert encode(arrays)[0] == encode(arrays)[0]


def test_a_masked_model_is_refused(tmp_path: Path) -> None:
    """Its numbers and names are not those of the model that would load them."""
    model = nn.Linear(4, 4)
    prune.l1_unstructured(model, "weight", 0.5)
    with pytest.raises(DataError, match=r"(?s)weight_orig is masked.*finish\(model\)"):
        save(model, tmp_path / "model.whtc")
    assert not list(tmp_path.iterdir())
