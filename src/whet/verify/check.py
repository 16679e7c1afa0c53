"""Compare a built program with PyTorch: every gradient, and the parameters after some steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ..emit.program import Program
from ..emit.tensor_info import PartView
from ..errors import CheckError
from ..frontend.torch.export import (
    Target,
    canonical_names,
    each,
    for_loss,
    import_model,
    main_output,
)
from ..frontend.torch.halves import convert, single
from ..frontend.torch.masks import copied
from ..ir import Array, DType
from ..pipeline import Options, as_compiled, assemble
from ..report import CheckReport
from ..runtime import Trainer
from ..runtime.arrays import from_stored
from .beside import Beside, adapted, beside, shaken
from .products import Rounding, rounding_of

if TYPE_CHECKING:
    from ..source import Source

GRADIENT_TOLERANCE = 1e-4
ROUNDED_TOLERANCE = 2e-3  # where products are rounded: a number may round the other way
PARAMETER_TOLERANCE = 1e-3
NARROW_TOLERANCE = 2**-7  # if moments are in bf16, whose last place this is
SLACK = 3  # where PyTorch's own float32 is less exact than that, how many times its error
TRIES = 5
FLOOR = 1e-4  # tensors smaller than this share of the whole are measured against the whole

Batch = tuple[tuple[torch.Tensor, ...], Target]
Trained = Mapping[str, PartView | None]


def check(program: Program, steps: int = 10) -> CheckReport:
    """Raise CheckError, naming the worst tensors, unless the C program trains as PyTorch does.

    The truth is PyTorch in float64. A tensor may be as far from it as the tolerance says or, in a
    model that float32 cannot resolve so well, a few times as far as PyTorch's own float32 is.
    One ReLU whose input is almost zero can fall to the other side by the last bit of a sum, and
    gradients jump; so what disagrees is tried again on other data, and a mistake disagrees always.
    Where PyTorch in float64 gets NaN, as in models that hide scores with its lowest number and
    then compute in float32, the truth is its float32.
    """
    source: Source = program.source
    random = program.rng is not None
    with without_dropout() if random else nullcontext():
        batches = Batches(source)
        exact = torch.float64 if runs(source, torch.float64, batches.draw()) else torch.float32
        trainer = with_gradients(program).load()
        shaken(trainer)
        start = trainer.save()
        drawn = [batches.draw() for _ in range(steps + 1)]
        report = _attempt(trainer, source, exact, drawn)
        if undefined(report) and exact is torch.float64:
            exact = torch.float32
            trainer.load(start)
            report = _attempt(trainer, source, exact, drawn)
        tries = 1
        limit = NARROW_TOLERANCE if narrow(program) else PARAMETER_TOLERANCE
        while failures(report, limit) and tries < TRIES:
            tries += 1
            trainer.load(start)
            again = _attempt(trainer, source, exact, [batches.draw() for _ in range(steps + 1)])
            report = report.merged(again)
    for what, bad in failures(report, limit).items():
        raise CheckError(f"{len(bad)} {what} differ from PyTorch's", why=bad[:10])
    notes = {
        "moments are in bf16; steps may differ by that from PyTorch's": narrow(program),
        "dropout was switched off on both sides for this comparison": random,
        "the model does not work in float64; this compares with float32": exact is torch.float32,
        "LoRA started from random factors, since with zeros one of them has no gradient": bool(
            program.factors
        ),
        f"{tries} draws of data were needed: some value fell on a corner in float32": tries > 1,
    }
    if rounding := rounding_of(program):
        rounding.check(report.changed)
        notes[rounding.words] = True
    return replace(report, notes=tuple(note for note, holds in notes.items() if holds))


def shared_weights(program: Program, source: Source) -> dict[str, Array]:
    """Frozen weights of the program that are not the model's, as PyTorch has them."""
    if not program.rounded:
        return {}
    data = as_compiled(source.imported(), program).training.graph.data
    return {name: from_stored(data[name], program.tensors[name]) for name in program.rounded}


