"""The demo of `make demo`: a watch adapts to its wearer, in int8, in the memory of a small chip.

A small network learns the exercises of five people in PyTorch. It is then compiled, put on an
emulated microcontroller and continues to learn there from a sixth person, whom it has never seen,
one window of 2.56 seconds at a time. It trains on the wearer's first repetitions and is evaluated
on later ones.

WEARER is a person whose accuracy before learning is within a point of the mean over all ten, not
one who gains most or least. `python -m benchmarks.watch` tries each: over ten people and three
seeds 83.1 % became 97.6 %, and 97.8 % in fp32 (benchmarks/watch).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import whet

from ..runtime import Trainer
from ..targets.bare_metal.profile import PHASES
from ..targets.cortex_m import Board
from .recordings import Labelled, Split, load, split
from .screen import Steps, say

WEARER = 9
SEED = 0
EPOCHS, BATCH, FIRST_RATE = 8, 64, 4e-3  # pretraining
STEPS, RATE = 400, 0.006  # on the device; the rate decays linearly to zero
ROUNDING = "carry8"
RAM = 256 * 1024
OUT = Path("out/demo")


def block(i: int, o: int, kernel: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv1d(i, o, kernel, stride, kernel // 2, bias=False)
    return [conv, nn.BatchNorm1d(o), nn.ReLU()]


class Network(nn.Module):
    """Four convolutions over time, an average and a classifier: 0.4 million multiplications."""

    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *block(6, 16, 7, 2), *block(16, 32, 5, 2), *block(32, 48, 5, 2), *block(48, 64, 3, 1)
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:  # [n, time, 6], the sensor's order
        y: Tensor = self.features(x.transpose(1, 2))
        return self.head(y.mean(2))

    def folded(self) -> Network:
        """A copy with a bias in place of each batch norm, as in the integer program."""
        other = copy.deepcopy(self).eval()
        for i in range(0, len(other.features), 3):
            conv, norm = (other.features.get_submodule(str(k)) for k in (i, i + 1))
            assert isinstance(conv, nn.Conv1d) and isinstance(norm, nn.BatchNorm1d)
            other.features[i], other.features[i + 1] = fuse_conv_bn_eval(conv, norm), nn.Identity()
        return other


def pretrained(known: Labelled, seed: int = SEED) -> Network:
    """A network trained on these windows in PyTorch: some ten seconds on one core."""
    torch.manual_seed(seed)
    model, (x, y) = Network(), known
    steps = EPOCHS * (len(y) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=FIRST_RATE)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, FIRST_RATE, total_steps=steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    with Steps("pretraining", steps) as progress:
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(y)).split(BATCH)[: len(y) // BATCH]:
                loss = loss_of(model(x[batch]), y[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rates.step()
                progress.done(loss.item())
    return model.eval()


def compiled(
    model: Network, known: Labelled, rounding: str = ROUNDING, target: str = "host"
) -> whet.Program:
    """The network in int8, with a step that trains all of it; calibrated on the others' windows."""
    return whet.compile(
        model,
        (known[0][:1],),
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        dtype=whet.Int8(rounding=rounding),
        calibrate=[known[0][::40]],
        update="full",
        target=target,
        ram=RAM,
    )


