"""Weights of few values, and the training of these."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as masks

from tiny import ConvNet, mlp
from whet.errors import DataError, SchemeError
from whet.ir.quant import Recipe
from whet.labs.compress.centroids import hold_shared, release, train_centroids
from whet.labs.compress.histogram import histogram_svg, histograms
from whet.labs.compress.sharing import round_to_f16, share


def network(seed: int = 0, pruned: float = 0.5) -> nn.Sequential:
    """Two layers of 1,200 and 300 weights, of which a part is zero."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 10))
    with torch.no_grad():
        for i in (0, 2):
            weight = model[i].weight
            weight[torch.rand_like(weight) < pruned] *= 0.0  # makes -0.0, too, as masks do
    return model


def values(weight: Tensor) -> Tensor:
    return torch.unique(weight[weight != 0])


def same(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


@pytest.mark.parametrize("init", ["linear", "density", "random"])
@pytest.mark.parametrize("bits", [1, 3, 8])
def test_a_layer_has_two_to_the_bits_values_and_its_zeros(bits: int, init: str) -> None:
    model, before = network(), network()
    report = share(model, bits, init=init)
    for i in (0, 2):
        old, new = before[i].weight, model[i].weight
        assert torch.equal(old == 0, new == 0)
        assert len(values(new)) == min(2**bits, len(values(old))) == report[f"{i}.weight"].values
        assert torch.equal(before[i].bias, model[i].bias)
        error = (old - new)[old != 0].double().square().mean().sqrt().item()
        assert report[f"{i}.weight"].error == pytest.approx(error)
        assert error < (old.max() - old.min()).item() / 2**bits


def test_bits_by_pattern() -> None:
    """The first pattern that fits holds; patterns fit names of layers and of weights."""
    model = ConvNet()
    stem = model.stem.weight.clone()
    done = share(model, {"grouped.weight": 1, "grouped": 3, "depth*": 2, "head": 4})
    assert {n: d.bits for n, d in done.items()} == {
        "depthwise.weight": 2, "grouped.weight": 1, "head.weight": 4}  # fmt: skip
    assert len(values(model.grouped.weight)) == 2 and len(values(model.head.weight)) == 16
    assert torch.equal(model.stem.weight, stem)


def test_layers_restrict_and_biases_are_named() -> None:
    model = network()
    assert list(share(model, 2, layers=["2"])) == ["2.weight"]
    assert len(values(model[0].weight)) > 100
    assert list(share(model, {"*bias": 3, "0": 4})) == ["0.weight", "0.bias", "2.bias"]
    assert len(values(model[2].bias)) == 8
    assert list(share(network(), 2, layers="*")) == ["0.weight", "2.weight"]


def test_what_a_mask_hides_takes_part_in_nothing() -> None:
    model = network(pruned=0.0)
    masks.l1_unstructured(model[0], "weight", 0.5)
    left = model[0].weight != 0
    share(model, 2)
    assert torch.equal(model[0].weight != 0, left)
    assert len(values(model[0].weight)) == 4
    assert model[0].weight is model.get_parameter("0.weight")


def test_no_centroid_is_zero() -> None:
    """It would prune what was kept: the mean of -1 and 1.5 and -0.5 is zero."""
    model = nn.Linear(6, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, 1.5, -0.5, 0.0, 10.0, 10.5]]))
    share(nn.Sequential(model), 1)
    assert model.weight.tolist() == [[-0.5, -0.5, -0.5, 0.0, 10.25, 10.25]]


def test_bfloat16_and_float64_layers_are_shared() -> None:
    for dtype in (torch.bfloat16, torch.float64):
        model = network().to(dtype)
        share(model, 3)
        assert model[0].weight.dtype == dtype and len(values(model[0].weight)) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 0}, "bits=0 is not a size"),
        ({"bits": 9}, "1 to 8 bits"),
        ({"bits": True}, "bits=True"),
        ({"bits": {"0": 4, "2": 16}}, "bits=16 for '2'"),
        ({"bits": {"conv*": 4}}, r"bits=\{'conv\*': 4\} fits no weight"),
        ({"bits": 4, "layers": ["0", "fc9"]}, "layers='fc9' fits no weight"),
        ({"bits": 4, "init": "best"}, "init='best'"),
    ],
)
def test_bad_options_change_nothing(options: dict, message: str) -> None:
    model = network()
    with pytest.raises(SchemeError, match=message):
        share(model, **options)
    assert same(model, network())


