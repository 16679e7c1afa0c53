"""The watch of `make demo`, on ten wrists at once: alone, together, and together then alone.

A factory model is pretrained on two people in PyTorch and compiled to int8 with a carry of 8 bits.
All ten people then train it, each on the first halves of their recordings. Everybody is judged by
the second halves of their own. With five pairs, everybody is once among the two; only the other
eight count for a pair, as people whom the factory never saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import whet
from whet.demo import watch
from whet.demo.recordings import WINDOW, Labelled, load, windows
from whet.federated import Client, ClientData, Local, average

ROUNDS, EPOCHS, PERSONAL = 40, 10, 2  # together; alone or in one place; alone after together
RATE = watch.RATE  # falls to 0 over each of them
PAIRS = 5
WAYS = ("factory", "alone", "together", "together, then alone", "in one place")
Arrays = Mapping[str, np.ndarray]


def run(pair: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """Accuracy of each person whom the factory never saw, by way of training."""
    torch.set_num_threads(1)
    recordings, _ = load()
    people = sorted({r.person for r in recordings})
    known = [people[pair], people[pair + PAIRS]]
    signals = np.concatenate([r.signal for r in recordings if r.person in known])
    mean, deviation = (torch.from_numpy(v).float() for v in (signals.mean(0), signals.std(0)))

    def cut(who: list[int], stride: int, start: float, stop: float) -> Labelled:
        x, y = windows([r for r in recordings if r.person in who], stride, start, stop)
        return (x - mean) / deviation, y

    factory = cut(known, WINDOW // 4, 0.0, 1.0)
    program = watch.compiled(watch.pretrained(factory, pair), factory)
    data = {p: wearer(cut([p], WINDOW // 4, 0, 0.5), cut([p], WINDOW // 2, 0.5, 1)) for p in people}
    found = trained(program, data, [p for p in people if p not in known], pair, rounds)
    return {"study": "watch", "pair": pair, "rounds": rounds, "factory": known, **found}


def wearer(learn: Labelled, judge: Labelled) -> ClientData:
    return ClientData(*(part.numpy() for part in (*learn, *judge)))


def trained(
    program: whet.Program, data: Mapping[int, ClientData], judged: list[int], seed: int, rounds: int
) -> dict[str, Any]:
    client, people = Client(program), list(data)
    start = client.give()

    def epochs(arrays: Arrays, own: ClientData, number: int, count: int) -> Arrays:
        for i in range(count):
            local = Local(lr=RATE * (1 - i / count), seed=seed)
            arrays, _ = client.train(arrays, own, local, i, number)
        return arrays

    together = start
    curve = []
    for turn in range(rounds):
        local = Local(lr=RATE * (1 - turn / rounds), seed=seed)
        replies = [client.train(together, data[p], local, turn, p)[0] for p in people]
        together = average(replies, [len(data[p].y) for p in people])
        curve.append(np.mean([score(client, together, data[p]) for p in judged]))
    everything = epochs(start, pooled(list(data.values())), 0, EPOCHS)
    models = {
        "factory": lambda p: start,
        "alone": lambda p: epochs(start, data[p], p, EPOCHS),
        "together": lambda p: together,
        "together, then alone": lambda p: epochs(together, data[p], p, PERSONAL),
        "in one place": lambda p: everything,
    }
    return {
        "accuracy": {
            way: {p: round(score(client, models[way](p), data[p]), 5) for p in judged}
            for way in WAYS
        },
        "curve": [round(float(c), 5) for c in curve],
        "numbers": sum(a.size for a in start.values()),
    }


def pooled(parts: list[ClientData]) -> ClientData:
    """What a server would have if people gave it their recordings."""
    names = ("x", "y", "x_test", "y_test")
    return ClientData(*(np.concatenate([getattr(part, n) for part in parts]) for n in names))


def score(client: Client, arrays: Arrays, data: ClientData) -> float:
    return client.judge(arrays, data.x_test, data.y_test).accuracy
