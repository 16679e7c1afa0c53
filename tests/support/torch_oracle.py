"""Compare whet with PyTorch on a function of tensors: values, gradients and next states.

A `Case` is a function and the tensors it is called with. Many cases are exported together, as one
module, because an export costs far more than a node. The graph they give is extended by its own
gradient for random cotangents and evaluated twice: in NumPy in double precision, which must agree
with PyTorch's double precision to 1e-9, and by the C kernels in single precision, which must agree
with the same numbers to 1e-5. Both are relative errors of a whole tensor, |a - b| / |b|.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

import c_kernels
from whet.errors import FrontendError, UnsupportedOps
from whet.frontend.model import Imported, Tensor
from whet.frontend.torch.export import export
from whet.frontend.torch.importer import Importer
from whet.ir import Array, Builder, Graph, Role, Value
from whet.ir.interp import interpret
from whet.ops.binary import Add
from whet.training.autodiff import backward

EXACT, CLOSE = 1e-9, 1e-5
# A result that cancels to nothing has no relative error: what counts then is the size of the
# numbers that cancelled, of order one in all samples.
FLOOR = {np.float64: 1e-13, np.float32: 1e-7}
# PyTorch's own float32 may be further from the truth than 1e-5 where a sample is ill-conditioned
# (a variance of equal numbers, tan near its pole). There whet may be wrong by a few times as much.
SLACK = 4.0


@dataclass(frozen=True)
class Case:
    """`f(*tensors)`, and what each tensor is to the model, one letter each:

    i  an input with gradient        p  a parameter        s  a buffer that f changes
    d  an input without gradient     c  a constant
    """

    name: str
    f: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    kinds: str
    handler: str = ""  # the aten operator this is a sample of; must have been imported
    exact: float = EXACT  # larger where PyTorch's own double precision contains a float constant
    stays: tuple[int, ...] = ()  # operands that are tried only as what they are

    def __post_init__(self) -> None:
        assert len(self.kinds) == len(self.tensors), f"{self.name}: {self.kinds}"


class One(nn.Module):
    """A case as a module; whatever is no input belongs to it."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        for i, (kind, tensor) in enumerate(zip(case.kinds, case.tensors, strict=True)):
            if kind == "p":
                self.register_parameter(f"x{i}", nn.Parameter(real(tensor, torch.float64)))
            elif kind in "cs":
                self.register_buffer(f"x{i}", real(tensor, torch.float64))

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        given = iter(inputs)
        kinds = enumerate(self.case.kinds)
        tensors = [next(given) if k in "id" else getattr(self, f"x{i}") for i, k in kinds]
        return flat(self.case.f(*tensors))


