"""Synchronous training on several workers that exchange compressed gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ...runtime.update import Update, by_name, coordinates, decode, encode, flatten
from .dgc import Array, Compression, Compressor

if TYPE_CHECKING:
    from ... import Program, Trainer

Shard = tuple[Array, Array]  # a worker's samples and labels
Carry = Callable[[bytes], bytes]  # a connection: what is sent in, what arrives out


class Worker:
    """A program in training, its samples, and its part of the compression."""

    def __init__(
        self, program: Program, shard: Shard, settings: Compression, workers: int, seed: int
    ) -> None:
        self.trainer = program.load()
        self.compressor = Compressor(coordinates(program), program.fingerprint, settings, workers)
        self.batches = batches(shard, program.batch, seed)
        self.loss = float("nan")

    def upload(self, round: int) -> bytes:
        """The compressed gradient of the next batch."""
        self.loss = self.trainer.gradients(*next(self.batches))
        gradient = flatten(self.trainer.program, self.trainer.collected())
        self.trainer.apply(lr=0.0)  # clears what was collected and changes no parameter
        return encode(self.compressor.compress(gradient, round))

    def download(self, blob: bytes, round: int, lr: float) -> None:
        """Go down the mean of all workers' gradients."""
        program = self.trainer.program
        update = decode(blob, program.fingerprint, coordinates(program), round, "the server's mean")
        move(self.trainer, by_name(program, update), -lr)


@dataclass
class Server:
    """Averages what the workers send. It needs no model."""

    fingerprint: int
    n: int
    coding: str = "f32"

    def merge(self, blobs: Sequence[bytes], round: int) -> bytes:
        """The mean, sparse if all are; UpdateError for one that does not belong to the round."""
        updates = [
            decode(blob, self.fingerprint, self.n, round, f"worker {worker}")
            for worker, blob in enumerate(blobs)
        ]
        total = np.zeros(self.n, np.float32)
        for update in updates:
            total[slice(None) if update.indices is None else update.indices] += update.values
        total /= np.float32(len(updates))
        where = [update.indices for update in updates if update.indices is not None]
        at = np.unique(np.concatenate(where)) if len(where) == len(updates) else None
        values = total if at is None else total[at]
        return encode(Update(self.fingerprint, round, self.n, at, values, self.coding))


@dataclass(frozen=True)
class Run:
    """What `distributed` leaves: the workers' trainers, all with the same parameters."""

    trainers: list[Trainer]
    losses: list[float] = field(default_factory=list)  # mean over the workers, by round


def distributed(
    program: Program,
    shards: Sequence[Shard],
    rounds: int,
    *,
    settings: Compression | None = None,
    lr: float | Callable[[int], float] | None = None,
    seed: int = 0,
    up: Sequence[Carry] = (),
    down: Sequence[Carry] = (),
    coding: str | None = None,
    after: Callable[[int, Trainer], None] | None = None,
) -> Run:
    """Train on all shards at once: each round every worker sends one batch's gradient, compressed
    by `settings`, and receives the mean of all. `Compression(sparsity=0)` is momentum SGD.

    `program` is a float program compiled with accumulate=True. `up` and `down` are connections, one
    per worker; without them bytes are handed over. `coding` is that of the mean, by default that of
    `settings`. `after` is called with the round and the first trainer.
    """
    settings, count = settings or Compression(), len(shards)
    if program.integer:
        raise DataError("an int8 program has no float parameters to move", try_="a float program")
    workers = [Worker(program, s, settings, count, seed * count + i) for i, s in enumerate(shards)]
    server = Server(program.fingerprint, coordinates(program), coding or settings.coding)
    sends, receives = up or [bytes] * count, down or [bytes] * count
    run = Run([worker.trainer for worker in workers])
    for number in range(rounds):
        rate = program.lr if lr is None else lr(number) if callable(lr) else lr
        blobs = [carry(w.upload(number)) for carry, w in zip(sends, workers, strict=True)]
        mean = server.merge(blobs, number)
        for carry, worker in zip(receives, workers, strict=True):
            worker.download(carry(mean), number, rate)
        run.losses.append(float(np.mean([worker.loss for worker in workers])))
        if after is not None:
            after(number, workers[0].trainer)
    return run


def batches(shard: Shard, size: int, seed: int) -> Iterator[Shard]:
    """Without end, in a new order each time through; a rest that fills no batch is left out."""
    x, y = shard
    if len(x) < size:
        raise DataError(f"a shard has {len(x)} samples, a batch {size}")
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(len(x))
        for start in range(0, len(x) - size + 1, size):
            rows = order[start : start + size]
            yield x[rows], y[rows]


def move(trainer: Trainer, changes: dict[str, Array], by: float) -> None:
    """Add `by` times these changes to what trains."""
    arrays, trained = trainer.arrays(), trainer.program.trained
    for name, change in changes.items():
        place: Any = ...
        if (part := trained[name]) is not None:
            axis, indices = part
            if axis is None:
                place = np.unravel_index(indices, arrays[name].shape)
            else:
                place = (slice(None),) * axis + (list(indices),)
        arrays[name][place] += np.float32(by) * change
    trainer.load_state_dict({name: arrays[name] for name in changes})