def with_gradients(program: Program) -> Program:
    """The same program with an entry point for its gradients, and without dropout."""
    if "gradients" in program.entries and program.rng is None:
        return program
    source: Source = program.source
    model, loss, optimizer = copies(source)
    imported = import_model(model, source.inputs, loss, optimizer, source.labels, source.clip_norm)
    assert program.scheme is not None
    return assemble(
        imported,
        program.scheme,
        replace(options_here(program), accumulate=True, cache_prefix=False),
    )


def options_here(program: Program) -> Options:
    """The program's own options, for a target whose programs run in this process."""
    return replace(program.options, target=program.target.on_this_machine)


def _attempt(
    trainer: Trainer, source: Source, exact: torch.dtype, batches: list[Batch]
) -> CheckReport:
    """Gradients on the first batch, then one step on each of the others."""
    program = trainer.program
    trained: Trained = dict.fromkeys((*program.chosen, *program.trained)) | program.views
    numbers = shared_weights(program, source)
    factors, rounding = beside(trainer), rounding_of(program)
    single, double = (
        Reference(source, dtype, trained, numbers, factors, rounding)
        for dtype in (torch.float32, exact)
    )
    first, *rest = batches
    truth = double.gradients(first)
    state = trainer.save()
    trainer.gradients(*first)
    trainer_gradients = trainer.collected()
    gradients = compare(trainer_gradients, truth)
    trainer.load(state)
    torch_gradients = compare(single.gradients(first), truth)
    changed = None
    if rounding is not None:
        plain = Reference(source, exact, trained, numbers, factors).gradients(first)
        changed = distance(trainer_gradients, plain)
    losses = []
    for batch in rest:
        double.step(batch)
        losses.append((single.step(batch), trainer.step(*batch)))
    ours, truth = trainer.arrays(), double.arrays()
    truth = {n: truth[n] for n in ours if n in truth}
    parameters, torch_parameters = compare(ours, truth), compare(single.arrays(), truth)
    return CheckReport(
        gradients, torch_gradients, parameters, torch_parameters, losses, changed=changed
    )


def undefined(report: CheckReport) -> bool:
    """Whether PyTorch got NaN."""
    return any(
        map(math.isnan, (*report.torch_gradients.values(), *report.torch_parameters.values()))
    )


def narrow(program: Program) -> bool:
    """Whether moments are in bf16."""
    return any(kind.dtype is DType.BF16 for kind in program.storage.state.values())


def failures(report: CheckReport, limit: float = PARAMETER_TOLERANCE) -> dict[str, list[str]]:
    """What is beyond its limit, worst first; `limit` is for tensors after some steps."""
    least = GRADIENT_TOLERANCE if report.changed is None else ROUNDED_TOLERANCE
    kinds = {
        "gradients": (report.gradients, report.torch_gradients, least),
        f"tensors after {len(report.losses)} steps": (
            report.parameters, report.torch_parameters, limit,
        ),
    }  # fmt: skip
    found = {}
    for what, (errors, own, tolerance) in kinds.items():
        bad = [n for n, e in errors.items() if not e <= max(tolerance, SLACK * own[n])]
        bad.sort(key=lambda n: -errors[n])
        if bad:
            found[what] = [f"{n}: {errors[n]:.1e}, PyTorch's float32 {own[n]:.1e}" for n in bad]
    return found


def copies(source: Source) -> tuple[nn.Module, Any, torch.optim.Optimizer]:
    """Model, loss and optimizer of their own, with whatever drops at random in eval mode."""
    model, loss, optimizer = copied((source.model, source.loss, source.optimizer), source.model)
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) or is_drop_path(module):
            module.training = False
    return model, loss, optimizer


def is_drop_path(module: nn.Module) -> bool:
    """Stochastic depth, by the names its usual implementations have; they hold no layers."""
    known = ("DropPath", "StochasticDepth", "DropBlock2d")
    return type(module).__name__.endswith(known) and not list(module.children())


