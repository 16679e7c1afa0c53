"""What it costs a microcontroller to clip, to add noise to and to sparsify what it sends.

    python -m benchmarks.federated.device          every cell; writes device.jsonl and device.md
    python -m benchmarks.federated.device page     device.md again from what is kept

The network is that of the watch of `make demo`, in int8, on an emulated Cortex-M7. Instructions are
counted by the emulator, bytes are those of the linked firmware. Every update is compared with that
of the same program on this machine. Takes two minutes of one core; needs the package seglearn
(pip install --no-deps seglearn). A cell that is in device.jsonl is not run again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common.lines import kept as kept
from benchmarks.common.lines import study
from benchmarks.common.page import table
from whet.demo import watch
from whet.demo.recordings import Split, load, split
from whet.runtime.update import decode
from whet.targets.cortex_m import Board

HERE = Path(__file__).parent
STEPS = 3
KEY = bytes(range(32))
CLIP = 0.005  # less than what these training steps change
SENDS: dict[str, whet.Send | None] = {
    "no update": None,
    "all changes": whet.Send(),
    "clipped": whet.Send(clip=CLIP),
    "clipped, noise": whet.Send(clip=CLIP, noise=1.0),
    "top 1 %": whet.Send(top_k=0.01),
    "clipped, noise, top 1 %": whet.Send(clip=CLIP, noise=1.0, top_k=0.01),
}
SCHEMES = ("full", "last")


def compiled(model: nn.Module, data: Split, scheme: str, send: Any, target: str) -> whet.Program:
    known = data.others[0]
    return whet.compile(
        model, (known[:1],), loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=watch.RATE),
        dtype=whet.Int8(rounding=watch.ROUNDING), calibrate=[known[::40]], update=scheme,
        target=target, ram=watch.RAM, send=send,
    )  # fmt: skip


def learned(trainer: whet.Trainer, data: Split, sends: bool) -> bytes:
    """Some steps; the update that is sent then."""
    if sends:
        trainer.begin()
    for x, y in zip(*(part[: 50 * STEPS : 50] for part in data.learn), strict=True):
        trainer.step(x[None], y[None])
    return trainer.delta(1, KEY) if sends else b""


def counted(program: whet.Program, data: Split, entry: str) -> tuple[int, bytes]:
    """Instructions of an entry point in such a round, and what was sent."""
    with Board(program, counted=entry) as board:
        update = learned(board, data, program.delta is not None)
    return board.instructions(), update


def cell(model: nn.Module, data: Split, scheme: str, name: str) -> dict[str, Any]:
    send = SENDS[name]
    program = compiled(model, data, scheme, send, "cortex-m7")
    step, update = counted(program, data, "train_step")
    found: dict[str, Any] = {"scheme": scheme, "send": name, "step": step // STEPS}
    found |= {"ram": program.measured["built ram"], "flash": program.measured["built flash"]}
    if send is None:
        return found
    here = learned(compiled(model, data, scheme, send, "host").load(), data, True)
    numbers = {entry: counted(program, data, entry) for entry in ("begin", "delta")}
    assert program.delta is not None
    return found | {
        "begin": numbers["begin"][0], "delta": numbers["delta"][0], "n": program.delta.n,
        "bytes": len(update), "buffer": program.delta.bytes,
        "norm": float(np.linalg.norm(decode(update).values)),
        "equal": update == here == numbers["delta"][1],
    }  # fmt: skip


ABOUT = """## Privacy and compression inside the device

Made by `python -m benchmarks.federated.device` from `device.jsonl`. The network of `make demo`
({full:,} numbers train, or {last:,} in its last layer), in int8 with 8 bits for the fraction of
updates, on an emulated Cortex-M7. An update is made once a round, however many steps that has, so
its instructions are also given as a part of those of one step. Bytes are added to those of the same
firmware without an update; those of RAM are a copy of what trains, as of the start of the round,
and what the arena lacks for the update, which is written there between steps. The norm of the
changes is computed in any case, so clipping, which took place in all rows that have it, costs next
to nothing more. With noise, the search for the largest makes the noise anew in each of its four
passes instead of keeping it. The bits of every update
were {verdict} those of the same program on the host.
"""
HEAD = ("", "RAM added", "flash added", "instructions of a step, M", "start of a round, M",
        "update, M", "update, steps", "bytes sent")  # fmt: skip


def row(found: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    line = [found["send"]]
    if found is plain:
        sizes = [f"of {plain[key]:,}" for key in ("ram", "flash")]
        return [*line, *sizes, f"{plain['step'] / 1e6:.3f}", "", "", "", ""]
    return [
        *line, f"{found['ram'] - plain['ram']:,}", f"{found['flash'] - plain['flash']:,}",
        *(f"{found[key] / 1e6:.3f}" for key in ("step", "begin", "delta")),
        f"{found['delta'] / plain['step']:.2f}", f"{found['bytes']:,}",
    ]  # fmt: skip


def page(results: list[dict[str, Any]]) -> str:
    sizes = {s: max(r.get("n", 0) for r in results if r["scheme"] == s) for s in SCHEMES}
    equal = all(r.get("equal", True) for r in results)
    parts = [ABOUT.format(**sizes, verdict="equal to" if equal else "NOT equal to")]
    for scheme in SCHEMES:
        found = {r["send"]: r for r in results if r["scheme"] == scheme}
        own = [found[name] for name in SENDS]
        parts += [f"Scheme `{scheme}`:\n", table(HEAD, [row(r, own[0]) for r in own])]
    return "\n".join(parts)


@functools.cache
def subject() -> tuple[nn.Module, Split]:
    data = split(load()[0], watch.WEARER)
    return watch.pretrained(data.others), data


def run(scheme: str, name: str | None) -> dict[str, Any]:
    return cell(*subject(), scheme, name)


def main(given: Sequence[str] | None = None) -> None:
    torch.set_num_threads(1)
    cells = [(scheme, name) for scheme in SCHEMES for name in SENDS]
    names = ("scheme", "send")
    study(__doc__, HERE / "device.jsonl", names, lambda: cells, run, page, given)


if __name__ == "__main__":
    main()
