"""Reports add up: the layers to the program, the pictures to the plan, and both to PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import tiny
import whet
from whet.emit.program import Program
from whet.ir import Builder, Role, f32
from whet.memory.plan import ALIGN, Buffer, Plan, plan
from whet.ops.binary import Add
from whet.ops.reduce import Sum
from whet.ops.shape import Concat
from whet.report import arena_svg, kib, layer_table, layers_svg, to_json
from whet.report.kept import kept_buffers, loss_step
from whet.report.layers import NUMBERS, Layer, layers

SVG = "{http://www.w3.org/2000/svg}"
Case = tuple[nn.Module, torch.Tensor, Program]
Box = tuple[float, float, float, float]  # left, top, right, bottom


def some_of_a_convnet() -> nn.Module:
    model = tiny.convnet(dropout=0.1).train()
    model.stem.requires_grad_(False)
    model.depthwise.bias.requires_grad_(False)
    return model


def biases_of_an_mlp() -> nn.Module:
    model = tiny.mlp()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


def head_of_a_convnet() -> nn.Module:
    model = tiny.convnet(norm=False).eval().requires_grad_(False)
    model.head.requires_grad_(True)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "convnet": lambda: tiny.convnet().train(),
    "mlp": tiny.mlp,
    "some of a convnet": some_of_a_convnet,
    "biases of an mlp": biases_of_an_mlp,
    "head of a convnet": head_of_a_convnet,
}
made: dict[str, Case] = {}


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> Case:
    if request.param not in made:
        made[request.param] = compiled(MODELS[request.param]())
    return made[request.param]


def compiled(model: nn.Module, **options: object) -> Case:
    batches = tiny.vectors() if isinstance(model, nn.Sequential) else tiny.images()
    x, _ = next(batches)
    return model, x, whet.compile(model, (x,), **options)


def total(found: list[Layer], number: str) -> int:
    return sum(getattr(layer, number) for layer in found)


def rounded(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


# Layers --------------------------------------------------------------------------------------


def test_kept_bytes_add_up(case: Case) -> None:
    """What the forward pass makes and the backward pass reads, whoever made it."""
    _, _, program = case
    p = program.plans["train_step"]
    loss = loss_step(p.graph)
    before = {v for n in p.graph.nodes[: loss + 1] for v in n.outs}
    after = {v for n in p.graph.nodes[loss + 1 :] for v in n.ins}
    homes = {h for v in before & after if isinstance(h := p.home[v], Buffer)}
    assert homes == set(kept_buffers(p))
    assert total(layers(program), "kept_bytes") == sum(b.bytes for b in homes) > 0


def test_macs_add_up(case: Case) -> None:
    _, _, program = case
    graph = program.entries["train_step"]
    loss, found = loss_step(graph), layers(program)
    assert graph.outputs[0] in graph.nodes[loss].outs
    forward, backward = graph.nodes[: loss + 1], graph.nodes[loss + 1 :]
    assert total(found, "forward_macs") == sum(n.op.macs(n) for n in forward) > 0
    assert total(found, "backward_macs") == sum(n.op.macs(n) for n in backward)


def test_forward_macs_are_those_pytorch_counts(case: Case) -> None:
    model, x, program = case
    with FlopCounterMode(display=False) as counter:
        model(x)
    counts = {path: sum(flops.values()) for path, flops in counter.get_flop_counts().items()}
    layered = {path.partition(".")[2]: n for path, n in counts.items() if "." in path and n}
    assert layered == {x.name: 2 * x.forward_macs for x in layers(program) if x.forward_macs}


def test_weights_and_gradients_are_those_of_the_module(case: Case) -> None:
    model, _, program = case
    found = {layer.name: layer for layer in layers(program)}
    for name, module in model.named_modules():
        params = dict(module.named_parameters(recurse=False))
        if not params:
            continue
        sizes = {k: 4 * p.numel() for k, p in params.items()}
        trained = [k for k, p in params.items() if p.requires_grad]
        layer = found[name]
        assert layer.trained_bytes == sum(sizes[k] for k in trained)
        assert layer.frozen_bytes == sum(sizes.values()) - layer.trained_bytes
        assert layer.gradient_bytes == sum(rounded(sizes[k]) for k in trained)
        assert set(layer.kinds) == set(trained)
        assert layer.trained == {0: "no", len(params): "all"}.get(len(trained), "part")
    assert total(layers(program), "trained_bytes") == program.memory["trained"]


def test_layers_stand_in_forward_order() -> None:
    program = compiled(tiny.convnet(norm=False).eval())[2]
    names = ["stem", "depthwise", "grouped", "pool", "", "head", "loss"]
    assert [layer.name for layer in layers(program)] == names


def test_clipping_leaves_gradients_with_their_layers() -> None:
    """Clipped gradients are all updated at the end, where the last location is another's."""
    plain, clipped = (compiled(tiny.mlp(), clip_norm=c)[2] for c in (None, 1.0))
    assert [x.gradient_bytes for x in layers(plain)] == [x.gradient_bytes for x in layers(clipped)]


