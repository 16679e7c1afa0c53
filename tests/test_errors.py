"""Errors before a program exists: what went wrong, where, why in numbers, what would work."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from messages import Function, X, Y, compiling, message
from tiny import mlp
from whet.errors import (
    DataError,
    FrontendError,
    InternalError,
    ShapeError,
    UnsupportedOps,
    WhetError,
    either,
    for_the_shell,
    option,
)
from whet.frontend.torch.choices import LossName
from whet.ir.interp import interpret
from whet.ir.text import parse_graph
from whet.ops.optimizers import NAMES

SOURCE = str(Path(whet.__file__).parents[1])


# The tree ------------------------------------------------------------------------------------


def test_every_error_is_a_whet_error_with_a_code_of_its_own() -> None:
    found = [e for e in vars(whet.errors).values() if isinstance(e, type)]
    errors = [e for e in found if issubclass(e, WhetError)]
    assert len(errors) >= 10 and len({e.code for e in errors}) == len(errors)
    for error in errors:
        assert error.__name__ in whet.errors.__doc__, "the tree at the top lists it"


def test_a_message_has_four_parts() -> None:
    error = WhetError("too much", at="here", why=["a: 1", "b: 2"], try_="less")
    assert str(error) == (
        "too much  [W000]\n  at    here\n  why   a: 1\n        b: 2\n  try   less"
    )
    assert error.what == "too much"


def test_an_option_is_written_as_its_user_writes_it() -> None:
    assert option("update", "last") == 'update="last"' and option("ram") == "ram="
    assert option("clip_norm", 1.0) == "clip_norm=1.0" and option("watch", False) == "watch=False"
    with for_the_shell():
        assert option("update", "a b") == "--update 'a b'" and option("ram") == "--ram"
        assert option("clip_norm", 1.0) == "--clip-norm 1.0" and option("train", True) == "--train"
        assert option("watch", False) == "--no-watch" and either("this", "that") == "that"
    assert either("this", "that") == "this"


def test_a_warning_is_about_the_line_that_called(recwarn: Any) -> None:
    whet.compile(mlp(), (X,), update="last", frozen="int8")
    whet.compare(mlp().train(), (X,), ["last"], dtype="int8", calibrate=[X])
    words = ["no frozen weight", "in eval mode", "stays in float32"]
    for warning, word in zip(recwarn, words, strict=True):
        assert word in str(warning.message) and warning.filename == __file__


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dtype": "int8"}, "calibrate=loader"),
        ({"ram": "much"}, "'much' is not a number of bytes"),
        ({"update": "lst"}, "did you mean last?"),
        ({"update": Path("no.toml")}, "cannot read the scheme no.toml"),
        ({"update": 5}, "update=5 is not a valid scheme"),
        ({"update": whet.Search}, "is not a valid scheme"),
        ({"update": "auto", "ram": "1M"}, 'update="auto" needs data='),
        ({"clip_norm": -1}, "clip_norm=-1 limits nothing"),
        ({"clip_norm": "much"}, 'clip_norm="much" limits nothing'),
        ({"without": ["reord"]}, "'reord' is not a pass"),
    ],
)
def test_what_needs_no_tracing_is_said_before(
    options: dict[str, Any], what: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("whet.frontend.torch.export.export", lambda *_: pytest.fail("too late"))
    with pytest.raises(WhetError) as caught:
        whet.compile(mlp(), (X,), **options)
    assert what in str(caught.value)


# Bringing a model in -------------------------------------------------------------------------


class Unsupported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 3)
        self.second = nn.Sequential(nn.Linear(3, 3), Sorting())

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.cumprod(self.first(x), 1)) + torch.linalg.det(x[:, :4])


class Sorting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sort(x, dim=1).values


def test_unsupported_operators_are_all_listed() -> None:
    text = message(UnsupportedOps, lambda: whet.compile(Unsupported(), (X,)))
    lines = text.splitlines()
    assert lines[0].startswith("3 operator(s) of this model are not supported")
    assert "at    the model's forward: aten.cumprod.default(float32[4, 3], 1): " in lines[1]
    assert "second.1: aten.sort.default(float32[4, 3], 1): " in lines[2]
    assert "the model's forward: aten._linalg_det.default(float32[4, 4]): " in lines[3]
    assert lines[-1].startswith("  try   replace them")


def test_an_operator_used_in_an_unsupported_way_says_why() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.InstanceNorm1d(4, track_running_stats=True)).train()
    text = message(UnsupportedOps, lambda: whet.compile(model, (X,), labels=Y))
    assert "1: aten.instance_norm" in text and "updates running statistics" in text


def test_a_batch_of_one_has_no_statistics() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)).train()
    assert "Expected more than 1 value per channel when training" in compiling(model, (X[:1],))


def test_what_is_not_a_module() -> None:
    assert "the model is a str, not a torch.nn.Module" in compiling("resnet")
    assert "the model is a function, not a torch.nn.Module" in compiling(mlp)


@pytest.mark.parametrize("inputs", [X, [X], (X.numpy(),), (1, X), None], ids=type)
def test_inputs_that_are_no_tuple_of_tensors(inputs: Any) -> None:
    text = compiling(mlp(), inputs)
    assert "example inputs must be a tuple of tensors" in text
    assert f"got {type(inputs).__name__}" in text
    assert "compile(model, (torch.randn(1, 3, 128, 128),), ...)" in text


@pytest.mark.parametrize("target", [None, Y])
def test_an_example_the_model_itself_refuses(target: Tensor | None) -> None:
    text = compiling(mlp(), (torch.zeros(2, 7),), labels=target)
    assert "the model itself fails on the example input of shape (2, 7)" in text
    assert "mat1 and mat2 shapes cannot be multiplied (2x7 and 5x8)" in text


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_parameters_that_are_not_float32(dtype: torch.dtype) -> None:
    text = compiling(mlp().to(dtype), (X.to(dtype),))
    assert f"parameter 'fc1.weight' has dtype {dtype}; whet trains models in float32" in text
    assert "try   model.float()" in text


@pytest.mark.parametrize("dtype", [torch.complex64])
def test_inputs_of_a_type_that_programs_do_not_take(dtype: torch.dtype) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x.real.float() if x.is_complex() else x.float())

    text = compiling(Cast(), (X.to(dtype),))
    assert f"has dtype {dtype}; use float32, or integers for ids" in text


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x + torch.nonzero(x).sum(), "aten.nonzero.default(float32[4, 3])"),
        (lambda x: x + x[x.sum(1) > 0].mean(0), "aten.index.Tensor(float32[4, 3], [bool[4]])"),
    ],
    ids=["nonzero", "mask"],
)
def test_shapes_that_depend_on_data(function: Callable[[Tensor], Tensor], operator: str) -> None:
    text = message(UnsupportedOps, lambda: whet.compile(Function(function), (X,)))
    assert f"the model's forward: {operator}: the shape of its result depends on values" in text


def test_shapes_that_depend_on_data_and_are_used_as_numbers() -> None:
    text = compiling(Function(lambda x: x + torch.zeros(int(x.sum().abs()) + 1).sum()))
    assert "control flow or shapes depend on the values of its input" in text
    assert "operators with fixed shapes" in text


def test_a_counter_that_the_result_depends_on() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(5, 3)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1)
            return self.fc(x) / self.calls.float()

    text = compiling(Counting())
    assert "the model's result depends on an integer buffer that changes" in text
    assert "at    calls" in text and "keep it in a float32 buffer" in text


def test_a_model_that_cannot_be_traced_says_why() -> None:
    def fail(x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            raise RuntimeError("the moon is in the wrong phase")
        return x

    text = compiling(Function(fail))
    assert "torch.export could not trace the model (RuntimeError)" in text
    assert "the moon is in the wrong phase" in text
    assert "make `torch.export.export(model, inputs)` work first" in text


@pytest.mark.parametrize(
    ("output", "kind"), [(lambda x: (x, x), "tuple"), (lambda x: {"a": x}, "dict"), (len, "int")]
)
def test_a_model_that_returns_no_single_tensor(output: Callable[[Tensor], Any], kind: str) -> None:
    text = compiling(Function(output))
    assert f"the model returns a {kind}, not a tensor" in text
    assert "wrap it in a module that returns only the tensor that the loss takes" in text


def test_the_only_item_of_a_tuple_and_logits_are_taken() -> None:
    for output in (lambda x: (x,), lambda x: {"logits": x}):
        model = Function(output)
        right = model.fc(X).detach().numpy()
        np.testing.assert_allclose(whet.compile(model, (X,)).load().predict(X), right, rtol=1e-5)


@pytest.mark.parametrize("name", ["", "2net", "my net", "a-b", "net.h", "größe", "a/b", None])
def test_a_name_that_is_no_c_identifier(name: Any) -> None:
    text = compiling(mlp(), name=name)
    assert f"the program's name {name!r} is not a C identifier" in text
    assert "letters, digits and underscores" in text


@pytest.mark.parametrize("name", ["whet", "kernels", "Makefile", "lib", "clean", "int32"])
def test_a_name_that_is_taken(name: str) -> None:
    assert f"the program cannot be called {name!r}" in compiling(mlp(), name=name)


# The loss and the optimizer ------------------------------------------------------------------


def test_a_loss_whose_targets_are_unknown() -> None:
    loss = nn.TripletMarginLoss()
    text = compiling(mlp(), loss=loss)
    assert "the targets that this loss takes are unknown" in text
    assert "the loss is TripletMarginLoss" in text
    assert "compile(..., labels=torch.zeros(...))" in text


@pytest.mark.parametrize(
    ("loss", "what", "hint"),
    [
        (nn.MSELoss, "the loss is the class MSELoss, not a loss", "loss=MSELoss()"),
        (
            "hinge",
            "'hinge' is not a valid loss",
            "cross-entropy, mse, l1, smooth-l1, bce-with-logits",
        ),
        ("", "'' is not a valid loss", "cross-entropy, mse"),
        (5, "the loss is a int, which cannot be called", "loss=torch.nn.CrossEntropyLoss()"),
    ],
)
def test_a_loss_that_is_none(loss: Any, what: str, hint: str) -> None:
    text = compiling(mlp(), loss=loss)
    assert what in text and f"try   {hint}" in text


@pytest.mark.parametrize("name", list(LossName))
def test_a_loss_by_name_is_that_of_pytorch(name: str) -> None:
    kinds = {"cross-entropy": nn.CrossEntropyLoss(), "mse": nn.MSELoss(), "l1": nn.L1Loss(),
             "smooth-l1": nn.SmoothL1Loss(), "bce-with-logits": nn.BCEWithLogitsLoss(),
             "nll": nn.NLLLoss(), "kl": nn.KLDivLoss(reduction="batchmean")}  # fmt: skip
    by_name, by_hand = (whet.compile(mlp(), (X,), loss=loss) for loss in (name, kinds[name]))
    assert by_name.identity == by_hand.identity
    assert repr(by_name.source.loss) == repr(kinds[name])


def test_names_are_known_wherever_a_model_is_taken() -> None:
    mse, other = (whet.compare(mlp(), (X,), ["full"], loss=loss) for loss in ("mse", None))
    assert [row.memory["io"] for row in mse] > [row.memory["io"] for row in other]
    for call in (
        lambda: whet.compare(mlp(), (X,), ["full"], loss="hinge"),
        lambda: whet.search(mlp(), (X,), (X, Y), ram="1M", loss="hinge"),
        lambda: whet.contributions(mlp(), (X,), (X, Y), loss="hinge"),
    ):
        assert "'hinge' is not a valid loss" in message(FrontendError, call)


def test_a_function_is_a_loss() -> None:
    losses = (nn.functional.cross_entropy, None)
    ours, theirs = (whet.compile(mlp(), (X,), loss=loss, labels=Y) for loss in losses)
    assert ours.load().step(X, Y) == theirs.load().step(X, Y)


@pytest.mark.parametrize(
    ("optimizer", "what", "hint"),
    [
        (torch.optim.SGD, "is the class SGD, not an optimizer", "torch.optim.SGD(model"),
        (torch.optim.AdamW, "is the class AdamW, not an optimizer", "torch.optim.AdamW(model"),
        (dict, "is the class dict, not an optimizer", "torch.optim.SGD(model"),
        (SimpleNamespace(param_groups=[]), "is a SimpleNamespace, not a torch.optim.Optimizer",
         "torch.optim.SGD(model"),
        ("sgdm", "'sgdm' is not a valid optimizer", ", ".join(NAMES)),
    ],
)  # fmt: skip
def test_an_optimizer_that_is_none(optimizer: Any, what: str, hint: str) -> None:
    text = compiling(mlp(), optimizer=optimizer)
    assert what in text and hint in text.splitlines()[-1]


def test_an_optimizer_by_name_has_all_parameters() -> None:
    model = mlp()
    by_name = whet.compile(model, (X,), optimizer="adam")
    by_hand = whet.compile(model, (X,), optimizer=torch.optim.Adam(model.parameters(), lr=0.01))
    assert by_name.files["model.c"] == by_hand.files["model.c"]
    assert by_name.lr == 0.01


def test_a_loss_without_reduction() -> None:
    text = compiling(mlp(), loss=nn.MSELoss(reduction="none"))
    assert "the loss has shape (4, 3); training needs a single number" in text
    assert "reduction='mean' or 'sum'" in text
    text = compiling(mlp(), loss=nn.CrossEntropyLoss(reduction="none"))
    assert "the loss has shape (4,); training needs a single number" in text


def test_a_target_that_does_not_fit_the_loss() -> None:
    text = compiling(mlp(), labels=torch.zeros(9, dtype=torch.int64))
    assert "torch.export could not trace the model" in text and "9" in text


def test_nothing_to_train_because_all_is_frozen() -> None:
    model = mlp().requires_grad_(False)
    for options in ({}, {"optimizer": torch.optim.SGD(model.parameters())}):
        text = compiling(model, **options)
        assert "there is nothing to train" in text
        assert "no parameter of the model that requires a gradient is in the optimizer" in text
        assert "build the optimizer from model.parameters(), or set requires_grad" in text


def test_an_optimizer_for_another_model() -> None:
    text = compiling(mlp(), optimizer=torch.optim.SGD(mlp().parameters()))
    assert "the optimizer has a parameter of shape (8, 5) that does not belong to the model" in text
    assert "model.parameters()" in text


def test_nothing_to_train_because_there_are_no_parameters() -> None:
    assert "there is nothing to train" in compiling(nn.Sequential(nn.Flatten(), nn.Tanh()))


def test_nothing_to_train_because_nothing_reaches_the_loss() -> None:
    text = compiling(Function(lambda x: x.detach()))
    assert "there is nothing to train" in text
    assert "the loss depends on no parameter that is trained" in text


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: torch.optim.Rprop(p), "the optimizer Rprop is not supported"),
        (lambda p: torch.optim.LBFGS(p), "the optimizer LBFGS is not supported"),
        (lambda p: torch.optim.SGD(p, maximize=True), "SGD: maximising is not supported"),
        (lambda p: torch.optim.Adam(p, maximize=True), "Adam: maximising is not supported"),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), "AdamW: AMSGrad is not supported"),
        (
            lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.1),
            "SGD: momentum with dampening is not supported",
        ),
    ],
    ids=["Rprop", "LBFGS", "maximize", "Adam maximize", "AMSGrad", "dampening"],
)
def test_optimizers_that_are_not_supported(make: Callable[[Any], Any], word: str) -> None:
    model = mlp()
    text = compiling(model, optimizer=make(model.parameters()))
    assert word in text
    if "optimizer" in word:
        assert "try   SGD, Adam" in text and text.rstrip().endswith("of torch.optim")


def test_an_optimizer_whose_parameters_have_taken_different_numbers_of_steps() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.fc1.parameters())
    nn.functional.cross_entropy(model(X), Y).backward()
    optimizer.step()
    optimizer.add_param_group({"params": list(model.fc2.parameters())})
    text = compiling(model, optimizer=optimizer)
    assert "parameters have taken different numbers of steps" in text
    assert "some 0, others 1" in text or "some 1, others 0" in text


# Inside --------------------------------------------------------------------------------------


def test_the_interpreter_names_what_is_missing_or_misshapen() -> None:
    graph = parse_graph("graph f {\n  %x : f32[2] input\n  %y = relu %x : f32[2]\n  return %y\n}")
    assert "no value for %x : f32[2]" in message(DataError, lambda: interpret(graph, {}))
    wrong = message(DataError, lambda: interpret(graph, {"x": np.zeros(3)}))
    assert "%x has shape (3,), the graph says f32[2]" in wrong


def test_operators_without_gradient_or_kernel_say_so() -> None:
    from whet.ir import Builder, Role, f32
    from whet.ops import by_name

    b = Builder("f")
    b.emit(by_name("relu_dx"), *(b.leaf(n, f32(2), Role.INPUT) for n in "xy"))
    node = b.nodes[0]
    text = message(InternalError, lambda: node.op.vjp(b, node, (None,), (True, True)))
    assert "relu_dx has no gradient" in text


def test_a_shape_error_carries_its_operands() -> None:
    from whet.ir import Builder, Role, f32
    from whet.ops import by_name

    b = Builder("f")
    x, y = b.leaf("x", f32(2, 3), Role.INPUT), b.leaf("y", f32(4), Role.INPUT)
    text = message(ShapeError, lambda: b.emit(by_name("add"), x, y))
    assert "add: shapes (2, 3) and (4,) do not broadcast" in text
    assert "why   %x : f32[2,3], %y : f32[4]" in text


# Without PyTorch -----------------------------------------------------------------------------

BLOCKED = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import whet
{}
"""


