"""LoRA as a scheme: numbers by the formula of the paper, in PyTorch, and what a program keeps."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

import whet
from tiny_transformers import transformer
from whet.errors import CheckpointError, SchemeError
from whet.ops.linear import LinearDw
from whet.scheme import Beside, Rule, Scheme, named

RATE = 0.05


class Adapted(nn.Module):
    """W x + b + alpha / r * B (A x), around a layer that is frozen."""

    def __init__(self, layer: nn.Module, down: Tensor, up: Tensor, scale: float) -> None:
        super().__init__()
        self.layer, self.scale = layer, scale
        self.lora_A, self.lora_B = nn.Parameter(down.clone()), nn.Parameter(up.clone())

    def forward(self, x: Tensor) -> Tensor:
        low = nn.functional.linear(x, self.lora_A)
        moved: Tensor = self.layer(x) + self.scale * nn.functional.linear(low, self.lora_B)
        return moved


class Small(nn.Module):
    """A linear layer, one whose weight is [in, out], and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.turned = Conv1D(8, 8)
        self.wide = Conv1D(5, 8)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.relu(self.wide(torch.tanh(self.turned(self.first(x))))))
        return found


def small() -> Small:
    torch.manual_seed(0)
    net = Small()
    net.turned.weight.data *= 20
    net.wide.weight.data *= 20
    return net


X, Y = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 1, 2])
TARGETS = ("first", "turned", "wide")


def adapted(net: nn.Module, start: dict[str, Tensor], scale: float) -> nn.Module:
    """The model with the layers of `start` adapted, all else frozen."""
    net.requires_grad_(False)
    for name in dict.fromkeys(n.rpartition(".weight.lora_")[0] for n in start):
        layer = net.get_submodule(name)
        pair = (start[f"{name}.weight.lora_{end}"] for end in "AB")
        parent, _, own = name.rpartition(".")
        setattr(net.get_submodule(parent), own, Adapted(layer, *pair, scale))
    return net


def factors_of(net: nn.Module, names: list[str]) -> dict[str, nn.Parameter]:
    return {n: net.get_parameter(n.replace(".weight.lora_", ".lora_")) for n in names}


