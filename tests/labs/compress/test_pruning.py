"""Magnitude pruning: exact counts, masks in training, rounds that resume."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from whet import compress
from whet.errors import CheckpointError, DataError, SchemeError


def layers(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[n], other[n]) for n in one)


def test_global_pruning_keeps_the_largest_of_all_and_no_bias_goes() -> None:
    model = layers()
    before = state(model)
    found = compress.prune(model, nonzeros=17)
    every = np.concatenate([before[f"{i}.weight"].abs().flatten() for i in (0, 2)])
    edge = np.sort(every)[-17]
    for name, old in before.items():
        wanted = old if name.endswith("bias") else torch.where(old.abs() >= float(edge), old, 0)
        assert torch.equal(model.state_dict()[name], wanted)
    assert (found.nonzeros, found.size, found.kept) == (17, 90, 17 / 90)
    assert str(found).splitlines()[-1].split() == ["total", "90", "17", "18.89", "%"]


def test_zeros_are_not_negative() -> None:
    model = layers()
    compress.prune(model, 0.3)
    compress.hold(model)
    compress.finish(model)
    zeros = model[0].weight.detach()[model[0].weight == 0]
    assert len(zeros) and not torch.signbit(zeros).any()


def test_layers_keep_the_same_share_and_counts_add_up() -> None:
    model = layers()
    found = compress.prune(model, nonzeros=31, scope="layer")
    assert [left for _, left in found.rows.values()] == [21, 10]  # 20.67 and 10.33 of 60 and 30
    model = layers()
    shares = {"0": 0.5, "2.weight": 0.1}
    assert [left for _, left in compress.prune(model, scope=shares).rows.values()] == [30, 3]
    model = layers()
    assert [left for _, left in compress.prune(model, scope={"2": 0.1}).rows.values()] == [60, 3]
    model = layers()
    assert compress.prune(model, 0.5, layers="2").rows == {"2.weight": (30, 15)}
    assert model[0].weight.count_nonzero() == 60


def test_biases_go_on_request() -> None:
    model = tiny.convnet()
    names = compress.prune(model, 0.5, biases=True).rows
    assert "head.bias" in names and not any(name.startswith("bn") for name in names)


def test_of_equal_weights_the_first_stay() -> None:
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -1, 1, -1], [2, 1, 1, 1]]))
    compress.prune(model, nonzeros=4)
    assert model.weight.tolist() == [[1, -1, 1, 0], [2, 0, 0, 0]]


def test_a_shared_weight_counts_once_and_is_held_everywhere() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert compress.prune(model, nonzeros=5).size == 16
    with compress.held(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
    assert model[1].weight is model[0].weight
    assert model[0].weight.count_nonzero() == 5


def test_attention_trains_under_its_masks() -> None:
    """It reads the weight of its output projection without running that layer."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    torch.manual_seed(0)
    net, x = Net(), torch.randn(4, 2, 8)
    compress.prune(net, 0.5, scope="layer")
    weight = net.attention.out_proj.weight
    before = weight.detach().clone()
    with compress.held(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    after = net.attention.out_proj.weight.detach()
    assert torch.equal(after != 0, before != 0)
    assert not torch.equal(after, before)
    assert not net._forward_pre_hooks


def test_training_leaves_held_zeros_and_the_order_of_parameters() -> None:
    model = tiny.convnet()
    names = [name for name, _ in model.named_parameters()]
    compress.prune(model, 0.3)
    zeros = {n: p == 0 for n, p in model.named_parameters() if p.ndim > 1}
    before = state(model)
    assert compress.hold(model) == [n for n, zero in zeros.items() if zero.any()]
    optimizer = torch.optim.Adam(model.parameters(), 0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 6, 4)).square().sum().backward()
        optimizer.step()
    compress.finish(model)
    after = dict(model.named_parameters())
    assert list(after) == names
    for name, zero in zeros.items():
        assert torch.equal(after[name] == 0, zero)
        assert not torch.equal(after[name], before[name])
    copy.deepcopy(model)  # nothing of the masks is left


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(keep=0.0), "keep=0.0 is not a share"),
        (dict(keep=1.5), "keep=0.015"),
        (dict(keep=float("nan")), "not a share"),
        (dict(keep=True), "not a share"),
        (dict(), "one of keep and nonzeros"),
        (dict(keep=0.5, nonzeros=3), "one of keep and nonzeros"),
        (dict(nonzeros=0), "nonzeros=0"),
        (dict(nonzeros=91), "90 to choose from"),
        (dict(keep=0.5, scope="channel"), "scope='channel' is unknown"),
        (dict(keep=0.5, scope={"0": 0.5}), "gives the share of each"),
        (dict(scope={"0": 2}), "share of 0=2"),
        (dict(scope={"fc": 0.5}), "'fc' matches no weight"),
        (dict(keep=0.5, layers=["0.wieght"]), "try   0.weight"),
        (dict(scope={"0": 0.001}), "0.weight"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused_and_nothing_changes(
    arguments: dict, words: str
) -> None:
    model = layers()
    before = state(model)
    with pytest.raises(SchemeError) as caught:
        compress.prune(model, **arguments)
    assert words in str(caught.value)
    assert same(before, state(model))


def test_a_layer_does_not_vanish_and_the_least_number_that_works_does() -> None:
    model = layers()
    with torch.no_grad():
        model[2].weight.mul_(0.01)
    with pytest.raises(SchemeError, match=r"(?s)would vanish.*2\.weight.*nonzeros=") as caught:
        compress.prune(model, nonzeros=5)
    least = int(str(caught.value).split("nonzeros=")[1].split(",")[0].replace("_", ""))
    before = state(model)
    with pytest.raises(SchemeError):
        compress.prune(model, nonzeros=least - 1)
    assert same(before, state(model))
    assert compress.prune(model, nonzeros=least).rows["2.weight"][1] == 1


def test_nan_is_refused_by_name() -> None:
    model = layers()
    with torch.no_grad():
        model[2].weight[1, 1] = float("nan")
    with pytest.raises(DataError, match=r"(?s)1 of 30 numbers.*2\.weight"):
        compress.prune(model, 0.5)
    with pytest.raises(DataError):
        compress.sensitivity(model, lambda m: 1.0)


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(SchemeError, match="no weight"):
        compress.prune(nn.BatchNorm1d(3), 0.5)


# --- In rounds ------------------------------------------------------------------------------------

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
Y = (X[:, :3].argmax(1) + (X[:, 3] > 0)) % 3


def train(model: nn.Module) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(15):
        rows = torch.randperm(len(X))[:20]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()


def evaluate(model: nn.Module) -> float:
    with torch.no_grad():
        return 100 * float((model(X).argmax(1) == Y).float().mean())


def test_rounds_follow_the_cubic_schedule_and_end_at_the_target() -> None:
    model = layers()
    train(model)
    found = compress.iterative(model, 0.2, 4, train, evaluate, settle=1)
    biases = 13
    wanted = [18 + round(72 * (1 - i / 4) ** 3) for i in (1, 2, 3, 4, 4)]
    assert [r.nonzeros - biases for r in found.rounds] == wanted
    assert [r.at_target for r in found.rounds] == [False] * 3 + [True] * 2
    assert found.weights is not None and found.weights.nonzeros == 18
    assert evaluate(model) == found.best.after == max(r.after for r in found.rounds[3:])
    assert "* is what the model has" in str(found)


def test_a_number_and_shares_by_layer_are_targets() -> None:
    model = layers()
    found = compress.iterative(model, 13, 2, train, evaluate, scope="layer")
    assert found.weights is not None
    assert [left for _, left in found.weights.rows.values()] == [9, 4]
    found = compress.iterative(layers(), {"0": 0.25, "2": 0.5}, 2, train, evaluate)
    assert found.weights is not None
    assert [left for _, left in found.weights.rows.values()] == [15, 15]


class Stopped(Exception):
    pass


def stopping(after: int):
    """`train` that is interrupted in the middle of a round."""
    calls = []

    def run(model: nn.Module) -> None:
        calls.append(1)
        train(model)
        if len(calls) > after:
            raise Stopped

    return run


def test_an_interrupted_run_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    start = state(layers())
    whole = layers()
    torch.manual_seed(5)
    wanted = compress.iterative(whole, 0.2, 3, train, evaluate)
    model = layers()
    torch.manual_seed(5)
    with pytest.raises(Stopped):
        compress.iterative(model, 0.2, 3, stopping(2), evaluate, folder=tmp_path)
    assert same(start, state(model))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "round-001.npz", "round-002.npz", "start.npz",
    ]  # fmt: skip
    torch.manual_seed(99)  # the state of the generator is resumed, too
    rounds = []
    found = compress.iterative(
        model, 0.2, 3, lambda m: (rounds.append(1), train(m)), evaluate, folder=tmp_path
    )
    assert len(rounds) == 1
    assert same(state(whole), state(model))
    assert [r.after for r in found.rounds] == [r.after for r in wanted.rounds]


