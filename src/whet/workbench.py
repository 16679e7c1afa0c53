"""`whet.Workbench`: a model imported once, to plan, compile and train many schemes of it.

bench = whet.Workbench.of(model, (x,), dtype="int8", target="cortex-m7")
bench.plan("bias+last")             # bytes, without writing any C
bench.compile("bias+last")          # the Program
bench.trainer("bias+last")          # a Trainer on this machine, whatever the target
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .budget import check_flash
from .emit.program import Program
from .errors import DataError
from .frontend.cut import Cut, after, before, cut_before, cuts
from .frontend.model import Model
from .frontend.torch.export import Loss, Target, each
from .frontend.torch.optim import nothing_to_train
from .ir import Array, Role, Value
from .pipeline import Options, assemble
from .quantize import Int8, int8_of
from .runtime import Trainer
from .scheme import DEFAULT, Parameter, Scheme, parameters_of, preset
from .settings import check_frozen, known_update, parse_bytes, target_of
from .source import Source
from .tune.kept import this_machine

if TYPE_CHECKING:
    import torch

__all__ = ["Classes", "Cut", "Footprint", "Loss", "Workbench", "parse_bytes", "plan"]

CHUNK = 256  # samples quantized at a time


@dataclass(frozen=True)
class Footprint:
    """Bytes of a program, as planned."""

    ram: int  # all of it: arena, trained parameters, optimizer state, input and output, stack
    arena: int
    trained: int
    state: int
    flash: int


@dataclass(frozen=True)
class Classes:
    """Labels are class numbers below `count`; samples labelled `ignored` do not count."""

    count: int
    ignored: int


@dataclass(frozen=True, eq=False)
class Workbench:
    """A model as imported and quantized, with its loss and optimizer, for a target.

    Make one with `Workbench.of`. It can be sent to other processes; there it cannot be `rebatched`.
    """

    model: Model
    options: Options
    source: Source | None = None

    @classmethod
    def of(
        cls,
        model: torch.nn.Module,
        inputs: tuple[torch.Tensor, ...],
        *,
        loss: Loss | str | None = None,
        optimizer: torch.optim.Optimizer | str | None = None,
        labels: Target | None = None,
        clip_norm: float | None = None,
        target: str = "host",
        ram: int | str | None = None,
        flash: int | str | None = None,
        dtype: str | Int8 | None = None,
        calibrate: Iterable[Any] | None = None,
        frozen: str | None = None,
    ) -> Workbench:
        """Import the model once; these arguments mean what they do in `whet.compile`."""
        batches = None if calibrate is None else list(calibrate)  # `rebatched` reads them again
        check_frozen(frozen)
        place = target_of(target, False, ram, flash)
        source = Source(model, loss, optimizer, inputs, labels, clip_norm, int8_of(dtype), batches)
        options = Options(target=place, machine=this_machine(), frozen=frozen)
        return cls(source.imported(), options, source)

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "options": self.options, "source": None}

    # Schemes ------------------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter with the layer that uses it, as `Scheme` and presets see them."""
        return tuple(parameters_of(self.model.training.graph))

    def scheme(self, update: Any = None) -> Scheme:
        """The scheme that `compile(update=...)` means for this model."""
        update = known_update(update)
        if isinstance(update, Scheme):
            return update
        if update is not None:
            return preset(update, self.parameters)
        used = {p.name for p in self.parameters}
        trained = [name for name in self.model.trainable if name in used]
        if not trained:
            raise nothing_to_train()
        return Scheme.of(trained, name=DEFAULT)

    def plan(self, update: Any = None) -> Footprint:
        """The memory of a scheme, without writing C: no kernel trades memory for speed.

        `compile(ram=...)` may need less, because it also recomputes values to meet a budget.
        """
        program = assemble(self.model, self.scheme(update), replace(self.options, grow=False))
        parts = program.memory
        return Footprint(
            parts["ram"], program.arena, parts["trained"], parts["state"], parts["flash"]
        )

    def compile(self, update: Any = None) -> Program:
        """The program of a scheme for the target, whatever RAM it takes."""
        program = assemble(self.model, self.scheme(update), self.options, self.source)
        check_flash(program)
        return program

    def trainer(self, update: Any = None, *, accumulate: bool = False) -> Trainer:
        """The program of a scheme, built for this machine and loaded, on one thread."""
        options = Options(accumulate=accumulate, grow=False)
        return assemble(self.model, self.scheme(update), options).load(threads=1)

    # Other models of the same -------------------------------------------------------------------

    def rebatched(self, batch: int) -> Workbench:
        """The same for another batch size."""
        if self.source is None:
            raise DataError("a workbench from another process cannot be rebatched")

        def tiled(x: torch.Tensor) -> torch.Tensor:
            return x.repeat(-(-batch // len(x)), *[1] * (x.ndim - 1))[:batch]

        s = self.source
        labels = each(s.labels, tiled)
        inputs = tuple(tiled(x) for x in s.inputs)
        source = Source(
            s.model, s.loss, s.optimizer, inputs, labels, s.clip_norm, s.int8, s.calibrate
        )
        return Workbench(source.imported(), self.options, source)

    def cuts(self, most: int) -> list[Cut]:
        """Values that everything after them is computed from, up to `most` bytes per batch."""
        return cuts(self.model, most)

    def cut_before(self, parameters: Collection[str], found: Sequence[Cut]) -> Cut | None:
        """The last of these cuts that no parameter of these comes before."""
        return cut_before(self.model, parameters, found)

    def before(self, cut: Cut) -> Workbench:
        """The model up to a cut: its trainer predicts that value."""
        return Workbench(before(self.model, cut), self.options)

    def after(self, cut: Cut) -> Workbench:
        """The model from a cut on: its input is that value."""
        return Workbench(after(self.model, cut), self.options)

    # Facts --------------------------------------------------------------------------------------

    @property
    def lr(self) -> float:
        """The learning rate of the optimizer."""
        return self.model.lr

    @property
    def batch(self) -> int:
        return self._inputs[0].shape[0]

    @property
    def layer_input_bytes(self) -> dict[int, int]:
        """Bytes of each layer's input, which a step keeps to compute the gradient of its weight."""
        nodes = [n for n in self.model.training.graph.nodes if n.op.layer is not None]
        return {layer: node.ins[0].type.bytes for layer, node in enumerate(nodes)}

    @property
    def classes(self) -> Classes | None:
        """What the loss takes labels for; None if they are not class numbers."""
        graph = self.model.training.graph
        labels = set(graph.leaves_of(Role.LABEL))
        for node in graph.nodes:
            for place, (count, ignored) in node.op.bounds(node).items():
                if node.ins[place] in labels:
                    return Classes(count, ignored)
            if node.op.view and node.ins[0] in labels:
                labels.update(node.outs)
        return None

    @cached_property
    def fingerprint(self) -> str:
        """Of all that training depends on: graphs, numbers, loss and optimizer."""
        model, rules = self.model, self.model.rules
        graphs = (model.training.graph, model.prediction.graph)
        found = hashlib.sha256()
        found.update("\n".join(map(str, (*graphs, rules.clip_norm, rules.integer_rules))).encode())
        for name, rule in rules.rules.items():
            found.update(f"{name} {rule.op.name} {sorted(rule.attrs.items())} {rule.step}".encode())
            for state in rule.state.values():
                found.update(np.ascontiguousarray(state).tobytes())
        for name, data in sorted({**graphs[1].data, **graphs[0].data}.items()):
            found.update(name.encode() + np.ascontiguousarray(data).tobytes())
        return found.hexdigest()[:16]

    # Data ---------------------------------------------------------------------------------------

    def check_samples(self, inputs: Sequence[Array], labels: Array) -> tuple[Array, ...]:
        """Any number of samples, checked; returns the inputs, quantized if the model takes int8."""
        leaves = self._inputs
        if len(leaves) != len(inputs):
            raise DataError(f"the model takes {len(leaves)} inputs, the data have {len(inputs)}")
        self._check_labels(labels)
        return tuple(self._accepted(leaf, x) for leaf, x in zip(leaves, inputs, strict=True))

    def _accepted(self, leaf: Value, array: Array) -> Array:
        if array.shape[1:] != (shape := self._shape(leaf)[1:]):
            raise DataError(
                f"{leaf.name} has shape {array.shape[1:]} in the data, {shape} in the model"
            )
        quant = self.model.quants.get(leaf.name)
        if quant is None or array.dtype.kind != "f":
            return array
        chunks = (array[i : i + CHUNK] for i in range(0, len(array), CHUNK))
        return np.concatenate([quant.quantize(chunk) for chunk in chunks])

    def _check_labels(self, labels: Array) -> None:
        leaf, *others = self.model.training.graph.leaves_of(Role.LABEL)
        if others:
            raise DataError(f"the loss takes {1 + len(others)} labels, the data have one")
        if labels.shape[1:] != (shape := self._shape(leaf)[1:]):
            raise DataError(
                f"labels have shape {labels.shape[1:]} for each sample, the loss takes {shape}"
            )
        if (known := self.classes) is None:
            return
        if labels.dtype.kind not in "iu":
            raise DataError(f"labels are {labels.dtype}, the loss takes class numbers")
        wrong = (labels != known.ignored) & ((labels < 0) | (labels >= known.count))
        if wrong.any():
            raise DataError(
                "a label is out of range",
                why=f"the model has {known.count} classes, the label of sample "
                f"{int(np.argwhere(wrong)[0][0])} is {int(labels[wrong][0])}",
            )

    @property
    def _inputs(self) -> Sequence[Value]:
        return self.model.training.graph.leaves_of(Role.INPUT)

    def _shape(self, leaf: Value) -> tuple[int, ...]:
        """As PyTorch has it."""
        order = self.model.training.orders.get(leaf.name, tuple(range(leaf.type.rank)))
        return tuple(leaf.shape[order.index(axis)] for axis in range(leaf.type.rank))


def plan(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], update: Any = None, **options: Any
) -> Footprint:
    """The memory that training a scheme of `model` takes, without writing any C.

    `options` are those of `Workbench.of`. To plan several schemes of a model, make a workbench.
    """
    return Workbench.of(model, inputs, **options).plan(update)