class Many(nn.Module):
    """All cases side by side, as `case0`, `case1`, ..."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        for k, case in enumerate(cases):
            self.add_module(f"case{k}", One(case))

    def forward(self, inputs: tuple[tuple[torch.Tensor, ...], ...]) -> tuple[torch.Tensor, ...]:
        outputs = [module(*given) for module, given in zip(self.children(), inputs, strict=True)]
        return tuple(t for listed in outputs for t in listed)


def leaf_name(case: int, i: int) -> str:
    return f"case{case}.x{i}"


def inputs_of(case: Case) -> tuple[torch.Tensor, ...]:
    pairs = zip(case.kinds, case.tensors, strict=True)
    return tuple(real(t, torch.float64) for kind, t in pairs if kind in "id")


def real(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    wanted = dtype if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(wanted, copy=True)


def flat(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [t for item in outputs if item is not None for t in flat(item)]


# --- what PyTorch says


@dataclass
class Truth:
    """Results of one case: outputs, their random cotangents, gradients and next states."""

    outputs: list[torch.Tensor]
    cotangents: list[torch.Tensor | None]
    gradients: dict[int, torch.Tensor | None]
    states: dict[int, torch.Tensor]

    def numbers(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        yield from ((f"output {i}", t) for i, t in enumerate(self.outputs))
        yield from ((f"gradient of operand {i}", t) for i, t in self.gradients.items())
        yield from ((f"next value of operand {i}", t) for i, t in self.states.items())


def torch_truth(case: Case, dtype: torch.dtype) -> Truth:
    tensors = [real(t, dtype) for t in case.tensors]
    for kind, tensor in zip(case.kinds, tensors, strict=True):
        tensor.requires_grad_(kind in "ip")
    outputs = flat(case.f(*tensors))
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    cotangents = [
        torch.randn(y.shape, generator=generator).to(dtype) if y.requires_grad else None
        for y in outputs
    ]
    asked = [i for i, kind in enumerate(case.kinds) if kind in "ip"]
    pairs = [(y, d) for y, d in zip(outputs, cotangents, strict=True) if d is not None]
    found: Sequence[torch.Tensor | None] = [None] * len(asked)
    if pairs and asked:
        ys, ds = zip(*pairs, strict=True)
        found = torch.autograd.grad(ys, [tensors[i] for i in asked], ds, allow_unused=True)
    return Truth(
        [y.detach() for y in outputs],
        cotangents,
        dict(zip(asked, found, strict=True)),
        {i: tensors[i].detach() for i, kind in enumerate(case.kinds) if kind == "s"},
    )


# --- what whet says


@dataclass
class Subject:
    """The graph of all cases with its gradients, and what its results are."""

    graph: Graph
    feed: dict[str, Array]
    results: list[tuple[int, str]]  # (case, what) of every output of the graph
    states: dict[str, tuple[int, str]]
    orders: dict[tuple[int, str], tuple[int, ...]]
    handlers: set[str] = field(default_factory=set)

    def run(self, **how: Any) -> dict[tuple[int, str], Array]:
        with np.errstate(all="ignore"):
            outputs, states = interpret(self.graph, self.feed, **how)
        found = dict(zip(self.results, outputs, strict=True))
        found |= {key: states[name] for name, key in self.states.items()}
        return {key: restored(a, self.orders[key]) for key, a in found.items()}


def restored(array: Array, order: tuple[int, ...]) -> Array:
    """From the stored order of axes back to PyTorch's."""
    return array.transpose(np.argsort(order)) if order else array


def stored(tensor: torch.Tensor, order: tuple[int, ...]) -> Array:
    array = tensor.detach().numpy()
    return array.transpose(order) if order else array


def import_cases(cases: Sequence[Case]) -> tuple[Imported, set[str]]:
    """Export and import all cases; also the aten operators whose handlers were called."""
    exported = export(Many(cases), (tuple(inputs_of(case) for case in cases),))
    targets = {str(n.target) for n in exported.graph.nodes if n.op == "call_function"}
    return Importer(exported, {}).run(), {t.removeprefix("aten.") for t in targets}


def build(cases: Sequence[Case], truths: Sequence[Truth]) -> Subject:
    imported, handlers = import_cases(cases)
    forward = imported.graph
    keys = [(k, f"output {i}") for k, t in enumerate(truths) for i in range(len(t.outputs))]
    tensors: dict[tuple[int, str], Tensor] = dict(zip(keys, imported.outputs, strict=True))
    b = Builder.extend(forward, "all")
    subject = Subject(forward, {}, [], {}, {}, handlers)
    seeds: dict[Value, Value] = {}
    for (k, what), tensor in tensors.items():
        subject.orders[k, what] = tensor.order
        cotangent = truths[k].cotangents[int(what.split()[1])]
        if cotangent is not None:
            seed = b.leaf("cotangent", tensor.value.type, Role.INPUT)
            subject.feed[seed.name] = stored(cotangent, tensor.order)
            old = seeds.get(tensor.value)
            seeds[tensor.value] = seed if old is None else b.emit(Add, old, seed)
    by_leaf = match_leaves(cases, imported, subject)
    gradients: dict[tuple[int, str], Value] = {}

    def on_gradient(leaf: Value, gradient: Value) -> None:
        gradients[by_leaf[leaf]] = gradient
        subject.orders[by_leaf[leaf]] = imported.orders[leaf.name]

    backward(b, forward, seeds, list(by_leaf), on_gradient)
    values = {key: t.value for key, t in tensors.items()} | gradients
    subject.results = list(values)
    subject.graph = b.finish(values.values())
    return subject


