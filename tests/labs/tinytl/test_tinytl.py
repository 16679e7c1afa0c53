"""Lite residual branches, group norm, and elastic backbones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from tinytl_models import pictures, pretrained, short, small
from whet import models
from whet.errors import BudgetError, FrontendError, SchemeError
from whet.labs import tinytl
from whet.labs.tinytl.branch import odd
from whet.labs.tinytl.elastic import Size, sizes_of
from whet.labs.tinytl.norm import moments

PRESETS = ("tinytl-b", "tinytl-l", "tinytl-l+b", "tinytl-l+b+2")


# Blocks --------------------------------------------------------------------------------------

NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "mcunet": (lambda: models.mcunet_5fps(10), 14),
    "mobilenet_v2": (lambda: models.mobilenet_v2(10, width=0.35), 17),
    "proxyless": (lambda: models.proxyless_nas_mobile(10, width=0.3), 20),
    "resnet18": (lambda: models.resnet18(10), 8),
    "resnet50": (lambda: models.resnet50(10), 16),
}


@pytest.mark.parametrize("name", NETS)
def test_blocks_are_found_by_what_they_do(name: str) -> None:
    build, count = NETS[name]
    found = tinytl.find_blocks(build(), pictures(1, 64))
    assert len(found) == count
    assert len({block.name for block in found}) == count
    assert all(block.given[-1] * block.stride == block.taken[-1] for block in found)


def test_a_block_knows_its_channels() -> None:
    block = tinytl.find_blocks(small(), pictures(1, 64))[1]
    assert (block.name, block.taken[1], block.inner, block.given[1]) == ("features.2", 8, 48, 8)
    assert str(block) == "features.2: 8 -> 48 -> 8 channels, 16x16"


class Odd(nn.Module):
    """A residual block in a class of its own, an SE gate, and a block that is a Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 7, 3, padding=1)
        self.two = nn.Conv2d(7, 3, 3, padding=1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1))
        self.plain = nn.Sequential(
            nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, 2, 1, groups=6), nn.Conv2d(6, 4, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.two(torch.relu(self.one(x)))
        x = x + y * torch.sigmoid(self.gate(y))
        return self.plain(x).mean((2, 3))


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Odd()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def test_a_plain_chain_can_have_a_branch() -> None:
    model, x = Deep(), pictures(2, 9)
    (block,) = tinytl.find_blocks(model, x)
    assert block.name == "body.plain", "what adds gives no map, so it is no block"
    ready = tinytl.prepare(model, x)
    assert torch.equal(ready(x), model.eval()(x))
    names = dict(model.named_parameters())
    assert names.keys() < dict(ready.named_parameters()).keys(), "the old names stay"
    assert str(whet.compile(ready, (x,), update="tinytl-l+b").check())


class Special(nn.Sequential):
    gain = 2.0


class Around(nn.Module):
    """A block that is a Sequential, under two names, with one ReLU in three places."""

    def __init__(self, kind: type[nn.Sequential]) -> None:
        super().__init__()
        act = nn.ReLU()
        self.one = kind(
            nn.Conv2d(3, 6, 1),
            act,
            nn.Conv2d(6, 6, 3, 1, 1, groups=6),
            act,
            nn.Conv2d(6, 4, 1),
            act,
        )
        self.other = self.one
        self.one.register_forward_hook(lambda module, args, y: 2 * y)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(getattr(self.one, "gain", 1.0) * self.one(x).mean((2, 3)))


@pytest.mark.parametrize("kind", [nn.Sequential, Special])
def test_a_chain_with_a_branch_is_still_itself(kind: type[nn.Sequential]) -> None:
    torch.manual_seed(0)
    model, x = Around(kind), pictures(2, 8)
    ready = tinytl.prepare(model, x)
    assert torch.equal(ready(x), model.eval()(x))
    assert ready.get_submodule("one") is ready.get_submodule("other")
    assert torch.equal(copy.deepcopy(ready)(x), model(x))
    root = nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, 1, 1, groups=6), nn.Conv2d(6, 3, 1))
    assert torch.equal(tinytl.prepare(root, x)(x), root(x))
    assert list(tinytl.branches(tinytl.prepare(root, x))) == [""]