def test_a_shared_parameter_counts_once() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    model[1].weight = model[0].weight
    first, second, *_ = layers(compiled(model)[2])
    assert (first.trained_bytes, second.trained_bytes) == (120, 20)
    assert second.kinds == ("bias",) and second.trained == "all"


def test_folded_statistics_are_frozen_weights() -> None:
    found = {x.name: x for x in layers(compiled(tiny.convnet().eval())[2])}
    assert found["bn"].trained == "all"
    assert found["bn"].trained_bytes == 2 * 4 * 4 and found["bn"].frozen_bytes > 0


def test_the_table_says_what_the_layers_say() -> None:
    program = compiled(some_of_a_convnet())[2]
    found = [x for x in layers(program) if x.says_something]
    head, *rows, last = layer_table(program).splitlines()
    assert [row.split()[0] for row in rows] == [x.label for x in found]
    assert {x.name for x in layers(program)} - {x.name for x in found} == {"drop", "loss"}
    assert [x.trained for x in found if x.name == "depthwise"] == ["part"]
    assert next(row for row in rows if row.startswith("depthwise")).endswith("part: weight")
    sums = [total(found, number) for number in NUMBERS]
    expected = " ".join([*map(kib, sums[:4]), *(f"{n:,}" for n in sums[4:])])
    assert " ".join(last.split()) == f"total {expected}"
    ends = [head.index(word) + len(word) for word in ("kept", "trained", "frozen", "gradients")]
    assert all(line[end - 1] != " " for line in rows for end in ends), "columns are aligned"


# Data ----------------------------------------------------------------------------------------


def leaves(x: object) -> Iterator[object]:
    if isinstance(x, (dict, list)):
        for item in x.values() if isinstance(x, dict) else x:
            yield from leaves(item)
    else:
        yield x


def test_json_says_it_all_in_integers(case: Case) -> None:
    _, _, program = case
    data = to_json(program)
    assert json.loads(json.dumps(data)) == data
    assert {type(x) for x in leaves(data)} == {int, str}
    assert data["memory"] == program.memory
    assert data["entries"].keys() == program.plans.keys()
    for name, p in program.plans.items():
        entry = data["entries"][name]
        assert (entry["arena"], entry["bound"]) == (p.arena, p.lower_bound)
        assert sum(b["bytes"] for b in entry["peak"]["live"]) == p.lower_bound
        assert f" = {p.graph.nodes[p.peak].op.name} " in entry["peak"]["node"]
    macs = sum(x["forward_macs"] + x["backward_macs"] for x in data["layers"])
    assert macs == data["entries"]["train_step"]["macs"]


# Pictures ------------------------------------------------------------------------------------


