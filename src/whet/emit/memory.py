"""How many bytes a program needs, of which kind: the sums that the built program is held to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..ir import Type
from .c import Signature

if TYPE_CHECKING:
    from .program import Program

POINTER = 8  # bytes: the address of mapped weights
STATIC = 2_000_000_000  # bytes of data; code reaches 2 GiB, and it lies among them


def memory_of(program: Program) -> dict[str, int]:
    """Bytes by kind.

    `ram` is everything that changes, to the byte: arena, trained parameters, state, the caller's
    arrays for one training step, padding, and the stack if the target reserves one. Elsewhere the
    stack comes on top, some 200 KB for vector kernels. `flash` is everything that does not change:
    frozen parameters and constants, and the initial values of what trains; code comes on top.
    """
    store, plans, target = program.storage, program.plans, program.target
    arena = program.arena
    arrays = program_arrays(program)
    align = program.alignment
    network = up(network_bytes(program) + max(arena, 1), align)  # an empty array is not C
    static = target.pool + POINTER * store.mapped + target.stack
    frozen = sum(t.bytes for t in store.frozen.values())
    return {
        "arena": arena,
        "lower_bound": max(plan.lower_bound for plan in plans.values()),
        "trained": sum(t.bytes for t in store.params.values()),
        "state": sum(t.bytes for t in store.state.values()),
        "io": sum(t.bytes for t in arrays),
        "stack": target.stack,
        "ram": up(network + struct_bytes(arrays, network), align) + static,
        "frozen": frozen,
        "flash": store.image,
    }


def network_bytes(program: Program) -> int:
    """Where the arena begins in net_t, behind trained parameters and state."""
    network = 0
    for table in (program.storage.params, program.storage.state):
        network += struct_bytes(table.values(), network)
    return up(network, program.alignment)


def program_arrays(program: Program) -> list[Type]:
    """What the caller allocates for a training step."""
    step, predict = (Signature.of(program.entries[name]) for name in ("train_step", "predict"))
    return program.target.arrays(step, predict)


def up(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def struct_bytes(members: Iterable[Type], start: int) -> int:
    """How far arrays reach that C lays out one after the other from `start`."""
    at, widest = start, 1
    for t in members:
        at = up(at, t.dtype.size) + t.bytes
        widest = max(widest, t.dtype.size)
    return up(at, widest) - start