def test_a_block_has_one_branch() -> None:
    ready = tinytl.prepare(small(), pictures())
    with pytest.raises(FrontendError, match="already has a lite_residual"):
        tinytl.prepare(ready, pictures())
    twice = tinytl.prepare(small(), pictures(), blocks=["features.3", "features.3"])
    assert len(twice.get_submodule("features.3")._forward_hooks) == 1


class Wrapped(nn.Module):
    """A block around a chain that would be one by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, 1, 1, groups=6), nn.Conv2d(6, 3, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def test_blocks_do_not_nest() -> None:
    model, x = nn.Sequential(Wrapped(), nn.Flatten(), nn.Linear(48, 2)), pictures(1, 4)
    ready = tinytl.prepare(model, x)
    assert list(tinytl.branches(ready)) == ["0"]
    with pytest.raises(FrontendError, match="0 already has a lite_residual"):
        tinytl.prepare(ready, x)
    with pytest.raises(FrontendError, match=r"0.body is inside 0, which is also a block"):
        tinytl.prepare(model, x, blocks=["0", "0.body"])
    with pytest.raises(FrontendError, match=r"0 is inside the model, which is also a block"):
        tinytl.prepare(model, x, blocks=["0", ""])
    model[0].lite_residual = nn.Conv2d(3, 3, 1)
    with pytest.raises(FrontendError, match="0 already has a lite_residual"):
        tinytl.prepare(model, x)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "channels": (lambda: tinytl.prepare(short(), torch.zeros(1, 4, 8, 8)), "input of .1, 4, 8, 8."),
    "a tuple": (lambda: tinytl.prepare(short(), (pictures(),)), "tuple is not a valid example"),  # type: ignore[arg-type]
    "a string": (lambda: tinytl.prepare(short(), pictures(), blocks="features.1"), "are not names"),
    "a close name": (
        lambda: tinytl.prepare(short(), pictures(), blocks=["feature.1"]), "features.1"
    ),
    "bits": (lambda: tinytl.prepare(short(), pictures(), bits=7.5), "to 7.5 bits"),  # type: ignore[arg-type]
    "a batch": (
        lambda: tinytl.prepare(short(), pictures(), norm="group", calibrate=pictures()),
        "takes batches",
    ),
    "branches": (
        lambda: tinytl.Elastic(tinytl.prepare(small(), pictures())), "cannot have branches"
    ),
    "widths": (lambda: tinytl.Elastic(small(), widths=(0.0,)), "are not fractions"),
    "a size": (
        lambda: tinytl.Elastic(small()).extract((Size(True, 7, 3),) * 17), "features.1 cannot"
    ),
    "no choice": (lambda: tinytl.Elastic(small()).extract(3), "not a choice of 17"),  # type: ignore[arg-type]
    "no super-network": (
        lambda: tinytl.adapt(small(), (pictures(), torch.zeros(2)), ram=1), "not a super-network"  # type: ignore[arg-type]
    ),
    "labels": (
        lambda: tinytl.adapt(tinytl.Elastic(small()), (pictures(), torch.zeros(3)), ram=1),
        "as many labels",
    ),
    "one sample": (
        lambda: tinytl.adapt(tinytl.Elastic(small()), (pictures(1), torch.zeros(1)), ram=1),
        "too few",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_prepared_is_said_so(what: str) -> None:
    attempt, words = WRONG[what]
    with pytest.raises(FrontendError, match=words):
        attempt()


def test_small_maps_have_blocks_too() -> None:
    model, x = small(), pictures(1, 32)
    ready = tinytl.prepare(model, x)
    assert len(tinytl.branches(ready)) == 17
    assert torch.equal(ready(x), model(x)), "one picture, of which one pixel is left"
    odd_channels = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, 2, 1, groups=6), nn.Conv2d(6, 11, 1)
    )
    assert tinytl.prepare(odd_channels, x[..., :2, :2])(x[..., :2, :2]).shape == (1, 11, 1, 1)


def test_what_has_no_blocks_is_told_so() -> None:
    chain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten())
    with pytest.raises(FrontendError, match="no residual block and no inverted bottleneck"):
        tinytl.prepare(chain, pictures(1, 8))
    with pytest.raises(FrontendError, match=r"no module 'features\.99'"):
        tinytl.prepare(small(), pictures(1), blocks=["features.99"])
    with pytest.raises(FrontendError, match="classifier is not a block"):
        tinytl.prepare(small(), pictures(1), blocks=["classifier"])
    found = tinytl.branches(tinytl.prepare(small(), pictures(1), blocks=["features.3"]))
    assert list(found) == ["features.3"]


# Branches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_silent_branches_change_nothing(name: str) -> None:
    model, x = pretrained(NETS[name][0]()), pictures(2, 64)
    before = copy.deepcopy(model.state_dict())
    ready = tinytl.prepare(model, x)
    assert torch.equal(ready(x), model(x))
    assert len(tinytl.branches(ready)) == NETS[name][1]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items()), "left alone"


def test_a_branch_is_small_and_at_half_the_resolution() -> None:
    ready = tinytl.prepare(small(), pictures(1, 64))
    branch = tinytl.branches(ready)["features.4"]  # stride 2, from 16 x 16 pixels
    assert branch.filter.out_channels == 8 and branch.filter.groups == 2  # a sixth of 48
    assert branch.filter.stride == (2, 2) and branch.filter.kernel_size == (5, 5)
    assert branch(torch.randn(1, 8, 16, 16), (8, 8)).shape == (1, 16, 8, 8)
    last = tinytl.branches(ready)["features.17"]
    assert last.filter.kernel_size == (1, 1), "of a 2 x 2 map one pixel is left"
    assert [odd(n) for n in (1, 2, 3, 4, 7)] == [1, 1, 3, 3, 7]
    with pytest.raises(FrontendError, match="do not make a valid branch"):
        tinytl.prepare(small(), pictures(1), kernel=4)


def test_copies_keep_their_branches() -> None:
    ready, x = tinytl.prepare(small(), pictures()), pictures()
    for module in tinytl.branches(ready).values():
        nn.init.ones_(module.scale.weight)
    for twin in (copy.deepcopy(ready), pickle.loads(pickle.dumps(ready))):
        assert torch.equal(twin(x), ready(x))
        nn.init.zeros_(tinytl.branches(twin)["features.3"].scale.weight)
        assert not torch.equal(twin(x), ready(x)), "with branches of their own"


def test_branches_begin_where_others_ended() -> None:
    one = tinytl.prepare(small(), pictures(), seed=1)
    two = tinytl.prepare(small(), pictures(), branches=one.state_dict())
    name = "features.3.lite_residual.filter.weight"
    assert torch.equal(one.get_parameter(name), two.get_parameter(name))
    assert not torch.equal(
        one.get_parameter(name), tinytl.prepare(small(), pictures()).get_parameter(name)
    )
    with pytest.raises(FrontendError, match="does not belong to these branches"):
        tinytl.prepare(small(), pictures(), branches=small().state_dict())


# Schemes -------------------------------------------------------------------------------------

CHECKED: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "the first blocks": (short, 32),
    "mobilenet_v2": (lambda: models.mobilenet_v2(10, width=0.35, dropout=0.0), 32),
    "mcunet": (lambda: models.mcunet_5fps(10), 64),
    "proxyless": (lambda: models.proxyless_nas_mobile(10, width=0.3), 64),
}


@pytest.mark.parametrize(
    ("name", "update"),
    [
        pytest.param(name, update, marks=[pytest.mark.slow] if i or u < 3 else [])
        for i, name in enumerate(CHECKED)
        for u, update in enumerate(PRESETS)
    ],
)
def test_presets_train_as_pytorch_does(name: str, update: str) -> None:
    build, side = CHECKED[name]
    torch.manual_seed(0)
    x = pictures(2, side)
    model = tinytl.prepare(pretrained(build()), x)
    for module in tinytl.branches(model).values():
        nn.init.normal_(module.scale.weight)  # a branch that is silent hears nothing either
    check_all(model, x, update)


@pytest.mark.slow
@pytest.mark.parametrize("update", PRESETS)
@pytest.mark.parametrize("name", ["proxyless_nas_mobile", "mobilenet_v2"])
def test_presets_train_whole_networks_as_pytorch_does(name: str, update: str) -> None:
    torch.manual_seed(0)
    x = pictures(1, 96)
    model = tinytl.prepare(pretrained(getattr(models, name)(10)), x)
    check_all(model, x, update)


def check_all(model: nn.Module, x: Tensor, update: str) -> None:
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    program = whet.compile(model, (x,), optimizer=sgd, update=update)
    lite = [n for n in program.chosen if ".lite_residual." in n]
    assert bool(lite) == ("-l" in update)
    weights = [n for n in program.chosen if n.endswith("conv.0.0.weight")]
    assert not weights, "what came with the network stays as it is"
    assert program.check(steps=5)


def test_the_last_two_layers() -> None:
    ready, x = tinytl.prepare(short(), pictures()), pictures()
    chosen = set(whet.compile(ready, (x,), update="tinytl-l+b+2").chosen)
    assert {"features.5.conv.2.weight", "features.5.conv.3.weight", "classifier.1.weight"} <= chosen
    assert "features.5.conv.1.0.weight" not in chosen
    with pytest.raises(SchemeError, match="this model has none"):
        whet.compile(short(), (x,), update="tinytl-l")
    with pytest.raises(SchemeError, match="no layers-99"):
        whet.compile(short(), (x,), update="layers-99")


@pytest.mark.slow
def test_biases_need_a_fraction_of_the_memory() -> None:
    model, x = small(), pictures(8, 64)
    ready = tinytl.prepare(model, x)
    arena = {
        update: whet.compile(ready if "-l" in update else model, (x,), update=update).arena
        for update in ("full", "tinytl-b", "tinytl-l+b")
    }
    assert arena["full"] > 3.8 * arena["tinytl-b"]
    assert arena["full"] > 3 * arena["tinytl-l+b"] > 3 * arena["tinytl-b"]


@pytest.mark.slow
def test_memory_of_proxylessnas() -> None:
    """At 224 pixels; the paper counts 391 MB for a batch of 8 and 37 MB under TinyTL-L+B. Full
    update takes half of that here: what batch norm gives is computed again, not kept."""
    model = models.proxyless_nas_mobile(102).eval()
    x = pictures(8, 224)
    plain, ready = (tinytl.prepare(model, x, lite_residual=lite, bits=8) for lite in (False, True))

    def memory(net: nn.Module, x: Tensor, update: str) -> dict[str, int]:
        sgd = torch.optim.SGD(net.parameters(), lr=0.01)
        return whet.compile(net, (x,), optimizer=sgd, update=update, frozen="int8").memory

    full, bias, lite = (
        memory(net, x, update)
        for net, update in ((plain, "full"), (plain, "tinytl-b"), (ready, "tinytl-l+b"))
    )
    assert full["arena"] < 391e6 / 2
    assert full["arena"] >= 7 * bias["arena"]
    assert full["ram"] >= 3.9 * (lite["ram"] + lite["frozen"])
    one = memory(ready, x[:1], "tinytl-l+b")
    assert one["ram"] + one["frozen"] < 16e6


# Group norm ----------------------------------------------------------------------------------


def test_group_norm_keeps_means_and_variances() -> None:
    model, x = small(), pictures(16, 64)
    ready = tinytl.prepare(model, x, lite_residual=False, norm="group", calibrate=[x[:8], x[8:]])
    assert not any(isinstance(m, nn.BatchNorm2d) for m in ready.modules())
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for net in (model, ready):
        for name, module in net.named_modules():
            if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                module.register_forward_hook(
                    lambda m, a, y, name=name: seen.setdefault(name, []).append(moments(y))
                )
        net(x)
    for before, after in seen.values():
        for one, other in zip(before, after, strict=True):
            assert torch.allclose(one, other, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_group_norm_trains_one_picture_at_a_time() -> None:
    x = pictures(1)
    ready = tinytl.prepare(small(), x, norm="group")
    weight = ready.get_parameter("features.3.conv.0.0.weight").flatten(1)
    assert torch.allclose(weight.mean(1), torch.zeros(len(weight)), atol=1e-5)
    assert torch.allclose(weight.var(1, unbiased=False), torch.ones(len(weight)), atol=1e-2)
    assert torch.equal(
        ready.get_parameter("features.3.conv.0.1.weight"),
        small().get_parameter("features.3.conv.0.1.weight"),
    )
    assert whet.compile(ready, (x,), update="tinytl-l+b").check(steps=3)
    one = tinytl.prepare(small(), x, norm="group", calibrate=[pictures(1)])
    with torch.no_grad():
        apart = one(pictures(2, 32)).std(0).max()
    assert apart > 0, "a channel of one number has no variance to keep"
    with pytest.raises(FrontendError, match="would have no effect"):
        tinytl.prepare(small(), x, calibrate=[x])
    with pytest.raises(FrontendError, match="takes batches of inputs"):
        tinytl.prepare(small(), x, norm="group", calibrate=[(x, x)])  # type: ignore[list-item]
    with pytest.raises(FrontendError, match="norm='layer' is not valid"):
        tinytl.prepare(small(), x, norm="layer")


# Elastic backbones ---------------------------------------------------------------------------


def elastic() -> tinytl.Elastic:
    return tinytl.Elastic(pretrained(models.mcunet_5fps(5))).eval()


def test_the_largest_network_is_the_one_it_was_made_of() -> None:
    x, net = pictures(2, 64), pretrained(models.mcunet_5fps(5))
    whole = tinytl.Elastic(net).eval()
    assert torch.allclose(whole(x), net(x), atol=1e-5)
    assert sum(p.numel() for p in whole.parameters()) == sum(p.numel() for p in net.parameters())


def test_any_network_can_be_taken_out() -> None:
    whole, x, random = elastic(), pictures(2, 64), np.random.default_rng(0)
    for choice in (whole.smallest, *(whole.sample(random) for _ in range(3))):
        whole.choice = choice
        assert torch.allclose(whole.extract(choice)(x), whole(x), atol=1e-6)
    small_one = whole.extract(whole.smallest)
    assert len(small_one.features) == 1 + sum(size.kept for size in whole.smallest)
    assert [str(size) for size in whole.smallest][:3] == ["16k3", "16k3", "-"]


def test_sizes_are_what_a_block_allows() -> None:
    blocks = elastic().blocks
    assert sizes_of(blocks[0], (0.5, 1.0)) == [Size(True, 16, 3)], "nothing to expand"
    assert sizes_of(blocks[3], (0.5, 1.0)) == [
        Size(True, hidden, kernel) for hidden in (24, 48) for kernel in (3, 5, 7)
    ]
    assert sizes_of(blocks[2], (1.0,)) == [Size(False, 0, 0), Size(True, 48, 3)], "a residual"


@pytest.mark.slow
def test_a_super_network_learns_and_is_taken_apart_for_a_task() -> None:
    torch.manual_seed(0)
    whole = tinytl.Elastic(models.mcunet_5fps(4))
    labels = torch.arange(64) % 4
    x = 0.3 * pictures(64, 32) + torch.eye(4)[labels][:, :3, None, None]
    sgd = torch.optim.SGD(whole.parameters(), lr=0.01, momentum=0.9)
    batches = list(zip(x.split(16), labels.split(16), strict=True)) * 4
    losses = tinytl.pretrain(whole, batches, sgd, others=1)
    assert losses[-1] < 0.6 * losses[0]
    found = tinytl.adapt(whole, (x, labels), ram="150K", population=2, generations=1)
    assert all(a.ram <= 150 * 1024 for a in found)
    assert found[0].accuracy == max(a.accuracy for a in found) >= 50
    net = tinytl.prepare(whole.extract(found[0].choice, [x]), x[:1])
    assert whet.compile(net, (x[:1],), update="tinytl-l+b").memory["ram"] == found[0].ram
    with pytest.raises(BudgetError, match="too few for any sub-network"):
        tinytl.adapt(whole, (x, labels), ram="20K")


@pytest.mark.parametrize("net", [models.resnet18(4), models.mcunet_5fps(4, folded=True)])
def test_what_cannot_be_elastic(net: Any) -> None:
    with pytest.raises(FrontendError, match="not a chain of inverted residuals with batch norm"):
        tinytl.Elastic(net)


# Dynamic activation pruning ------------------------------------------------------------------


def few_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 4),
    )  # fmt: skip


def test_pruned_activations_train_as_in_pytorch_and_are_kept_short() -> None:
    """In few layers: in many, some number is so close to the limit that rounding decides."""
    model, x = few_layers(), pictures(4, 16)
    pruned = tinytl.prune_activations(model, x, 0.25)
    assert not torch.allclose(pruned(x), model(x))
    assert torch.allclose(tinytl.prune_activations(model, x, 1.0)(x), model(x))
    program = whet.compile(pruned, (x,), rematerialize=True)
    assert program.check(steps=3)
    assert whet.compile(model, (x,), rematerialize=True).arena > 1.2 * program.arena
    with pytest.raises(FrontendError, match="not a fraction of activations"):
        tinytl.prune_activations(model, x, 0.0)