def boxes(root: ElementTree.Element, kind: str) -> list[Box]:
    """Every rectangle of a class, in order."""
    found = []
    for r in root.iter(f"{SVG}rect"):
        if r.get("class") == kind:
            x, y, width, height = (float(r.attrib[k]) for k in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def assert_inside(box: Box, outer: Box) -> None:
    slack = 0.02  # two decimals
    assert box[0] >= outer[0] - slack and box[1] >= outer[1] - slack
    assert box[2] <= outer[2] + slack and box[3] <= outer[3] + slack


def check_arena(p: Plan) -> ElementTree.Element:
    root = ElementTree.fromstring(arena_svg(p, 'a < b & "c"'))
    assert root.findtext(f"{SVG}title") == 'a < b & "c"'
    (plot,) = boxes(root, "plot")
    buffers = boxes(root, "buffer")
    assert len(buffers) == len(p.buffers)
    for box in buffers:
        assert_inside(box, plot)
    return root


def test_the_arena_shows_every_buffer(case: Case) -> None:
    _, _, program = case
    for name, p in program.plans.items():
        root = check_arena(p)
        lines = {line.get("class"): line for line in root.iter(f"{SVG}line")}
        assert ("loss" in lines) == (name == "train_step")
        tips = [r.findtext(f"{SVG}title") or "" for r in root.iter(f"{SVG}rect")]
        for b in p.buffers:
            life = f"{kib(b.bytes)} at byte {b.offset:,}\nsteps {b.first} to {b.last}"
            assert any(t.startswith(b.values[0].name) and t.endswith(life) for t in tips)


def test_rectangles_are_to_scale() -> None:
    b = Builder("predict")
    x = b.leaf("x<y", f32(1024), Role.INPUT)
    y = b.emit(Add, x, x, name="once & twice")
    z = b.emit(Add, x, y, name="thrice")
    p = plan(b.finish([b.emit(Concat, b.emit(Add, y, z, name="five"), y)]))
    root = check_arena(p)
    (left, top, right, bottom), *_ = boxes(root, "plot")
    step, byte = (right - left) / 5, (bottom - top) / 1.06 / p.arena  # four nodes and the end
    expected = [
        (left + step * b.first, bottom - byte * b.end, left + step * (b.last + 1),
         bottom - byte * b.offset)
        for b in p.buffers
    ]  # fmt: skip
    assert len(expected) > 1
    for shown, wanted in zip(boxes(root, "buffer"), expected, strict=True):
        assert shown == pytest.approx(wanted, abs=0.02)


def test_an_entry_without_buffers_has_an_empty_picture() -> None:
    b = Builder("predict")
    check_arena(plan(b.finish([b.leaf("x", f32(4), Role.INPUT)])))


def test_accumulation_has_gradients_in_its_picture_too() -> None:
    program = compiled(tiny.mlp(), accumulate=True, without=["fuse_updates"])[2]
    for name in ("train_step", "gradients", "apply"):
        root = check_arena(program.plans[name])
        tips = [r.findtext(f"{SVG}title") or "" for r in root.iter(f"{SVG}rect")]
        found = {t.partition("\n")[0].split(",")[0] for t in tips if "parameter gradient" in t}
        assert {"d.fc1.weight", "d.fc2.weight"} <= found


def test_thousands_of_buffers_stay_visible_and_inside() -> None:
    """Also where less than a pixel is left: at the lowest address and at the last step."""
    b = Builder("predict")
    x, small = b.leaf("x", f32(100_000), Role.INPUT), b.leaf("small", f32(1), Role.INPUT)
    lowest = b.emit(Add, small, small)
    after = b.emit(Add, lowest, b.leaf("y", f32(4), Role.INPUT))
    large = b.emit(Add, x, b.emit(Sum, after, axes=(0,)))
    values = [large, *(b.emit(Add, small, small) for _ in range(4000))]
    p = plan(b.finish([b.emit(Concat, *values)]))
    assert len(p.buffers) > 4000 and any(h.offset == 0 and h.bytes == ALIGN for h in p.buffers)
    shown = boxes(check_arena(p), "buffer")
    assert min(min(box[2] - box[0], box[3] - box[1]) for box in shown) > 0.5


def test_bars_are_the_bytes_of_the_layers(case: Case) -> None:
    _, _, program = case
    root = ElementTree.fromstring(layers_svg(program, "x"))
    upper, lower = boxes(root, "plot")
    for kind, plot in (("kept", upper), ("trained", lower), ("frozen", lower)):
        sizes = [n for x in layers(program) if (n := getattr(x, f"{kind}_bytes"))]
        bars = boxes(root, kind)
        assert len(bars) == len(sizes)
        for box in bars:
            assert_inside(box, plot)
        heights = [box[3] - box[1] for box in bars]
        for size, height in zip(sizes, heights, strict=True):
            expected = max(0.6, max(heights) * size / max(sizes))
            assert height == pytest.approx(expected, abs=0.05)


def test_pictures_are_the_same_every_time() -> None:
    first, second = (compiled(tiny.convnet(norm=False).eval())[2] for _ in range(2))
    assert layers_svg(first, "x") == layers_svg(second, "x")
    plans = first.plans["train_step"], second.plans["train_step"]
    assert arena_svg(plans[0], "x") == arena_svg(plans[1], "x")