class Part:
    """What trains of a parameter, as a parameter of its own that the optimizer updates."""

    def __init__(self, whole: nn.Parameter, view: PartView) -> None:
        self.whole, self.view = whole, view
        self.own = nn.Parameter(self.seen(view.take, whole))
        self.put_back()

    def seen(self, function: Callable[[Array], Array], whole: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(function(whole.detach().numpy()).copy())

    def join(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the place of the parameter, with the part of its state."""
        for group in optimizer.param_groups:
            group["params"] = [self.own if p is self.whole else p for p in group["params"]]
        if self.whole in optimizer.state:
            state = optimizer.state.pop(self.whole)
            optimizer.state[self.own] = {
                k: self.seen(self.view.take, t) if getattr(t, "shape", ()) else t
                for k, t in state.items()
            }

    def reduce(self) -> None:
        if self.whole.grad is not None:
            self.own.grad = self.seen(self.view.reduce, self.whole.grad)
            self.whole.grad = None

    def put_back(self) -> None:
        with torch.no_grad():
            whole = self.view.put(self.own.detach().numpy(), self.whole.detach().numpy())
            self.whole.copy_(torch.from_numpy(np.ascontiguousarray(whole)))


class Reference:
    """PyTorch training its own copy of the model in one precision."""

    def __init__(
        self,
        source: Source,
        dtype: torch.dtype,
        trained: Trained,
        numbers: Mapping[str, Array] | None = None,
        factors: Sequence[Beside] = (),
        rounding: Rounding | None = None,
    ) -> None:
        """`numbers` are those of some parameters, if not the model's."""
        self.dtype, self.clip_norm = dtype, source.clip_norm
        self.model, self.loss, self.optimizer = copies(source)
        self.renumber(numbers or {})
        names = canonical_names(self.model)
        own = {names[f"model.{path}"]: p for path, p in self.model.named_parameters()}
        self.beside = adapted(self.model, self.optimizer, own, factors)
        convert(self.model, dtype)
        self.trained = self.restrict(own | self.beside, trained)
        if isinstance(self.loss, nn.Module):
            self.loss.to(dtype)
        self.optimizer.load_state_dict(self.optimizer.state_dict())  # moments follow their weights
        self.products = rounding.mode(own | self.beside, trained) if rounding else nullcontext()
        for module in self.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.register_forward_hook(dense_gradient)

    def renumber(self, numbers: Mapping[str, Array]) -> None:
        names = canonical_names(self.model)
        with torch.no_grad():
            for path, parameter in self.model.named_parameters():
                if (found := numbers.get(names[f"model.{path}"])) is not None:
                    parameter.copy_(torch.from_numpy(np.ascontiguousarray(found)))

    def forward(self, batch: Batch) -> torch.Tensor:
        x, y = map(self.cast, batch[0]), each(batch[1], self.cast)
        with default_dtype(self.dtype), self.products:
            loss: torch.Tensor = self.loss(for_loss(self.model(*x)), y)
            return loss

    def cast(self, t: torch.Tensor) -> torch.Tensor:
        return t.to(self.dtype) if t.is_floating_point() else t

    def restrict(
        self, parameters: Mapping[str, nn.Parameter], trained: Trained
    ) -> dict[str, tuple[nn.Parameter, Part | None]]:
        """Let just `trained` require gradients, and the optimizer update the parts of it."""
        found: dict[str, tuple[nn.Parameter, Part | None]] = {}
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in trained)
            if name in trained:
                view = trained[name]
                found[name] = parameter, None if view is None else Part(parameter, view)
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        first = self.optimizer.param_groups[0]["params"]
        first += [p for p, _ in found.values() if id(p) not in held]
        for _, part in found.values():
            if part is not None:
                part.join(self.optimizer)
        return found

    def gradients(self, batch: Batch) -> dict[str, Array]:
        """Of what trains, by name; running statistics are put back afterwards."""
        start = copy.deepcopy(self.model.state_dict())
        self.model.zero_grad()
        self.forward(batch).backward()
        found = {}
        for name, (p, part) in self.trained.items():
            if p.grad is not None:
                found[name] = p.grad.numpy() if part is None else part.view.reduce(p.grad.numpy())
        self.model.load_state_dict(start)
        self.model.zero_grad()
        return found

    def step(self, batch: Batch) -> float:
        self.optimizer.zero_grad()
        loss = self.backward(batch)
        self.optimizer.step()
        for _, part in self.trained.values():
            if part is not None:
                part.put_back()
        return loss

    def backward(self, batch: Batch) -> float:
        """Gradients in place, of what trains, and clipped."""
        loss = self.forward(batch)
        loss.backward()
        for _, part in self.trained.values():
            if part is not None:
                part.reduce()
        if self.clip_norm is not None:
            groups = self.optimizer.param_groups
            params = [p for g in groups for p in g["params"] if p.grad is not None]
            torch.nn.utils.clip_grad_norm_(params, self.clip_norm)
        return loss.item()

    def arrays(self) -> dict[str, Array]:
        state = self.model.state_dict() | self.beside
        return {n: single(t).detach().numpy() for n, t in state.items()}


def dense_gradient(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
    """PyTorch's batch norm on CPUs misreads the gradient of one image if it is a transposed view.

    Seen in PyTorch 2.13: `bn(x).flatten(2).transpose(1, 2)` with a batch of 1.
    """
    if output.requires_grad:
        output.register_hook(torch.Tensor.contiguous)


def runs(source: Source, dtype: torch.dtype, batch: Batch) -> bool:
    """Whether the model, which may insist on float32 somewhere, also runs in this precision."""
    try:
        Reference(source, dtype, {}).forward(batch)
    except (RuntimeError, TypeError):
        return False
    return True


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Numbers that the model makes while it runs have this precision too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def compare(
    ours: Mapping[str, Array], truth: Mapping[str, Array], least: float = FLOOR
) -> dict[str, float]:
    """Relative error of every tensor; one below `least` of the whole is measured by the whole.

    A tensor that is missing counts as zeros.
    """
    sizes = {n: float(np.linalg.norm(t.astype(np.float64).ravel())) for n, t in truth.items()}
    whole = math.hypot(*sizes.values())
    errors = {}
    for name, tensor in truth.items():
        difference = ours.get(name, np.zeros(())).astype(np.float64) - tensor
        size = sizes[name] if sizes[name] >= least * whole else FLOOR * whole
        errors[name] = float(np.linalg.norm(difference.ravel())) / max(size, 1e-30)
    return errors


def distance(ours: Mapping[str, Array], truth: Mapping[str, Array]) -> float:
    """Of all tensors together, by the norm of the truth."""
    apart = (np.linalg.norm((ours[n].astype(np.float64) - t).ravel()) for n, t in truth.items())
    return math.hypot(*apart) / math.hypot(*(np.linalg.norm(t.ravel()) for t in truth.values()))


class Batches:
    """Random batches shaped like the example; integers lie in the example's range.

    Negative ones stay where they are: they mark labels that do not count.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.generator = torch.Generator().manual_seed(0)
        if source.labels is None:
            model = copies(source)[0].eval()
            with torch.no_grad():
                self.output = main_output(model(*source.inputs)).shape

    def draw(self) -> Batch:
        return tuple(self.like(x) for x in self.source.inputs), self.target()

    def like(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            return torch.randn(x.shape, generator=self.generator)
        if x.dtype == torch.bool:
            return torch.rand(x.shape, generator=self.generator) < 0.5
        if (x < 0).all():
            return x
        low, high = int(x[x >= 0].min()), int(x.max())
        drawn = torch.randint(low, high + 1, x.shape, generator=self.generator, dtype=x.dtype)
        return torch.where(x < 0, x, drawn)

    def target(self) -> Target:
        if (drawn := each(self.source.labels, self.like)) is not None:
            return drawn
        shape = self.output
        if isinstance(self.source.loss, (nn.CrossEntropyLoss, nn.NLLLoss)):
            labels = (shape[0], *shape[2:]) if len(shape) > 1 else ()
            return torch.randint(0, shape[min(1, len(shape) - 1)], labels, generator=self.generator)
        return torch.rand(shape, generator=self.generator)


@contextmanager
def without_dropout() -> Iterator[None]:
    """PyTorch's functional dropout does nothing, for tracing and running alike."""
    attention = F.scaled_dot_product_attention

    def keep(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return x

    def attend(*args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("dropout_p", None)
        return attention(*((*args[:4], 0.0, *args[5:]) if len(args) > 4 else args), **kwargs)

    patches: dict[str, Callable[..., Any]] = {
        name: keep for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
    }
    patches["scaled_dot_product_attention"] = attend
    saved = {name: getattr(F, name) for name in patches}
    try:
        for name, function in patches.items():
            setattr(F, name, function)
        yield
    finally:
        for name, function in saved.items():
            setattr(F, name, function)
