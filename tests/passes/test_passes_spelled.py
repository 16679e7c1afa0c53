"""Passes that recognise one operator in the several that a model spells it as."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from agreement import prepared  # first: transformers cannot be imported before it
from rewriting import assert_same_meaning, expect, names, parse
from whet.debug import observing
from whet.ir import Graph, Role
from whet.passes.fuse_gates import fuse_gates
from whet.passes.fuse_rms_norms import fuse_rms_norms
from whet.passes.fuse_rotary import fuse_rotary

import transformers as t  # isort: skip

t.logging.set_verbosity_error()

# --- fuse_rms_norms

NORM = """
%x : f32[2,5,6] input; %w : f32[6] param; %eps : f32[] const = [0.001]
%w.view = reshape %w {{shape=(1, 1, 6)}} : f32[1,1,6]
%square = mul %x, %x : f32[2,5,6]
%mean = mean %square {{axes=({axis},)}} : f32[{small}]
%sum = add {sum} : f32[{small}]
%scale = {root} %sum : f32[{small}]
%y = {y} : f32[2,5,6]
%z = {z} : f32[2,5,6]
return {outputs}"""
NORMED = """
%x : f32[2,5,6] input; %w : f32[6] param
%x.view = reshape %x {shape=(10, 6)} : f32[10,6]
%OUT_1, %OUT.1 = rms_norm %x.view, %GAIN {eps=0.001} : f32[10,6], f32[10]
%OUT = reshape %OUT_1 {shape=(2, 5, 6)} : f32[2,5,6]
"""


def norm(**changed: str) -> str:
    usual = dict(
        axis="2", small="2,5,1", sum="%mean, %eps", root="rsqrt", y="mul %x, %scale",
        z="mul %w.view, %y", outputs="%z",
    )  # fmt: skip
    return NORM.format(**(usual | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"sum": "%eps, %mean"},
        {"y": "mul %scale, %x", "z": "mul %y, %w.view"},
        {"z": "mul %y, %w"},
        {"root": "sqrt", "y": "div %x, %scale"},
    ],
    ids=str,
)
def test_an_rms_norm_is_recognised_with_its_gain(changed: dict[str, str]) -> None:
    after = NORMED.replace("OUT", "z").replace("GAIN", "w") + "return %z"
    expect(fuse_rms_norms, norm(**changed), after, rtol=1e-12)


@pytest.mark.parametrize("z", ["mul %y, %y", "mul %y, %x", "relu %y"])
def test_it_has_a_gain_of_ones_if_no_gain_follows(z: str) -> None:
    before = parse(norm(z=z))
    after = fuse_rms_norms(before)
    assert names(after) == ["reshape", "rms_norm", "reshape", z.split()[0]]
    assert_same_meaning(before, after, rtol=1e-12)


def test_a_result_without_the_gain_is_kept_if_it_is_read() -> None:
    before = parse(norm(outputs="%y, %z"))
    after = fuse_rms_norms(before)
    assert names(after) == ["reshape", "reshape", "rms_norm", "reshape", "mul"]
    assert_same_meaning(before, after, rtol=1e-12)


@pytest.mark.parametrize(
    "changed",
    [
        {"axis": "1", "small": "2,1,6"},
        {"root": "sqrt"},
        {"outputs": "%z, %scale"},
        {"outputs": "%z, %mean"},
        {"root": "sqrt", "y": "div %scale, %x"},
    ],
    ids=str,
)
def test_other_arithmetic_stays(changed: dict[str, str]) -> None:
    expect(fuse_rms_norms, norm(**changed))


def test_a_norm_of_a_norm_of_rows() -> None:
    """Where nothing has to be reshaped, the second reads the result of the first."""
    before = parse("""
        %x : f32[3,6] input; %w : f32[6] param; %eps : f32[] const = [0.001]
        %a = mul %x, %x : f32[3,6]
        %b = mean %a {axes=(1,)} : f32[3,1]
        %c = add %b, %eps : f32[3,1]
        %d = rsqrt %c : f32[3,1]
        %e = mul %x, %d : f32[3,6]
        %f = mul %e, %w : f32[3,6]
        %g = mul %f, %f : f32[3,6]
        %h = mean %g {axes=(1,)} : f32[3,1]
        %i = add %h, %eps : f32[3,1]
        %j = rsqrt %i : f32[3,1]
        %k = mul %f, %j : f32[3,6]
        return %k""")
    after = fuse_rms_norms(before)
    assert names(after) == ["rms_norm", "rms_norm"]
    assert_same_meaning(before, after, rtol=1e-12)


# --- fuse_rotary

ROTARY = """
%x : f32[2,5,3,8] input
%cos : f32[{table}] const
%sin : f32[{table}] const
%straight = mul %x, %cos : f32[2,5,3,8]
%low = slice %x {{axis=3, stop={cut}}} : f32[2,5,3,4]
%high = slice %x {{axis=3, start=4, stop=8}} : f32[2,5,3,4]
%neg = neg %{negated} : f32[2,5,3,4]
%cat = concat {parts} {{axis=3}} : f32[2,5,3,8]
%crossed = mul {crossed} : f32[2,5,3,8]
%y = {y} : f32[2,5,3,8]
return {outputs}"""


def rotary(table: str = "1,5,1,8", repeat: bool = True, **changed: str) -> Graph:
    usual = dict(
        cut="4", negated="high", parts="%neg, %low", crossed="%cat, %sin", outputs="%y",
        y="add %straight, %crossed",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    shape = [int(n) for n in table.split(",")]
    data = {}
    for name in ("cos", "sin"):
        half = rng.normal(size=(*shape[:-1], 4))
        other = half if repeat else rng.normal(size=half.shape)
        data[name] = np.concatenate([half, other], -1)
    return parse(ROTARY.format(table=table, **(usual | changed)), data)


def turned(graph: Graph) -> Graph:
    return fuse_rotary(graph, changing=())


@pytest.mark.parametrize("table", ["1,5,1,8", "2,5,1,8", "5,1,8", "1,1,3,8", "8"])
@pytest.mark.parametrize("crossed", ["%cat, %sin", "%sin, %cat"])
@pytest.mark.parametrize("y", ["add %straight, %crossed", "add %crossed, %straight"])
def test_a_rotary_embedding_is_recognised(table: str, crossed: str, y: str) -> None:
    before = rotary(table, crossed=crossed, y=y)
    after = turned(before)
    assert set(names(after)) <= {"reshape", "rotary"}
    assert {v.shape[-1] for v in after.leaves_of(Role.CONST)} == {4}  # half of each table
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    "changed",
    [
        {"repeat": False},
        {"parts": "%low, %neg"},
        {"negated": "low", "parts": "%neg, %high"},
        {"y": "sub %straight, %crossed"},
        {"outputs": "%y, %neg"},
        {"table": "2,1,3,8"},  # varies with an axis in between that does not
    ],
    ids=str,
)
def test_other_movements_stay(changed: dict[str, str]) -> None:
    before = rotary(**changed)  # type: ignore[arg-type]
    assert str(turned(before)) == str(before)


PARTIAL = """
%q : f32[2,5,3,12] input
%cos : f32[1,5,1,8] const
%sin : f32[1,5,1,8] const
%x = slice %q {{axis=3, stop=8}} : f32[2,5,3,8]
%rest = slice %q {{axis=3, start={start}, stop={stop}}} : f32[2,5,3,4]
%straight = mul %x, %cos : f32[2,5,3,8]
%low = slice %x {{axis=3, stop=4}} : f32[2,5,3,4]
%high = slice %x {{axis=3, start=4, stop=8}} : f32[2,5,3,4]
%neg = neg %high : f32[2,5,3,4]
%cat = concat %neg, %low {{axis=3}} : f32[2,5,3,8]
%crossed = mul %cat, %sin : f32[2,5,3,8]
%y = add %straight, %crossed : f32[2,5,3,8]
%whole = concat {parts} {{axis=3}} : f32[2,5,3,12]
return %whole"""


@pytest.mark.parametrize(
    ("start", "parts", "left"),
    [(8, "%y, %rest", ["rotary"]), (4, "%y, %rest", None), (8, "%rest, %y", None)],
)
def test_some_channels_can_stay_as_they_are(start: int, parts: str, left: list[str] | None) -> None:
    tables = rotary()
    text = PARTIAL.format(start=start, stop=start + 4, parts=parts)
    before = parse(text, dict(tables.data))
    after = turned(before)
    assert names(after) == (left or ["slice", "slice", "rotary", "concat"])
    assert_same_meaning(before, after)


COMPUTED = """
%x : f32[2,5,3,8] input; %angle : f32[2,5,4] {role}; %one : f32[] const = [1.5]
%both = concat %angle, {other} {{axis=2}} : f32[2,5,8]
%c = cos %both : f32[2,5,8]
%scaled = mul %c, %one : f32[2,5,8]
%cos = reshape %scaled {{shape=(2, 5, 1, 8)}} : f32[2,5,1,8]
%s = sin %both : f32[2,5,8]
%sin = reshape %s {{shape=(2, 5, 1, 8)}} : f32[2,5,1,8]
%straight = mul %x, %cos : f32[2,5,3,8]
%low = slice %x {{axis=3, stop=4}} : f32[2,5,3,4]
%high = slice %x {{axis=3, start=4, stop=8}} : f32[2,5,3,4]
%neg = neg %high : f32[2,5,3,4]
%cat = concat %neg, %low {{axis=3}} : f32[2,5,3,8]
%crossed = mul %cat, %sin : f32[2,5,3,8]
%y = add %straight, %crossed : f32[2,5,3,8]
return %y"""


def test_tables_can_be_computed() -> None:
    before = parse(COMPUTED.format(role="input", other="%angle"))
    after = turned(before)
    assert names(after)[-1] == "rotary" and not {"neg", "add"} & {*names(after)}
    assert_same_meaning(before, after)


@pytest.mark.parametrize(("role", "other"), [("param", "%angle"), ("input", "%cos_of")])
def test_but_not_from_what_trains_nor_with_other_halves(role: str, other: str) -> None:
    """The operator gives its tables no gradient."""
    text = COMPUTED.format(role=role, other=other)
    if other != "%angle":
        text = text.replace("%both", "%cos_of = cos %angle : f32[2,5,4]\n%both", 1)
    before = parse(text)
    assert str(fuse_rotary(before, changing=["angle"])) == str(before)


# --- fuse_gelu and fuse_gates

SPELLED = {
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "gelu_tanh, fast": lambda x: (
        0.5 * x * (1 + torch.tanh(x * 0.79788456 * (1 + 0.044715 * x * x)))
    ),
    "gelu": lambda x: x * 0.5 * (1.0 + torch.erf(x / 2**0.5)),
    "gelu, from a cdf": lambda x: 0.5 * (1.0 + torch.erf(x * 0.70710678)) * x,
}


class Function(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.function = nn.Linear(6, 9), nn.Linear(6, 9), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.a(x), self.b(x))  # type: ignore[operator, no-any-return]


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def stepped(model: nn.Module, x: Tensor, **options: object) -> Counter[str]:
    """The operators of a training step whose gradients are PyTorch's."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    program = whet.compile(
        model, (x,), optimizer=optimizer, accumulate=True, **options  # type: ignore[arg-type]
    )  # fmt: skip
    program.check()
    return Counter(names(program.entries["train_step"]))


