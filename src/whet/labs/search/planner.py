"""What candidates cost: the planner's own bytes, and a model of them that adds up.

The RAM of a candidate is known when its program has been planned, which takes a fraction of a
second: fast enough to check what a search finds, too slow for every combination there is. So each
prefix of biases and each part of a weight is planned once by itself. Of a combination, what trains
adds up to the byte; the arena is taken to be the largest among the parts, plus the inputs of layers
that are kept for the others. Whatever a search finds by that is planned for real before it is
believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...frontend.model import Model
from ...ir import Graph
from ...pipeline import Options, assemble
from ...scheme import parameters_of
from ...scheme.contribution import Candidate, choices, depth, reach
from .engine import Engine

Part = tuple[int, float]  # a layer, and the fraction of its weight that trains


@dataclass(frozen=True)
class Need:
    """Bytes of a candidate's program: all of its RAM, and what of it is arena."""

    ram: int
    arena: int

    @property
    def rest(self) -> int:
        return self.ram - self.arena


@dataclass(frozen=True)
class Planner:
    """Plans candidates for a model as it will be compiled."""

    model: Model
    options: Options

    def run(self, candidate: Candidate) -> Need:
        scheme = candidate.scheme(parameters_of(self.model.training.graph))
        program = assemble(self.model, scheme, self.options)
        return Need(program.memory["ram"], program.arena)


@dataclass(frozen=True)
class Costs:
    """The bytes of every prefix of biases, and of every part of a weight with those it needs."""

    prefixes: Mapping[int, Need]
    parts: Mapping[Part, Need]
    reaches: Mapping[int, int]  # layer -> the biases its parts were planned with
    inputs: Mapping[int, int]  # layer -> bytes of what its weight's gradient is computed from

    @classmethod
    def measure(
        cls, planner: Planner, engine: Engine, tick: Callable[[int, int], None] = lambda i, n: None
    ) -> Costs:
        graph = planner.model.training.graph
        parameters = parameters_of(graph)
        offered = choices(parameters)
        reaches = {layer: reach(parameters, layer) for layer in offered}
        prefixes = [Candidate(k) for k in range(depth(parameters) + 1)]
        singles = [
            Candidate(reaches[layer], ((layer, ratio),))
            for layer, ratios in offered.items()
            for ratio in ratios
        ]
        done: dict[Candidate, Need] = {}
        for candidate, need in engine.results(planner, [*prefixes, *singles]):
            done[candidate] = need
            tick(len(done), len(prefixes) + len(singles))
        return cls(
            {c.biases: done[c] for c in prefixes},
            {c.weights[0]: done[c] for c in singles},
            reaches,
            layer_inputs(graph),
        )

    def added(self, part: Part) -> int:
        """What a part adds to what is not arena."""
        return self.parts[part].rest - self.prefixes[self.reaches[part[0]]].rest

    def kept(self, part: Part) -> int:
        """What a part keeps of its layer's input from its turn forward to its turn back."""
        return int(self.inputs[part[0]] * part[1])

    def estimate(self, candidate: Candidate) -> int:
        """About the RAM of a combination."""
        base, parts = self.prefixes[candidate.biases], candidate.weights
        kept = sum(self.kept(part) for part in parts)
        arenas = [self.parts[part].arena - self.kept(part) + kept for part in parts]
        return base.rest + max(base.arena, *arenas, 0) + sum(self.added(part) for part in parts)


def layer_inputs(graph: Graph) -> dict[int, int]:
    """Bytes of the input of every layer, numbered as schemes number them."""
    nodes = [node for node in graph.nodes if node.op.layer is not None]
    return {layer: node.ins[0].type.bytes for layer, node in enumerate(nodes)}
