"""How well the integers of a model predict what its floats do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import FrontendError, option
from ..ir import Array, Graph, Role
from ..ir.interp import interpret
from ..ir.quant import Quant
from ..ops.softmax import Softmax

LEAST = 0.9  # correlation of predictions, below which integers have lost the model's function


def correlation(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """Of two sets of predictions, all numbers together: 1 where they rise and fall as one."""
    a, b = (np.concatenate([np.ravel(x).astype(np.float64) for x in xs]) for xs in (ours, theirs))
    a, b = a - a.mean(), b - b.mean()
    sizes = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / sizes if sizes > 0 else float(np.array_equal(a, b))


def attends(graph: Graph) -> bool:
    """Whether attention, or another softmax, decides inside the model what its layers see."""
    deciding = (node for node in graph.nodes if node.op is Softmax or node.op.attends)
    weighed = {out for node in deciding for out in node.outs}
    for node in graph.nodes:
        if weighed.intersection(node.ins):
            weighed.update(node.outs)
    return any(n.op.integer is not None and weighed.intersection(n.ins) for n in graph.nodes)


def refuse_lost(
    floats: Graph, integers: Graph, quants: Mapping[str, Quant], example: Array
) -> None:
    """Refuse integers that do not predict what the floats do on a batch of the calibration."""
    (leaf,) = floats.leaves_of(Role.INPUT)
    theirs, _ = interpret(floats, {leaf.name: example})
    quant = quants.get(leaf.name)
    ours, _ = interpret(integers, {leaf.name: quant.quantize(example) if quant else example})
    found = correlation(ours, theirs)
    if not found >= LEAST:
        raise FrontendError(
            f"integers lose what this model computes: their predictions have a correlation of "
            f"{found:.2f} with those of its floats, where at least {LEAST} is asked for",
            why="one scale serves all tokens of an activation, and those of a transformer differ "
            "too much in size for 8 bits",
            try_=(
                "a float program",
                f"{option('frozen', 'int8')}, which stores frozen weights in 8 bits",
            ),
        )