@pytest.mark.parametrize("name", SPELLED)
def test_gelu_is_recognised_in_any_order(name: str) -> None:
    ops = stepped(Function(lambda a, b: SPELLED[name](a + b)), X)
    (kind, *_) = name.split(",")
    assert ops[kind] == ops[f"{kind}_dx"] == 1
    assert not {"pow", "tanh", "erf", "mul", "div"} & ops.keys()


OTHERS = {
    "another cube": lambda a, b: 0.5 * a * (1 + torch.tanh(0.7978845608 * (a + 0.05 * a**3))),
    "another factor": lambda a, b: 0.4 * a * (1 + torch.tanh(0.7978845608 * (a + 0.044715 * a**3))),
    "of another": lambda a, b: 0.5 * b * (1 + torch.tanh(0.7978845608 * (a + 0.044715 * a**3))),
    "the wrong slope": lambda a, b: 0.5 * a * (1 + torch.erf(a)) + b,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_curves_stay(name: str) -> None:
    ops = stepped(Function(OTHERS[name]), X)
    assert ops["tanh"] + ops["erf"] == 1 and not {"gelu", "gelu_tanh"} & ops.keys()


def test_spelled_or_not_gelu_is_the_same_program() -> None:
    for name, approximate in (("gelu_tanh", "tanh"), ("gelu", "none")):
        ways = [
            stepped(Function(lambda a, b, f=f: f(a) + b), X)
            for f in (SPELLED[name], nn.GELU(approximate=approximate))
        ]
        assert ways[0] == ways[1]


GATES = {
    "swiglu": nn.functional.silu,
    "geglu": nn.functional.gelu,
    "geglu_tanh": SPELLED["gelu_tanh"],
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", GATES)
def test_gates_are_fused_and_keep_less(name: str, swapped: bool) -> None:
    f = GATES[name]
    model = Function(lambda a, b: b * f(a) if swapped else f(a) * b)
    ops = stepped(model, X)
    assert ops[name] == ops[f"{name}_dx"] == 1 and not ops["mul"]
    ops = stepped(model, X, without="fuse_gates")
    assert not ops[name] and ops["mul"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "%s = silu %a : f32[2,6]; %y = mul %s, %s : f32[2,6]; return %y",
        "%s = silu %a : f32[2,6]; %y = mul %s, %b : f32[2,6]; return %y, %s",
        "%s = silu %a : f32[2,6]; %y = mul %s, %c : f32[2,6]; return %y",
        "%s = tanh %a : f32[2,6]; %y = mul %s, %b : f32[2,6]; return %y",
    ],
)
def test_other_products_stay(text: str) -> None:
    leaves = "%a : f32[2,6] input; %b : f32[2,6] input; %c : f32[6] input"
    expect(fuse_gates, f"{leaves}\n" + text.replace("; ", "\n"))


# --- models

SMALL = dict(
    vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, intermediate_size=64, max_position_embeddings=64,
)  # fmt: skip


class Words(nn.Module):
    def __init__(self, model: nn.Module, positions: Tensor | None = None) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, *positions: Tensor) -> Tensor:
        given = dict(position_ids=positions[0]) if positions else {}
        return self.model(ids, use_cache=False, **given).logits.transpose(1, 2)