def lessons(learn: Labelled, seed: int = SEED) -> Iterator[tuple[Tensor, Tensor, float]]:
    """A window, its exercise and a rate for each step, in random order, each once per epoch."""
    x, y = learn
    generator = torch.Generator().manual_seed(seed)
    rounds = -(-STEPS // len(y))
    order = torch.cat([torch.randperm(len(y), generator=generator) for _ in range(rounds)])
    for step, i in enumerate(order[:STEPS].tolist()):
        yield x[i : i + 1], y[i : i + 1], RATE * (1 - step / STEPS)


def learn_on(trainer: Trainer, learn: Labelled, seed: int = SEED) -> None:
    with Steps("learning", STEPS) as progress:
        for x, y, rate in lessons(learn, seed):
            progress.done(trainer.step(x, y, lr=rate))


def learn_in_float(model: Network, learn: Labelled, seed: int = SEED) -> Network:
    """The same training steps in fp32 and PyTorch, for comparison."""
    model = model.folded()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x, y, rate in lessons(learn, seed):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def accuracy_on(trainer: Trainer, judge: Labelled) -> float:
    """The fraction of correctly classified windows, one window at a time."""
    right = 0
    with Steps("judging", len(judge[1]), stays=False) as progress:
        for x, y in zip(judge[0].split(1), judge[1].tolist(), strict=True):
            right += int(np.argmax(trainer.predict(x))) == y
            progress.done()
    return right / len(judge[1])


def accuracy(model: nn.Module, judge: Labelled) -> float:
    with torch.no_grad():
        return float((model(judge[0]).argmax(1) == judge[1]).float().mean())


def built(model: Network, data: Split) -> Board:
    """Compile the network for a microcontroller, write its C to OUT, start the chip."""
    start = time.perf_counter()
    program = compiled(model, data.others, target="cortex-m7")
    x, y = data.learn
    program.write(OUT, samples=(x[::17], y[::17]))  # some samples in flash, for `make run`
    board = Board(program)
    say(f"  compiled for a Cortex-M7 and built in {time.perf_counter() - start:.1f} s\n")
    return board


def memory_map(board: Board) -> None:
    """The contents of the chip's RAM, to scale, and how full its flash is."""
    m, program = board.program.memory, board.program
    parts = {
        "stack": m["stack"],
        "trained weights and biases": m["trained"],
        "fractions of their updates, 8 bits each": m["state"],
        "activations, gradients and the input": m["arena"],
    }
    used = board.firmware.ram
    parts["label, output and alignment"] = used - sum(parts.values())
    say(f"  RAM    {used:>9,} of {RAM:,} bytes in total")
    for name, size in parts.items():
        say(f"         {size:>9,} {'█' * max(1, round(40 * size / used)):<40} {name}")
    flash = program.target.flash
    say(f"  flash  {board.firmware.flash:>9,} of {flash:,} bytes, code and initial weights")


def show(model: Network, board: Board, data: Split) -> None:
    """Evaluate, train, evaluate again, and train the same in PyTorch."""
    say(f"  accuracy before  {accuracy_on(board, data.judge):6.1%}   a person it has never seen")
    learn_on(board, data.learn)
    say(f"  accuracy after   {accuracy_on(board, data.judge):6.1%}   on the chip, in int8")
    in_float = accuracy(learn_in_float(model, data.learn), data.judge)
    say(f"  fp32 in PyTorch  {in_float:6.1%}   after the same steps\n")


def show_costs(board: Board) -> None:
    """Measurements of the run, after the chip is stopped."""
    seen = board.close()
    assert seen is not None
    costs = board.profile()
    memory_map(board)
    stack = board.program.memory["stack"]
    say(f"  stack  {seen.stack:>9,} of its {stack:,} bytes were used at most\n")
    accesses = seen.loads + seen.stores
    say(f"  Of {accesses:,} loads and stores, {seen.outside} were outside this memory.")
    parts = ", ".join(f"{costs.of(phase) / 1e6:.2f} {phase}" for phase in PHASES)
    say(f"  A training step takes {costs.total / 1e6:.2f} million instructions: {parts}.")


def main(wearer: int = WEARER) -> None:
    """Pretrain, compile, evaluate, train, evaluate again, compare with PyTorch."""
    torch.set_num_threads(1)  # the same summation order for any number of cores
    recordings, exercises = load()
    people = {r.person for r in recordings}
    if wearer not in people:
        raise SystemExit(f"There is no person {wearer}: choose {min(people)} to {max(people)}.")
    say("[bold]whet[/bold]: a watch adapts to its wearer, in int8, in 256 KB\n")
    data = split(recordings, wearer)
    others, learn, judge = (len(part[1]) for part in (data.others, data.learn, data.judge))
    say(f"  {len(people)} people did {len(exercises)} exercises with a watch on the wrist. A small")
    say(f"  network learns from five of them: {others:,} windows of 2.56 seconds.")
    model = pretrained(data.others)
    board = built(model, data)
    say(f"  Person {wearer} puts the watch on and does every exercise with each arm.")
    say(f"  Training: the first halves of the recordings, {STEPS} steps of one of {learn} windows.")
    say(f"  Test: the second halves, {judge} windows.")
    show(model, board, data)
    show_costs(board)
    say(f"\nThe program is in [bold]{OUT}[/bold]. What to look at next:")
    say(f"  {OUT}/model.c      the training step, one call per line")
    say(f"  {OUT}/report.txt   where every byte goes")
    say(f"  make -C {OUT} run  the firmware alone, on windows in its flash")
    say("  docs/microcontrollers.md   how to add it to your project")