def test_states_of_another_run_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    compress.iterative(layers(), 0.2, 2, train, evaluate, folder=tmp_path)
    with pytest.raises(CheckpointError, match="of another run"):
        compress.iterative(layers(), 0.3, 2, train, evaluate, folder=tmp_path)
    with pytest.raises(CheckpointError, match="of another run"):
        compress.iterative(layers(seed=1), 0.2, 2, train, evaluate, folder=tmp_path)
    path = tmp_path / "round-002.npz"
    whole = path.read_bytes()
    model = layers()
    before = state(model)
    for damaged in (whole[:200], whole[:-300], b"", b"x" * 100, flipped(whole)):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            compress.iterative(model, 0.2, 2, train, evaluate, folder=tmp_path)
        assert same(before, state(model))
    np.savez(path, __notes__=np.array([{}], object), allow_pickle=True)
    with pytest.raises(CheckpointError, match="damaged"):
        compress.iterative(model, 0.2, 2, train, evaluate, folder=tmp_path)


def flipped(content: bytes) -> bytes:
    middle = content.index(b"0.weight.npy") + 300
    return content[:middle] + bytes([content[middle] ^ 64]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "arguments", [dict(rounds=0), dict(rounds=2, settle=-1), dict(rounds=2, target=0.0)]
)
def test_rounds_that_make_no_sense_are_refused(arguments: dict) -> None:
    with pytest.raises(SchemeError):
        compress.iterative(layers(), train=train, evaluate=evaluate, **{"target": 0.5} | arguments)