IDS = torch.randint(3, 99, (2, 12), generator=torch.Generator().manual_seed(0))


def model_graphs(
    model: nn.Module, *inputs: Tensor, **options: object
) -> tuple[Graph, whet.Program]:
    """The model with its loss, recognised, and the program, whose gradients are PyTorch's."""
    seen: dict[str, Graph] = {}

    def watch(step: str, entry: str, before: Graph | None, after: Graph) -> None:
        if entry == "training":
            seen["training"] = after

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    with observing(watch):
        program = whet.compile(
            model, inputs, optimizer=optimizer, accumulate=True, **options  # type: ignore[arg-type]
        )  # fmt: skip
    program.check()
    return seen["training"], program


@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_a_language_model_has_each_as_one_operator(kind: str) -> None:
    """And two tables of angles, of half the width of a head, for all layers."""
    torch.manual_seed(0)
    model = getattr(t, f"{kind}ForCausalLM")(getattr(t, f"{kind}Config")(**SMALL))
    graph, program = model_graphs(prepared(Words(model), IDS), IDS)
    layers, ops = SMALL["num_hidden_layers"], Counter(names(graph))
    assert ops["rms_norm"] == 2 * layers + 1
    assert ops["rotary"] == 2 * layers
    assert ops["swiglu"] == layers
    left = {"slice", "neg", "concat", "pow", "rsqrt", "mean", "silu"}
    assert not left & ops.keys()
    assert len(rotations(graph)) == 2
    ops = Counter(names(program.entries["train_step"]))
    assert ops["rms_norm_dx"] == ops["rms_norm_dw"] == 2 * layers + 1
    assert ops["rotary"] == 4 * layers and ops["swiglu_dx"] == layers
    assert not (left | {"slice_dx", "rsqrt_dx", "silu_dx"}) & ops.keys()