def test_weights_that_are_not_finite_change_nothing() -> None:
    model = network()
    with torch.no_grad():
        model[2].weight[0, :2] = torch.tensor([float("nan"), float("inf")])
    before = copy.deepcopy(model)
    with pytest.raises(DataError, match=r"2\.weight cannot be shared(.|\n)*2 of its weights"):
        share(model, 4)
    assert torch.equal(model[0].weight, before[0].weight)
    with pytest.raises(SchemeError, match="no weights to share"):
        share(nn.Sequential(nn.ReLU()), 4)


def test_the_gradient_of_a_centroid_is_the_sum_over_its_cluster() -> None:
    held, dense = network(), network()
    share(held, 3)
    share(dense, 3)
    assert hold_shared(held) == ["0.weight", "2.weight"]
    x, y = torch.randn(16, 40), torch.randint(10, (16,))
    for model in (held, dense):
        nn.functional.cross_entropy(model(x), y).backward()
    for i in (0, 2):
        codebook = held[i].parametrizations.weight.original
        weight = dense[i].weight
        assert torch.equal(codebook, values(weight))
        sums = torch.stack([weight.grad[weight == c].double().sum() for c in codebook])
        torch.testing.assert_close(codebook.grad.double(), sums, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(held[i].bias.grad, dense[i].bias.grad)


def test_any_loop_trains_centroids_and_zeros_stay() -> None:
    model = network()
    share(model, 2)
    before = copy.deepcopy(model)
    x, y = torch.randn(64, 40), torch.randint(10, (64,))

    def loss(m: nn.Module) -> Tensor:
        return nn.functional.cross_entropy(m(x), y)

    def train(m: nn.Module) -> None:
        optimizer = torch.optim.Adam(m.parameters(), lr=0.01, weight_decay=0.01)
        for _ in range(20):
            optimizer.zero_grad()
            loss(m).backward()
            optimizer.step()

    assert train_centroids(model, train) == ["0.weight", "2.weight"]
    assert loss(model).item() < loss(before).item() - 0.05
    for i in (0, 2):
        new, old = model[i].weight, before[i].weight
        assert torch.equal(new == 0, old == 0) and len(values(new)) <= 4
        assert not torch.equal(new, old)
        for value in values(old):  # a cluster moves as one
            assert len(torch.unique(new[old == value])) == 1


def test_holding_and_releasing_leaves_the_model_as_it_was() -> None:
    model = network()
    share(model, 4)
    before, parameter = copy.deepcopy(model), model[0].weight
    hold_shared(model)
    sizes = {n: tuple(p.shape) for n, p in model.named_parameters()}
    assert sizes["0.parametrizations.weight.original"] == (16,)
    x = torch.randn(3, 40)
    assert torch.equal(model(x), before(x)) and torch.equal(copy.deepcopy(model)(x), before(x))
    with pytest.raises(SchemeError, match="held already"):
        hold_shared(model)
    assert release(model) == ["0.weight", "2.weight"]
    assert same(model, before) and type(model[0]) is nn.Linear
    assert list(model.state_dict()) == list(before.state_dict())
    assert model[0].weight is parameter and parameter.grad is None
    assert release(model) == []


def test_training_that_fails_releases() -> None:
    model = network()
    share(model, 4)
    before = copy.deepcopy(model)

    def train(m: nn.Module) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_centroids(model, train)
    assert same(model, before)


def test_layers_that_are_not_shared_train_as_ever() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 10))
    share(model, 2, layers="1")
    assert hold_shared(model) == ["1.weight"]
    release(model)
    with pytest.raises(SchemeError, match=r"0\.weight is not shared(.|\n)*1,2\d\d distinct"):
        hold_shared(model, layers="*")
    with pytest.raises(SchemeError, match="no weight of the model is shared"):
        hold_shared(nn.Sequential(nn.Linear(40, 30)))