def without_torch(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(code)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_torch_whet_can_be_imported_and_says_what_compiling_needs() -> None:
    printed = without_torch(
        "print(sorted(whet.__all__), whet.Program.__name__, whet.Trainer.__name__)\n"
        "try:\n    whet.compile\nexcept whet.errors.FrontendError as error:\n    print(error)"
    )
    assert "'contributions', 'errors', 'load', 'lora', 'plan', 'search'] Program Trainer" in printed
    assert "compiling needs PyTorch, which is not installed  [W101]" in printed
    assert "pip install torch" in printed


def test_without_torch_graphs_can_be_planned_and_run() -> None:
    printed = without_torch(
        "import numpy as np\n"
        "import whet.ops\n"
        "from whet.ir.text import parse_graph\n"
        "from whet.ir.interp import interpret\n"
        "from whet.memory.plan import plan\n"
        "graph = parse_graph('graph f {\\n %x : f32[2] input\\n %y = relu %x : f32[2]\\n"
        " %z = tanh %y : f32[2]\\n %s = sum %z {axes=(0,)} : f32[1]\\n return %s\\n}')\n"
        "print(plan(graph).arena, interpret(graph, {'x': np.array([-1.0, 0.0])})[0][0].tolist())\n"
        "assert sys.modules['torch'] is None"
    )
    assert printed.split("\n")[0] == "16 [0.0]"


def test_importing_whet_does_not_import_torch() -> None:
    code = "import whet, sys; print('torch' in sys.modules, 'whet.frontend.torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.stdout.split() == ["False", "False"]


def test_an_attribute_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="module 'whet' has no attribute 'compiel'"):
        whet.compiel  # noqa: B018


def test_an_error_arrives_whole_from_another_process() -> None:
    error = DataError("what", at="where", why=["why", "and why"], try_="this")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is DataError and str(again) == str(error) and again.what == "what"
