"""ONNX files: the official node tests, a network, its program, and files that are refused."""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import whet
from made_onnx import hostile, model, quantized_net, small_net
from onnx_page import PAGE, page
from onnx_suite import FAMILIES, a_test_of_each_family, float_tests, judge
from whet.cli import app
from whet.errors import FrontendError, UnsupportedOps, WhetError
from whet.models import from_onnx

node = helper.make_node


def saved(made: onnx.ModelProto, folder: Path, name: str = "net.onnx") -> Path:
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture(scope="module")
def verdicts() -> list[Any]:
    return [judge(case) for case in float_tests()]


def test_an_official_test_of_each_family() -> None:
    found = {v.op: (v.kind, v.why) for v in map(judge, a_test_of_each_family())}
    assert found == dict.fromkeys(FAMILIES.values(), ("right", ""))


@pytest.mark.slow
def test_the_official_float_tests(verdicts: list[Any]) -> None:
    """None is wrong: what whet does not know, it refuses by an error of its own."""
    counts = Counter(v.kind for v in verdicts)
    bad = [v for v in verdicts if v.kind in ("wrong", "crashed")]
    assert bad == []
    assert counts["right"] >= 750 and len(verdicts) >= 788, counts


@pytest.mark.slow
def test_the_page_lists_what_is_refused(verdicts: list[Any]) -> None:
    assert page(verdicts) in PAGE.read_text(), "run: python tools/onnx_page.py"


def test_a_network_is_that_of_the_reference(tmp_path: Path) -> None:
    made = small_net()
    path = saved(made, tmp_path)
    net = from_onnx(path)
    for batch in (1, 3):
        (x,) = net.example(batch)
        assert x.shape == (batch, 1, 8, 8)
        (wanted,) = ReferenceEvaluator(made).run(None, {"x": x.numpy()})
        np.testing.assert_allclose(net(x).detach().numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_names_and_what_trains(tmp_path: Path) -> None:
    net = from_onnx(saved(small_net(), tmp_path))
    trained = ["bn.b", "bn.s", "conv.bias", "conv.weight", "head.bias", "head.weight"]
    assert sorted(n for n, _ in net.named_parameters()) == trained
    assert sorted(n for n, _ in net.named_buffers()) == ["bn.m", "bn.v"]
    assert not net.training
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    other = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert all(torch.equal(net.state_dict()[n], t) for n, t in state.items())


@pytest.mark.slow
@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 18, 21, onnx.defs.onnx_opset_version()])
def test_gradients_and_steps_agree(tmp_path: Path, opset: int) -> None:
    made = small_net(opset)
    if opset < 13:  # axes were an attribute
        old = node("Unsqueeze", ["g"], ["h"], axes=[0])
        made.graph.node[6].CopyFrom(old)
    net = from_onnx(saved(made, tmp_path))
    program = whet.compile(net, net.example(2), optimizer="sgd", accumulate=True)
    report = program.check(3)
    assert report.worst_gradient[1] < 1e-5 and report.worst_parameter[1] < 1e-5
    assert len(report.gradients) == 6


def test_a_program_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shapes are those of the file, if the command line does not say others."""
    saved(small_net(batch=2), tmp_path)
    monkeypatch.chdir(tmp_path)
    app(["compile", "net.onnx", "-o", "out", "--update", "last"], standalone_mode=False)
    assert "net_train_step" in (tmp_path / "out" / "model.h").read_text()


def test_the_command_line_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="missing; for example --input"):
        app(["plan", "whet.models:lenet"], standalone_mode=False)
    with pytest.raises(FrontendError, match=r"cannot read nothing\.onnx"):
        app(["plan", "nothing.onnx"], standalone_mode=False)


def test_constants_follow_a_double_model(tmp_path: Path) -> None:
    """`check` compares in float64, where PyTorch's norms refuse constants of float32."""
    constant = node("Constant", [], ["s"], value_floats=[2.0, 3.0])
    norm = node("InstanceNormalization", ["x", "s", "b"], ["y"])
    made = model([constant, norm], {"x": [1, 2, 4]}, constants={"b": np.ones(2, np.float32)})
    net = from_onnx(saved(made, tmp_path)).double()
    x = torch.randn(1, 2, 4, dtype=torch.float64)
    wanted = torch.nn.functional.instance_norm(x) * torch.tensor([[[2.0], [3.0]]]) + 1
    torch.testing.assert_close(net(x), wanted)


