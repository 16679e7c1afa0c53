"""A vibration sensor learns what is normal for its machine, then a kind of event it did not know.

python sensor.py [--mcu] [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import whet

ROOM, BINS, BATCH, RATE = 4, 32, 4, 0.2  # the head has room for four names
RAM = "64K"
Windows = tuple[np.ndarray, np.ndarray]


def windows(
    each: int, kinds: list[int], machines: int, speeds: tuple[float, float], seed: int
) -> Windows:
    """Spectra [n, 3 * BINS] of windows of a sensor with three axes, and the kind of each.

    Machines differ in speed, in turns per sample, and in how the sensor is mounted. Kinds: 0 idle,
    1 running, 2 running with a loose part, which knocks.
    """
    random = np.random.default_rng(seed)
    speed, mount = random.uniform(*speeds, machines), random.uniform(0.3, 1, (machines, 3, 1))
    y = random.permutation(np.repeat(kinds, each))
    time, spectra = np.arange(2 * BINS), []
    for kind in y:
        machine = random.integers(machines)
        turn = 2 * np.pi * speed[machine] * random.uniform(0.98, 1.02) * (0.3 if kind == 0 else 1)
        phase = random.uniform(0, 2 * np.pi)
        wave = 0.2 * np.sin(turn * time + phase)
        if kind > 0:
            wave = 5 * wave + 0.5 * np.sin(2 * turn * time + phase)
        if kind == 2:
            knock = (np.sin(turn * time + phase) > 0.9) * np.sin(2.2 * time)
            wave = wave + 1.5 * knock
        signal = mount[machine] * wave + 0.05 * random.normal(size=(3, len(time)))
        spectra.append(np.log1p(np.abs(np.fft.rfft(signal * np.hanning(len(time)))[:, 1:])).ravel())
    return np.array(spectra, np.float32), y


class Watcher(nn.Module):
    """An autoencoder whose error says how unusual a window is, and a name for what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        inputs = 3 * BINS
        self.encode = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 12), nn.ReLU())
        self.decode = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, inputs))
        self.name = nn.Linear(12, ROOM)  # rows for kinds that have no name yet

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        code = self.encode(x)
        error = (self.decode(code) - x).square().mean(1, keepdim=True)
        return torch.cat([error, self.name(code)], 1)


def loss(output: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
    return output[:, 0].mean() + 0.3 * nn.functional.cross_entropy(output[:, 1:], kind)


def pretrained(x: np.ndarray, y: np.ndarray) -> Watcher:
    torch.manual_seed(0)
    model, inputs, kinds = Watcher(), torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(12):
        for rows in torch.randperm(len(y)).split(40):
            optimizer.zero_grad()
            loss(model(inputs[rows]), kinds[rows]).backward()
            optimizer.step()
    return model.eval()


class Device:
    """What the firmware around the program does: a limit for alarms, and a list of names."""

    def __init__(self, trainer: whet.Trainer, usual: np.ndarray) -> None:
        self.trainer, self.names = trainer, ["idle", "running"]
        self.set_limit(usual)

    def set_limit(self, usual: np.ndarray) -> None:
        self.limit = 1.3 * float(np.quantile(self.trainer.predict(usual)[:, 0], 0.99))

    def learn(self, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
        random = np.random.default_rng(0)
        for _ in range(epochs):
            for rows in random.permutation(len(y))[: len(y) // BATCH * BATCH].reshape(-1, BATCH):
                self.trainer.step(x[rows], y[rows])
        self.set_limit(x)

    def report(self, when: str, x: np.ndarray, y: np.ndarray) -> tuple[float, ...]:
        """False alarms, alarms of a loose part, and names that are right, of those there are."""
        output = self.trainer.predict(x)
        alarm = output[:, 0] > self.limit
        right = output[:, 1 : 1 + len(self.names)].argmax(1) == y
        found = tuple(float(part.mean()) for part in (alarm[y < 2], alarm[y == 2], right))
        print(f"{when:<30}" + "".join(f"{share:14.1%}" for share in found))
        return found


def main(out: Path, mcu: bool = False) -> dict[str, tuple[float, ...]]:
    x, y = windows(400, [0, 1], machines=12, speeds=(0.06, 0.1), seed=1)
    model = pretrained(x, y)
    program = whet.compile(
        model, (torch.from_numpy(x[:BATCH]),), loss=loss, labels=torch.from_numpy(y[:BATCH]),
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE), ram=RAM,
        target="cortex-m7" if mcu else "host",
    )  # fmt: skip
    print("the C program is in", program.write(out))
    device = Device(program.load(), usual=x[:200])  # on this machine, or on an emulated chip

    every = windows(60, [0, 1, 2], machines=1, speeds=(0.13, 0.14), seed=4)  # this machine
    (now_x, now_y), later = ([a[i::2] for a in every] for i in (0, 1))
    usual = now_y < 2
    print(f"{'':<30}  false alarms    loose part   right names")
    found = {"before": device.report("from the factory", *later)}
    device.learn(now_x[usual], now_y[usual], epochs=20)
    found["adapted"] = device.report("after learning what is normal", *later)
    device.names.append("loose part")  # somebody says what these windows are; a free row takes it
    device.learn(now_x, now_y, epochs=30)  # with the usual ones, so that they are not forgotten
    found["named"] = device.report("after the event got a name", *later)
    print(f"RAM {program.memory['ram']:,} bytes of {RAM}, flash {program.memory['flash']:,}")
    device.trainer.close()
    for line in device.trainer.summary():
        print(line)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mcu", action="store_true", help="train on an emulated Cortex-M7")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the C program")
    main(**vars(parser.parse_args()))