def rotations(graph: Graph) -> set[str]:
    tables = {v for n in graph.nodes if n.op.name == "rotary" for v in n.ins[1:]}
    assert {v.shape for v in tables} == {(1, 12, 1, 4)}
    return {v.name for v in tables}


def test_positions_can_be_an_input() -> None:
    """Of each sample its own: the angles are computed at run time, once for all layers."""
    torch.manual_seed(0)
    model = prepared(Words(t.LlamaForCausalLM(t.LlamaConfig(**SMALL))), IDS)
    positions = torch.arange(12)[None] + torch.tensor([[3], [0]])
    graph, _ = model_graphs(model, IDS, positions)
    ops = Counter(names(graph))
    assert ops["rotary"] == 6 and ops["cos"] == ops["sin"] == 1
    halves = {n.out.name for n in graph.nodes if n.op.name == "slice" and "rotary" in n.out.name}
    assert halves == {"rotary.cos", "rotary.sin"} and not ops["neg"]


def test_the_passes_can_be_left_out_and_save_memory() -> None:
    torch.manual_seed(0)
    model = prepared(Words(t.LlamaForCausalLM(t.LlamaConfig(**SMALL))), IDS)
    passes = ["fuse_rms_norms", "fuse_rotary", "fuse_gates"]
    graph, plain = model_graphs(model, IDS, without=passes)
    assert not {"rms_norm", "rotary", "swiglu"} & {*names(graph)}
    _, fused = model_graphs(model, IDS)
    assert fused.arena < 0.9 * plain.arena