def test_masks_do_not_train(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["x", "mask"], ["a"]),
        node("Softmax", ["a"], ["b"]),
        node("Mul", ["b", "w"], ["y"]),
    ]
    for hidden in (-np.inf, np.finfo(np.float32).min):
        constants = {"mask": np.array([0, hidden], np.float32), "w": np.ones(2, np.float32)}
        net = from_onnx(saved(model(nodes, {"x": [1, 2]}, constants=constants), tmp_path))
        assert [name for name, _ in net.named_parameters()] == ["w"]
        torch.testing.assert_close(net(torch.zeros(1, 2)).detach(), torch.tensor([[1.0, 0.0]]))


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    nodes = [node("Add", ["a", "b"], ["s"]), node("MatMul", ["s", "w"], ["y"])]
    made = model(nodes, {"a": [2, 3], "b": [2, 3]}, ["s", "y"], {"w": np.ones((3, 4), np.float32)})
    path = saved(made, tmp_path)
    a, b = from_onnx(path).example()
    s, y = from_onnx(path)(a, b)
    torch.testing.assert_close(s, a + b)
    torch.testing.assert_close(y, (a + b) @ torch.ones(3, 4))
    torch.testing.assert_close(from_onnx(path, outputs=["y"])(a, b), y)
    with pytest.raises(FrontendError, match="has no output 'z'"):
        from_onnx(path, outputs=["z"])
    with pytest.raises(FrontendError, match="has 2 inputs and got 1"):
        from_onnx(path)(a)


def test_training_mode_uses_the_batch(tmp_path: Path) -> None:
    net = from_onnx(saved(small_net(), tmp_path)).train()
    before = net.get_buffer("bn.m").clone()
    net(*net.example(4))
    assert not torch.equal(before, net.get_buffer("bn.m"))


def test_quantized_weights_are_computed_in_floats(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        node("DequantizeLinear", ["qx", "sx", "zx"], ["dx"]),
        node("DequantizeLinear", ["qw", "sw", "zw"], ["dw"], axis=0),
        node("MatMul", ["dx", "dw"], ["y"]),
    ]
    constants = {
        "sx": np.float32(0.02), "zx": np.uint8(128), "sw": rng.random(3, np.float32),
        "zw": np.zeros(3, np.int8), "qw": rng.integers(-128, 128, (3, 4)).astype(np.int8),
    }  # fmt: skip
    made = model(nodes, {"x": [2, 3]}, constants=constants, opset=19)
    x = rng.normal(size=(2, 3)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    net = from_onnx(saved(made, tmp_path))
    np.testing.assert_allclose(net(torch.from_numpy(x)).detach().numpy(), wanted, rtol=1e-5)
    assert [(n, tuple(p.shape)) for n, p in net.named_parameters()] == [("dw", (3, 4))]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_a_quantized_file_is_an_int8_program(kind: type, tmp_path: Path) -> None:
    """With the integers and the scales of the file; nothing is calibrated."""
    made, pictures = quantized_net(kind)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": pictures})
    net, x = from_onnx(saved(made, tmp_path)), torch.from_numpy(pictures)
    np.testing.assert_allclose(net(x).detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
    program = whet.compile(net, (x,), dtype=whet.Int8(head="int8"), update="full", optimizer="sgd")
    stored = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    data = program.entries["train_step"].data
    for name in ("w1", "w2"):
        ours = data[name].transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(ours, stored[f"{name}_q"])
    np.testing.assert_array_equal(data["w3"], stored["w3_q"])
    trainer = program.load()
    off = np.abs(trainer.predict(x) - wanted).max() / np.ptp(wanted)
    assert off < 0.03, off
    assert program.check(2).worst_gradient[1] < 1e-5
    losses = [trainer.step(x, torch.arange(4), lr=0.05) for _ in range(5)]
    assert losses[-1] < 0.9 * losses[0]


def test_a_quantized_file_is_no_float_program(tmp_path: Path) -> None:
    made, pictures = quantized_net()
    net = from_onnx(saved(made, tmp_path))
    with pytest.raises(FrontendError, match="rounds 5 values to the grids of integers"):
        whet.compile(net, (torch.from_numpy(pictures),))


# --- files that are refused


def external(location: str, offset: str = "0", length: str = "48") -> onnx.ModelProto:
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": [2, 3]},
        constants={"w": np.ones((3, 4), np.float32)},
    )
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    return made


def test_external_data(tmp_path: Path) -> None:
    numbers = np.arange(16, dtype=np.float32)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(numbers.tobytes())
    net = from_onnx(saved(external("sub/w.bin", offset="16"), tmp_path))
    np.testing.assert_array_equal(net.w.detach().numpy(), numbers[4:].reshape(3, 4))


def test_external_data_stays_in_the_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (home / "link.bin").symlink_to(tmp_path / "secret.bin")
    (home / "loop").symlink_to(home / "loop")
    (home / "short.bin").write_bytes(bytes(20))
    os.mkfifo(home / "pipe")
    refused = {
        "../secret.bin": "lies outside", str(tmp_path / "secret.bin"): "lies outside",
        "link.bin": "lies outside", "nothing.bin": "is missing", "loop": "external data",
        "": "no file name",
        "short.bin": "is cut off", "pipe": "is missing", "a\0b": "no file name",
        "x" * 5000: "external data",
    }  # fmt: skip
    for location, words in refused.items():
        with pytest.raises(FrontendError, match=words):
            from_onnx(saved(external(location), home))
    for offset, length in (("-4", "48"), ("0", "10" * 20), ("x", "48"), ("30", "48")):
        with pytest.raises(FrontendError, match="external data"):
            from_onnx(saved(external("short.bin", offset, length), home))


def cyclic() -> onnx.ModelProto:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    return model(nodes, {"x": [2]})


def of_type(kind: int) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], {"x": [2]}, kind=kind)


REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "old operators": (model([node("Relu", ["x"], ["y"])], {"x": [2]}, opset=6), "operator set 6"),
    "new operators": (model([node("Relu", ["x"], ["y"])], {"x": [2]}, opset=99), "operator set 99"),
    "a cycle": (cyclic(), "not a valid ONNX model"),
    "a value from nowhere": (model([node("Relu", ["z"], ["y"])], {"x": [2]}), "not a valid"),
    "strings": (of_type(TensorProto.STRING), "not a valid ONNX model"),
    "two types": (
        model([node("Add", ["x", "k"], ["y"])], {"x": [2]}, constants={"k": np.arange(2)}),
        "not a valid ONNX model",
    ),
    "shapes that do not fit": (
        model(
            [node("MatMul", ["x", "w"], ["y"])],
            {"x": [2, 3]},
            constants={"w": np.ones((4, 4), np.float32)},
        ),
        "not a valid ONNX model",
    ),
    "an unknown operator": (
        model(
            [node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[1, 1])],
            {"x": [1, 1, 4, 4], "r": [1, 5]},
        ),
        "MaxRoiPool",
    ),
    "random numbers": (model([node("RandomNormalLike", ["x"], ["y"])], {"x": [2]}), "RandomNormal"),
    "no end": (
        model(
            [node("ConstantOfShape", ["s"], ["k"]), node("Add", ["x", "k"], ["y"])],
            {"x": [1]},
            constants={"s": np.array([10**6, 10**6])},
        ),
        "elements",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, tmp_path: Path) -> None:
    made, words = REFUSED[what]
    with pytest.raises(FrontendError, match=words):
        net = from_onnx(saved(made, tmp_path))
        net(*net.example())


def test_shapes_that_depend_on_values(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["s"], to=TensorProto.INT64), node("Reshape", ["x", "s"], ["y"])]
    net = from_onnx(saved(model(nodes, {"x": [1]}), tmp_path))
    with pytest.raises(UnsupportedOps, match="must be known when the model is compiled"):
        net(torch.ones(1))


def test_files_that_are_not_onnx(tmp_path: Path) -> None:
    good = small_net().SerializeToString()
    for data in (
        b"",
        b"PK\3\4",
        b"\x89PNG\r\n\x1a\n" * 4,
        good[:100],
        good[: len(good) // 2],
        b"\n" * 50,
    ):
        path = tmp_path / "bad.onnx"
        path.write_bytes(data)
        with pytest.raises(FrontendError, match=r"bad\.onnx"):
            from_onnx(path)
    with pytest.raises(FrontendError, match="no such file"):
        from_onnx(tmp_path / "none.onnx")
    with pytest.raises(FrontendError, match="it is a folder"):
        from_onnx(tmp_path)


def changed_files(count: int, seed: int, folder: Path) -> Counter[str]:
    """What becomes of files that were changed: an error of whet, or a model that runs."""
    rng, found = random.Random(seed), Counter[str]()
    goods = [small_net().SerializeToString(), external("w.bin").SerializeToString()]
    (folder / "w.bin").write_bytes(bytes(48))
    path = folder / "changed.onnx"
    torch.manual_seed(0)
    for _ in range(count):
        path.write_bytes(hostile(rng, rng.choice(goods)))
        try:
            net = from_onnx(path)
            inputs = net.example(2)
            if sum(x.numel() for x in inputs) < 1 << 20:
                net(*inputs)
            found["runs"] += 1
        except WhetError:
            found["refused"] += 1
    assert sorted(p.name for p in folder.iterdir()) == ["changed.onnx", "w.bin"]
    return found


def test_changed_files_are_refused_or_run(tmp_path: Path) -> None:
    found = changed_files(40, 0, tmp_path)
    assert found["refused"] > 10 and found["runs"] > 4, found


@pytest.mark.slow
def test_100000_changed_files(tmp_path: Path) -> None:
    assert sum(changed_files(100_000, 1, tmp_path).values()) == 100_000


@pytest.mark.slow
@pytest.mark.parametrize("newer", [False, True])
def test_what_torch_exports(newer: bool, tmp_path: Path) -> None:
    """By both exporters; benchmarks/frontends has models of others."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(32, 4), nn.LayerNorm(4),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    options: dict[str, Any] = dict(dynamo=True, verbose=False) if newer else dict(dynamo=False)
    torch.onnx.export(net, (x,), tmp_path / "net.onnx", **options)
    read = from_onnx(tmp_path / "net.onnx")
    torch.testing.assert_close(read(x), net(x), rtol=1e-5, atol=1e-6)
    report = whet.compile(read, (x,), optimizer="sgd", accumulate=True).check(3)
    assert report.worst_gradient[1] < 1e-4