@pytest.mark.parametrize("target", [None, "half"])
def test_a_target_of_another_kind_is_refused(target: object) -> None:
    with pytest.raises(SchemeError, match="is no target"):
        compress.iterative(layers(), target, 1, lambda m: None, lambda m: 1.0)


def test_an_accuracy_that_is_not_finite_is_refused() -> None:
    model = layers()
    before = state(model)
    with pytest.raises(DataError, match="evaluate gave nan"):
        compress.iterative(model, 0.5, 1, train, lambda m: float("nan"))
    assert same(before, state(model))


# --- Sensitivity ----------------------------------------------------------------------------------


def test_sensitivity_is_that_of_each_layer_alone(tmp_path: Path) -> None:
    model = layers()
    train(model)
    before = state(model)
    found = compress.sensitivity(model, evaluate, (0.5, 0.1), folder=tmp_path)
    assert same(before, state(model))
    assert found.base == evaluate(model)
    for name in ("0.weight", "2.weight"):
        for share in (0.5, 0.1):
            alone = copy.deepcopy(model)
            compress.prune(alone, share, layers=[name])
            assert found.rows[name][share] == evaluate(alone)
    asked = []
    again = compress.sensitivity(
        model, lambda m: asked.append(1) or 0.0, (0.5, 0.1, 0.2), folder=tmp_path
    )
    assert len(asked) == 2 and again.rows["0.weight"][0.5] == found.rows["0.weight"][0.5]
    assert list(found.shares(lost=100)) == ["0.weight", "2.weight"]
    assert found.shares(lost=100)["2.weight"] == 0.1
    assert found.shares(lost=-1000) == {"0.weight": 1.0, "2.weight": 1.0}
    svg = found.svg()
    assert svg.count("<polyline") == 2 and svg.count("<circle") == 4
    assert "unpruned" in str(found)