def entropy(scores: Any, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(getattr(scores, "logits", scores), y)


def by_hand(
    program: whet.Program, net: nn.Module, x: Tensor, y: Tensor, steps: int, shaken: bool
) -> tuple[whet.Trainer, nn.Module, dict[str, float]]:
    """Both train; the largest difference between each gradient and its factor in the end."""
    trainer = program.load()
    if shaken:  # with B = 0, A has no gradient
        random = np.random.default_rng(3)
        start = {n: a for n, a in trainer.arrays().items() if n.endswith("lora_B")}
        trainer.load_state_dict(
            {n: random.normal(0, 0.2, a.shape).astype(np.float32) for n, a in start.items()}
        )
    begin = {n: t.clone() for n, t in trainer.state_dict().items()}
    scale = next(iter(program.factors.values())).scale
    other = adapted(net, begin, scale)
    factors = factors_of(other, list(begin))
    loss = entropy
    loss(other(x), y).backward()
    trainer.gradients(x, y)
    errors = {n: far(g, factors[n].grad) for n, g in trainer.collected().items()}
    assert errors.keys() == factors.keys()
    trainer = program.load()
    trainer.load_state_dict(begin)
    optimizer = torch.optim.AdamW(factors.values(), lr=RATE, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        expected = loss(other(x), y)
        expected.backward()
        optimizer.step()
        assert trainer.step(x, y) == pytest.approx(expected.item(), rel=1e-3)
    ends = {f"{n} after": far(a, factors[n]) for n, a in trainer.arrays().items()}
    return trainer, other, errors | ends


def far(array: np.ndarray, tensor: Tensor | None) -> float:
    assert tensor is not None and array.shape == tensor.shape
    difference = np.abs(array - tensor.detach().numpy()).max()
    return float(difference / max(tensor.abs().max().item(), 1e-6))


def compiled(net: nn.Module, x: Tensor, update: Any, **options: Any) -> whet.Program:
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.1)
    return whet.compile(net, (x,), optimizer=optimizer, update=update, accumulate=True, **options)


@pytest.mark.parametrize("shaken", [False, True])
@pytest.mark.parametrize(("r", "alpha"), [(1, 1), (2, 16), (4, 4), (8, 3.5)])
def test_factors_train_by_the_formula(r: int, alpha: float, shaken: bool) -> None:
    program = compiled(small(), X, whet.lora(r=r, alpha=alpha, targets=TARGETS))
    trainer, other, errors = by_hand(program, small(), X, Y, 10, shaken)
    assert len(errors) == 12
    assert max(errors.values()) < 2e-3 if not shaken else max(errors.values()) < 1e-4, errors
    assert far(trainer.predict(X), other(X)) < 1e-4


@pytest.mark.parametrize("name", ["bert", "gpt2", "smollm2"])
def test_a_transformer_trains_by_the_formula(name: str) -> None:
    model, (x,) = transformer(name)
    y = torch.tensor([0, 2]) if name == "bert" else x.roll(-1, 1)
    program = compiled(model, x, whet.lora(r=4, targets="linear", last=1))
    _, _, errors = by_hand(program, transformer(name)[0], x, y, 10, True)
    assert len(program.factors) == {"bert": 6, "gpt2": 4, "smollm2": 7}[name]
    gradients = {n: e for n, e in errors.items() if "after" not in n}
    assert max(gradients.values()) < 1e-4, gradients
    assert max(errors.values()) < 5e-3, errors


def test_the_start_is_the_model_itself_and_always_the_same() -> None:
    one, two = (compiled(small(), X, whet.lora(r=3, targets=TARGETS)).load() for _ in "ab")
    assert far(one.predict(X), small()(X)) < 1e-6
    for name, array in one.arrays().items():
        assert array.tobytes() == two.arrays()[name].tobytes()
        if name.endswith("lora_B"):
            assert not array.any()
        else:
            bound = 1 / math.sqrt(array.shape[1])  # kaiming_uniform_(a=sqrt(5)), as peft has it
            assert 0.5 * bound < np.abs(array).max() <= bound
    assert not np.array_equal(
        one.arrays()["turned.weight.lora_A"], one.arrays()["wide.weight.lora_A"]
    )


@functools.cache
def small_program() -> whet.Program:
    scheme = Scheme([*whet.lora(r=2, targets=TARGETS).rules, Rule("head.*")], name="mine")
    return compiled(small(), X, scheme)


def after(steps: int = 5) -> whet.Trainer:
    trainer = small_program().load()
    for _ in range(steps):
        trainer.step(X, Y)
    return trainer


def test_only_factors_and_what_rules_name_train() -> None:
    program, trainer = small_program(), after()
    factors = {f"{name}.weight.lora_{end}" for name in TARGETS for end in "AB"}
    assert set(program.trained) == factors | {"head.weight", "head.bias"}
    assert set(trainer.state_dict()) == set(program.trained)
    moments = {n for n in program.storage.state if n != "optimizer.step"}
    assert {n.rpartition(".")[0] for n in moments} == set(program.trained)
    numbers = 2 * ((6 + 8) + (8 + 8) + (8 + 5)) + 3 * 5 + 3
    assert program.memory["trained"] == 4 * numbers


def test_merged_weights_load_into_the_model() -> None:
    trainer = after()
    merged = trainer.state_dict(merge=True)
    assert set(merged) == {*(f"{n}.weight" for n in TARGETS), "head.weight", "head.bias"}
    net = small()
    assert merged["wide.weight"].shape == net.wide.weight.shape == (8, 5)
    assert not net.load_state_dict(merged, strict=False).unexpected_keys
    assert far(trainer.predict(X), net(X)) < 1e-5
    assert far(trainer.predict(X), small()(X)) > 1e-2


def test_checkpoints_hold_factors_alone() -> None:
    trainer = after()
    blob = trainer.save()
    other = small_program().load()
    other.load(blob)
    assert [trainer.step(X, Y) for _ in "abc"] == [other.step(X, Y) for _ in "abc"]
    named = small_program().load()
    named.load_state_dict(trainer.state_dict())
    assert far(named.predict(X), torch.from_numpy(trainer.predict(X))) == 0
    wider = compiled(small(), X, Scheme([*whet.lora(r=4, targets=TARGETS).rules, Rule("head.*")]))
    with pytest.raises(CheckpointError):
        wider.load().load(blob)


def test_a_saved_program_merges_too(tmp_path: Path) -> None:
    again = whet.load(small_program().save(tmp_path / "small.whet")).load()
    again.load(after().save())
    for name, tensor in after().state_dict(merge=True).items():
        assert torch.equal(tensor, again.state_dict(merge=True)[name])


def test_check_compares_factors_with_pytorch() -> None:
    report = small_program().check()
    assert set(report.gradients) == set(small_program().trained) == set(report.parameters)
    assert any("LoRA" in note for note in report.notes)
    assert max(report.gradients.values()) < 1e-4


def test_a_wrong_factor_is_found_by_check() -> None:
    program = small_program()
    right = {name: own.scale for name, own in program.factors.items()}
    wrong = {name: replace(own, scale=1.01 * right[name]) for name, own in program.factors.items()}
    with pytest.raises(whet.errors.CheckError, match="differ from PyTorch's"):
        replace(program, factors=wrong).check()


def test_no_gradient_of_the_frozen_weight_is_computed() -> None:
    program = small_program()
    shapes = {n.out.shape for n in program.entries["gradients"].nodes if n.op is LinearDw}
    assert (8, 6) not in shapes and (8, 8) not in shapes
    assert (2, 6) in shapes and (8, 2) in shapes


@pytest.mark.parametrize("frozen", ["kmeans4", "int8"])
def test_the_frozen_weight_may_be_stored_in_fewer_bits(frozen: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )
    for layer in (net[0], net[2]):  # values that bytes and codebooks hold
        steps = (layer.weight.data * 56).round().clamp(-7, 7)
        layer.weight.data = torch.where(torch.eye(64) > 0, torch.tensor(127.0), steps) / 1024
    x = torch.randn(64, 64)
    program = compiled(net, x, whet.lora(r=2, targets=("0", "2")), frozen=frozen)
    assert program.in_bytes >= 64 * 64 * (0.5 if frozen == "kmeans4" else 1)
    program.check(3)
    trainer = program.load()
    trainer.step(x, torch.arange(64) % 3)
    whole = trainer.state_dict(merge=True)["0.weight"]
    a, b = (trainer.state_dict()[f"0.weight.lora_{end}"] for end in "AB")
    assert torch.allclose(whole, net[0].weight.data + 8 * b @ a, atol=1e-6)


def test_a_weight_that_two_layers_share_has_one_pair() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.head(torch.tanh(self.two(torch.tanh(self.one(x)))))
            return found

    torch.manual_seed(0)
    program = compiled(Twice(), torch.randn(3, 4), whet.lora(r=2, targets="one"))
    assert list(program.trained) == ["one.weight.lora_A", "one.weight.lora_B"]
    program.check(3)


# As data -------------------------------------------------------------------------------------


SCHEMES = (
    whet.lora(),
    whet.lora(r=4, alpha=0.5, targets=("q_proj", "v_proj"), last=2),
    whet.lora(targets="linear"),
    Scheme([Rule("*", targets=("attention", "up"), last=1), Rule("head.*")], name="mine"),
)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_toml_there_and_back(scheme: Scheme, tmp_path: Path) -> None:
    assert Scheme.from_toml(scheme.to_toml()) == scheme
    path = tmp_path / "scheme.toml"
    path.write_text(scheme.to_toml())
    assert named(str(path), []).rules == scheme.rules


def test_toml_is_what_the_page_says() -> None:
    text = '[[train]]\nparams = "*"\ntargets = ["q_proj"]\nlast = 2\nlora = 8\n'
    (rule,) = Scheme.from_toml(text).rules
    assert (rule.targets, rule.last, rule.lora, rule.alpha) == (("q_proj",), 2, 8, 16.0)
    assert rule.select(parameters("smollm2")[1]) == Beside(8, 16.0)


@functools.cache
def parameters(name: str) -> tuple[Any, ...]:
    return whet.Workbench.of(*transformer(name)).parameters


@pytest.mark.parametrize(
    ("name", "targets", "ends"),
    [
        ("bert", ("query", "value"), {"query", "value"}),
        ("smollm2", ("query", "value"), {"q_proj", "v_proj"}),
        ("gpt2", ("query", "value"), {"c_attn"}),
        ("smollm2", ("q_proj",), {"q_proj"}),
        ("smollm2", "ffn", {"gate_proj", "up_proj", "down_proj"}),
        ("smollm2", ("self_attn.o_proj", "up"), {"o_proj", "gate_proj", "up_proj"}),
        ("gpt2", "linear", {"c_attn", "c_proj", "c_fc"}),
        ("distilbert", ("lin1", "output"), {"lin1", "out_lin"}),
        ("bert", "head", {"classifier"}),
    ],
)
def test_targets_are_roles_or_ends_of_names(name: str, targets: Any, ends: set[str]) -> None:
    chosen = whet.lora(targets=targets).resolve(parameters(name))
    assert {n.split(".")[-2] for n in chosen} == ends
    assert all(n.endswith(".weight") for n in chosen)
    assert set(chosen.values()) == {Beside(8, 16.0)}
    if targets != "head":
        last = whet.lora(targets=targets, last=1).resolve(parameters(name))
        assert len(chosen) == 2 * len(last)


def test_the_preset_joins_others() -> None:
    chosen = named("lora-1+last", parameters("bert")).resolve(parameters("bert"))
    assert [n for n, share in chosen.items() if share is None] == [
        "classifier.weight", "classifier.bias",
    ]  # fmt: skip
    assert len(chosen) == 4


# Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(r=0), "lora = 0"),
        (dict(r=-1), "lora = -1"),
        (dict(r=2.0), "lora = 2.0"),
        (dict(r=True), "lora = True"),
        (dict(alpha=0), "alpha = 0"),
        (dict(alpha=float("nan")), "alpha = nan"),
        (dict(alpha="16"), "alpha = '16'"),
        (dict(targets=5), "targets = (5,)"),
        (dict(targets=()), "without targets"),
        (dict(targets=("",)), "targets ="),
        (dict(targets=(3,)), "targets ="),
        (dict(last=0), "last = 0"),
        (dict(last=1.5), "last = 1.5"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemeError, match=re.escape(words)):
        whet.lora(**options)


def refused(name: str, scheme: Scheme) -> str:
    with pytest.raises(SchemeError) as error:
        scheme.resolve(parameters(name))
    return str(error.value)


def test_targets_that_are_not_there() -> None:
    text = refused("smollm2", whet.lora(targets="q_prj"))
    assert "the model has no target 'q_prj'" in text and "did you mean q_proj?" in text
    assert "found were query, key, value" in text
    assert "down_proj" in refused("smollm2", whet.lora(targets="qkv_proj"))


def test_targets_that_are_no_linear_layers() -> None:
    for name, target in (("smollm2", "embed_tokens"), ("bert", "norm"), ("gpt2", "wte")):
        text = refused(name, whet.lora(targets=target))
        assert "matches no linear layer's weight" in text and "try" in text


def test_more_blocks_than_there_are() -> None:
    text = refused("bert", whet.lora(last=3))
    assert "the model has 2 blocks before its head, so there is no last = 3" in text


def test_a_target_that_is_not_in_the_last_blocks() -> None:
    assert "matches no linear layer" in refused("bert", whet.lora(targets="classifier", last=1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(lora=8, channels=0.5), "trains the weight as well"),
        (dict(lora=8, sparse=True), "trains the weight as well"),
        (dict(alpha=8), "it is for a rule with lora"),
    ],
)
def test_rules_that_contradict_themselves(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemeError, match=words):
        Rule("*", **options)


def test_factors_are_for_programs_of_floats() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.ReLU(),
                        nn.Linear(8, 3)).eval()  # fmt: skip
    x = torch.randn(2, 1, 8, 8)
    with pytest.raises(SchemeError, match="made of integers"):
        whet.compile(net, (x,), update=whet.lora(targets="3"), dtype="int8", calibrate=[x])
    with pytest.raises(SchemeError, match="no linear layer's weight"):
        whet.compile(net, (x,), update=whet.lora(targets="0"))


def test_a_pruned_weight_is_not_adapted() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.utils.prune.l1_unstructured(net[0], "weight", 0.5)
    with pytest.raises(SchemeError, match="cannot be adapted by LoRA"):
        whet.compile(net, (torch.randn(2, 8),), update=whet.lora(targets="0"))