def test_tied_weights_have_one_codebook() -> None:
    """Whose gradient is the sum over both layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    share(model, 2)
    names, x = list(model.state_dict()), torch.randn(4, 6)
    model(x).square().sum().backward()
    weight = model[0].weight.detach().clone()
    wanted = [model[0].weight.grad[weight == v].sum() for v in values(weight)]

    assert hold_shared(model) == ["0.weight"]
    assert sorted(len(p) for p in model.parameters()) == [4, 6, 6]
    codebook = next(p for p in model.parameters() if len(p) == 4)
    model(x).square().sum().backward()
    assert torch.allclose(codebook.grad, torch.stack(wanted), atol=1e-4)
    with torch.no_grad():
        codebook += 1.0

    assert release(model) == ["0.weight"]
    assert model[0].weight is model[2].weight
    assert torch.equal(model[0].weight, weight + 1.0)
    assert list(model.state_dict()) == names and len(list(model.parameters())) == 3


def test_what_cannot_be_held_is_refused() -> None:
    bad = network()
    share(bad, 2)
    with torch.no_grad():
        bad[2].weight[0, 0] = float("nan")
    with pytest.raises(DataError, match=r"2\.weight cannot be held"):
        hold_shared(bad)
    assert [n for n, _ in bad.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_a_layer_of_zeros_stays_one() -> None:
    model = mlp()
    nn.init.zeros_(model.fc2.weight)
    share(model, 2)

    def train(m: nn.Module) -> None:
        optimizer = torch.optim.Adam(m.parameters(), lr=0.1)
        m(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()

    train_centroids(model, train)
    assert not model.fc2.weight.any()


def test_rounding_to_16_bits_keeps_every_weight_alive() -> None:
    model = network()
    with torch.no_grad():
        model[0].weight[0, :3] = torch.tensor([1e-20, -1e-20, 0.1])
    before = copy.deepcopy(model)
    assert round_to_f16(model) > 500
    for new, old in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(new.half().float(), new) and torch.equal(new == 0, old == 0)
        torch.testing.assert_close(new, old, rtol=2**-11, atol=2**-24)
    assert round_to_f16(model) == 0
    with torch.no_grad():
        model[2].bias[0] = 1e6
    with pytest.raises(DataError, match=r"2\.bias(.|\n)*65504"):
        round_to_f16(model)


def test_histograms_show_every_weight_that_is_not_zero() -> None:
    before, after = network(), network()
    share(after, 2)
    pictures = histograms(before, after, after)
    assert list(pictures) == ["0.weight", "2.weight"]
    drawn = pictures["0.weight"]
    live = int((before[0].weight != 0).sum())
    assert f"1,200 weights, {1200 - live:,} of them zero" in drawn
    assert f"before sharing: {live} values" in drawn and "after retraining: 4 values" in drawn
    counts = np.array([int(t.split(" weights")[0].split(": ")[1].replace(",", ""))
                       for t in drawn.split("<title>")[2:]])  # fmt: skip
    assert counts.sum() == 3 * live and (counts > 0).all()
    with pytest.raises(DataError, match="not all are finite"):
        histogram_svg(np.array([np.nan]), np.ones(1), np.ones(1))
    assert "0 values" in histogram_svg(np.zeros(3), np.zeros(3), np.zeros(3))


def of_int8() -> tuple[ConvNet, dict[str, Tensor]]:
    """A network that comes with int8 scales for two of its weights, and these scales."""
    torch.manual_seed(0)
    model = ConvNet()
    scales = {}
    for name in ("stem.weight", "depthwise.weight"):
        weight = model.get_parameter(name)
        shape = (-1, *[1] * (weight.ndim - 1))
        scales[name] = weight.detach().abs().flatten(1).amax(1).reshape(shape) / 127
        with torch.no_grad():
            weight.copy_((weight / scales[name]).round() * scales[name])
    known = {name: scale.numpy().ravel() for name, scale in scales.items()}
    object.__setattr__(model, "whet_recipe", Recipe({}, known))
    return model, scales


def units_of(model: nn.Module, name: str, scale: Tensor) -> Tensor:
    units = model.get_parameter(name).detach() / scale
    assert torch.allclose(units, units.round(), atol=1e-4)
    return units.round()


def test_a_codebook_of_int8_weights_has_integers_for_all_channels() -> None:
    model, scales = of_int8()
    before = copy.deepcopy(model)
    report = share(model, 4)
    for name, scale in scales.items():
        units = units_of(model, name, scale)
        found = torch.unique(units[units != 0])
        assert len(found) == report[name].values <= 15  # zero is an entry in the program
        assert (units - units_of(before, name, scale)).abs().max() <= 254 / 15
    assert len(values(model.head.weight)) == 16


def test_centroids_of_int8_weights_train_as_integers() -> None:
    """The gradient passes the rounding: it is that of the codebook, times the channel's share."""
    model, scales = of_int8()
    share(model, 4)
    name, scale = "stem.weight", scales["stem.weight"]
    start = units_of(model, name, scale)
    x = torch.randn(2, 3, 6, 4)
    model.eval()(x).sum().backward()
    ratio = scale / scale.mean()
    of_weight = model.stem.weight.grad * ratio
    book = torch.unique(start[start != 0])
    expected = torch.stack([of_weight[start == value].sum() for value in book])

    hold_shared(model)
    (held,) = [p for n, p in model.named_parameters() if n.startswith("stem.") and "weight" in n]
    model(x).sum().backward()
    assert torch.allclose(held.grad, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        held += 0.3 * float(scale.mean())  # less than half a unit
    release(model)
    assert torch.equal(units_of(model, name, scale), start)
