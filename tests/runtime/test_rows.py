"""Any number of samples can be predicted, whatever the batch that a program trains on."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from tiny import convnet, mlp
from token_models import Tokens
from whet.errors import DataError
from whet.ir.printing import print_graph
from whet.ir.text import parse_graph
from whet.models import lenet, mobilenet_v2
from whet.passes.one_sample import for_one_sample


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.a(x) * self.b(y)


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.first = batch_first
        self.layer = nn.GRU(4, 5, batch_first=batch_first)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1] if self.first else self.layer(x)[0][-1])


class MeanOfBatch(nn.Module):
    """Samples that depend on each other, as they do not in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


class Applied(nn.Module):
    """A layer, and a function of its result."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


def over_all(y: Tensor) -> Tensor:
    return torch.softmax(y.flatten(), 0).reshape(y.shape)


DEPENDENT: dict[str, tuple[nn.Module, Tensor]] = {
    "mean of the batch": (MeanOfBatch(), torch.randn(4, 4)),
    "softmax over the batch": (Applied(lambda y: torch.softmax(y, 0)), torch.randn(4, 4)),
    "softmax over all": (Applied(over_all), torch.randn(4, 4)),
    "cumulative sum": (Applied(lambda y: torch.cumsum(y, 0)), torch.randn(4, 4)),
    "a number of the batch": (Applied(lambda y: y / y.shape[0]), torch.randn(4, 4)),
    "a batch of channels": (
        Applied(lambda y: nn.functional.avg_pool1d(y.T, 3, 1, 1).T), torch.randn(4, 4),
    ),
    "statistics of the batch": (
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        torch.randn(4, 4),
    ),
    "batch second": (Recurrent(batch_first=False), torch.randn(6, 4, 4)),
    "no batch": (nn.Linear(4, 3), torch.randn(4)),
}  # fmt: skip

Shapes = tuple[tuple[int, ...], ...]
MODELS: dict[str, tuple[Callable[[], nn.Module], Shapes]] = {
    "linear": (mlp, ((5,),)),
    "convolutions": (lambda: convnet().train(), ((3, 6, 4),)),
    "attention": (Tokens, ((4, 8),)),
    "two inputs": (TwoInputs, ((4,), (6,))),
    "recurrent": (lambda: Recurrent(batch_first=True), ((6, 4),)),
    "signals": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Flatten(),
                                      nn.Linear(4 * 6, 3)), ((3, 8),)),
    "MobileNetV2": (lambda: mobilenet_v2(3, 0.35).eval(), ((3, 32, 32),)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["host", "portable"])
def test_any_number_of_samples(name: str, target: str) -> None:
    torch.manual_seed(0)
    make, shapes = MODELS[name]
    model = make()
    program = whet.compile(model, tuple(torch.randn(4, *s) for s in shapes), target=target)
    assert program.batch == 4
    plans = program.plans
    assert plans["predict_one"].arena <= plans["predict"].arena <= program.arena
    trainer = program.load()
    x = tuple(torch.randn(11, *s) for s in shapes)
    with torch.no_grad():
        expected = model.eval()(*x).numpy()
    for rows in (1, 2, 3, 4, 5, 8, 11):
        ours = trainer.predict(tuple(part[:rows] for part in x))
        assert ours.shape == (rows, *expected.shape[1:])
        assert np.allclose(ours, expected[:rows], atol=1e-4), rows


def test_training_still_wants_its_batch() -> None:
    trainer = whet.compile(mlp(), (torch.randn(4, 5),)).load()
    for wrong in (torch.randn(0, 5), torch.randn(2, 6), torch.randn(5)):
        with pytest.raises(DataError, match="has shape"):
            trainer.predict(wrong)
    with pytest.raises(DataError, match=r"shape \(7, 6\), the program was compiled for \(4, 5\)"):
        trainer.predict(torch.randn(7, 6))
    with pytest.raises(DataError, match=r"x\[None\], if this is one sample"):
        trainer.predict(torch.randn(5))
    with pytest.raises(DataError, match="compiled for"):
        trainer.step(torch.randn(2, 5), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("batch", [1, 4])
def test_the_header_has_the_size_of_a_batch(batch: int) -> None:
    header = whet.compile(mlp(), (torch.randn(batch, 5),)).files["model.h"].decode()
    assert f"#define NET_BATCH {batch} " in header
    assert ("NET_HAS_PREDICT_ONE" in header) == (batch > 1)


def test_nothing_lives_for_more_calls_than_there_are() -> None:
    report = whet.compile(convnet().train(), (torch.randn(4, 3, 6, 4),)).report()
    (calls,) = re.findall(r"peak of train_step, call \d+ of (\d+)", report)
    alive = [int(n) for n in re.findall(r"alive for (\d+) call", report)]
    assert alive and max(alive) <= int(calls)


def test_an_integer_program_predicts_the_same() -> None:
    torch.manual_seed(0)
    images = [torch.randn(8, 1, 28, 28)]
    words = {"dtype": "int8", "calibrate": images}
    program = whet.compile(lenet().eval(), (images[0][:4],), **words)
    trainer = program.load()
    batch = trainer.predict(images[0])  # the head is in floats, whose sums depend on the kernel
    assert np.allclose(trainer.predict(images[0][:7]), batch[:7], rtol=0, atol=1e-6)


def test_a_board_does_so_too() -> None:
    torch.manual_seed(0)
    images, model = [torch.randn(4, 1, 28, 28)], lenet().eval()
    program = whet.compile(
        model, (images[0][:2],), dtype="int8", calibrate=images, target="cortex-m7",
        update="last",
    )  # fmt: skip
    board = program.load()
    ours = board.predict(images[0][:3])
    board.close()
    single = whet.compile(model, (images[0][:1],), update="last")
    assert "predict_one" not in single.entries, "a batch of one has no other"
    host = whet.compile(
        model, (images[0],), dtype="int8", calibrate=images, update="last", portable=True
    )
    assert np.allclose(ours, host.load().predict(images[0])[:3], rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", DEPENDENT)
def test_what_is_not_made_of_samples_takes_the_batch_alone(case: str) -> None:
    model, x = DEPENDENT[case]
    program = whet.compile(
        model.eval(), (x,), loss=nn.MSELoss(), labels=torch.zeros(model(x).shape)
    )
    assert "predict_one" not in program.entries and not program.independent
    with pytest.raises(DataError, match="compiled for"):
        program.load().predict(torch.cat([x, x])[: len(x) + 1])


def test_a_program_for_one_sample_predicts_many() -> None:
    model, x = mlp(), torch.randn(5, 5)
    program = whet.compile(model, (x[:1],))
    assert "predict_one" not in program.entries
    with torch.no_grad():
        assert np.allclose(program.load().predict(x), model(x).numpy(), atol=1e-5)


def test_it_can_be_left_out() -> None:
    program = whet.compile(mlp(), (torch.randn(4, 5),), without=["one_sample"])
    assert "predict_one" not in program.entries


# The pass ---------------------------------------------------------------------------------------

GRAPH = """
graph predict {{
  %x : f32[{n},3,2] input
  %token : f32[1,2] const = [1.0, 2.0]
  %w : f32[2,2] const = [1.0, 2.0, 3.0, 4.0]
  %moved = transpose %x {{perm=(1, 0, 2)}} : f32[3,{n},2]
  %flat = reshape %moved {{shape=({n3}, 2)}} : f32[{n3},2]
  %back = reshape %flat {{shape=(3, {n}, 2)}} : f32[3,{n},2]
  %y = transpose %back {{perm=(1, 0, 2)}} : f32[{n},3,2]
  %tokens = expand %token {{shape=({n}, 1, 2)}} : f32[{n},1,2]
  %z = concat %y, %tokens {{axis=1}} : f32[{n},4,2]
  %rows = reshape %z {{shape=({n4}, 2)}} : f32[{n4},2]
  %a = linear %rows, %w : f32[{n4},2]
  %out = reshape %a {{shape=({n}, 4, 2)}} : f32[{n},4,2]
  return %out
}}"""


def graph_of(n: int) -> str:
    return GRAPH.format(n=n, n3=3 * n, n4=4 * n)


def test_the_batch_goes_from_every_shape() -> None:
    made = for_one_sample(parse_graph(graph_of(4)))
    assert made is not None
    assert print_graph(made) == graph_of(1).strip()


@pytest.mark.parametrize(
    "line",
    [
        "%y = sum %x {axes=(0,)} : f32[1,4]",
        "%y = slice %x {axis=0, stop=2} : f32[2,4]",
        "%y = concat %x, %x {axis=0} : f32[8,4]\n  %z = slice %y {axis=0, stop=4} : f32[4,4]",
        "%y = transpose %x {perm=(1, 0)} : f32[4,4]",
    ],
)
def test_what_does_not_follow_the_batch_is_refused(line: str) -> None:
    last = line.split()[0] if "\n" not in line else "%z"
    text = f"graph predict {{\n  %x : f32[4,4] input\n  {line}\n  return {last}\n}}"
    assert for_one_sample(parse_graph(text)) is None


class Echo(nn.Module):
    """Predicts its input, or a weight."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.last, self.what = nn.Linear(5, 3), what

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.last(x)
        return x if self.what == "input" else self.last.bias


@pytest.mark.parametrize("what", ["input", "weight"])
def test_a_prediction_may_be_an_input_or_a_weight(what: str) -> None:
    x, y, model = torch.randn(4, 5), torch.tensor([0, 1, 2, 0]), Echo(what).train()
    trainer = whet.compile(model, (x,), labels=y).load()
    trainer.step(x, y)
    model.load_state_dict(trainer.state_dict())
    torch.testing.assert_close(torch.from_numpy(trainer.predict(x)), model.eval()(x).detach())