def match_leaves(
    cases: Sequence[Case], imported: Imported, subject: Subject
) -> dict[Value, tuple[int, str]]:
    """The leaves that gradients are asked for; feeds all inputs and notes the states."""
    inputs = iter(imported.graph.leaves_of(Role.INPUT))
    by_name = {v.name: v for v in imported.graph.leaves}
    wanted: dict[Value, tuple[int, str]] = {}
    for k, case in enumerate(cases):
        for i, (kind, tensor) in enumerate(zip(case.kinds, case.tensors, strict=True)):
            name = leaf_name(k, i)
            leaf = next(inputs) if kind in "id" else by_name.get(name)
            if kind in "id":
                assert leaf is not None
                order = imported.orders[leaf.name]
                subject.feed[leaf.name] = stored(real(tensor, torch.float64), order)
            if kind in "ip" and leaf is not None:
                wanted[leaf] = (k, f"gradient of operand {i}")
            if kind == "s" and leaf is not None:
                key = (k, f"next value of operand {i}")
                subject.states[name], subject.orders[key] = key, imported.orders[name]
    return wanted


# --- the comparison


class Mismatch(AssertionError):
    """whet and PyTorch disagree."""


def error_of(given: Array, right: Array) -> tuple[float, float]:
    """|given - right| and |right| over the finite numbers; infinite if the others differ."""
    given, right = np.asarray(given, np.float64), np.asarray(right, np.float64)
    if given.shape != right.shape:
        return np.inf, 1.0
    number = np.isfinite(right)
    if not np.array_equal(given[~number], right[~number], equal_nan=True):
        return np.inf, 1.0
    if not np.isfinite(given[number]).all():
        return np.inf, 1.0
    return float(np.linalg.norm(given[number] - right[number])), float(
        np.linalg.norm(right[number])
    )


def compare(
    case: Case, truth: Truth, given: dict[str, Array], precision: type[np.floating[Any]]
) -> None:
    tolerance = case.exact if precision is np.float64 else CLOSE
    single: dict[str, torch.Tensor | None] | None = None
    for what, right in truth.numbers():
        if right is None or right.numel() == 0:
            continue
        array = given.get(what, np.zeros(right.shape))
        if not right.is_floating_point():
            if not np.array_equal(array, right.numpy()):
                raise Mismatch(f"{case.name}: {what} is {array}, not {right}")
            continue
        error, size = error_of(array, right.numpy())
        allowed = tolerance * size + FLOOR[precision] * right.numel() ** 0.5
        if error > allowed and precision is np.float32:
            single = single or dict(torch_truth(case, torch.float32).numbers())
            rough = single[what]
            assert rough is not None
            allowed = max(allowed, SLACK * error_of(rough.numpy(), right.numpy())[0])
        if not error <= allowed:
            raise Mismatch(
                f"{case.name}: {what} in {precision.__name__} is off by {error:.2e} of {size:.2e},"
                f" allowed {allowed:.2e}\ngiven {array}\nright {right.numpy()}"
            )


@dataclass
class Verdict:
    """Of one case: nothing, or what is wrong with it, or what whet says it does not support."""

    case: Case
    problem: Exception | None = None
    unsupported: str = ""


def check(cases: Sequence[Case]) -> list[Verdict]:
    """Run all cases together, but those that do not survive it apart from the others."""
    c_kernels.library()  # if the kernels do not compile, no case is to blame
    if not cases:
        return []
    try:
        truths = [torch_truth(case, torch.float64) for case in cases]
        subject = build(cases, truths)
        exact = subject.run(real=np.float64)
        single = subject.run(real=np.float32, execute=c_kernels.execute)
    except UnsupportedOps as error:
        found = dict(re.findall(r"case(\d+): (.*)", str(error)))
        bad = [Verdict(cases[int(k)], unsupported=text) for k, text in found.items()]
        return [*bad, *check([case for k, case in enumerate(cases) if str(k) not in found])]
    except Exception as error:
        if len(cases) > 1:
            half = len(cases) // 2
            return [*check(cases[:half]), *check(cases[half:])]
        if isinstance(error, FrontendError):
            return [Verdict(cases[0], unsupported=str(error))]
        return [Verdict(cases[0], error)]
    return [verdict(k, case, truths[k], subject, (exact, single)) for k, case in enumerate(cases)]


def verdict(
    k: int, case: Case, truth: Truth, subject: Subject, results: Sequence[dict[Any, Array]]
) -> Verdict:
    try:
        for numbers, precision in zip(results, (np.float64, np.float32), strict=True):
            mine = {what: a for (owner, what), a in numbers.items() if owner == k}
            compare(case, truth, mine, precision)
        if case.handler and case.handler not in subject.handlers:
            raise Mismatch(f"{case.name}: no aten.{case.handler} among {subject.handlers}")
    except Mismatch as error:
        return Verdict(case, error)
    return Verdict(case)
