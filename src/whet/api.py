"""`whet.compile`: a PyTorch model, a loss and an optimizer become a Program."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from .budget import check_flash, fit
from .emit.program import Program
from .errors import SchemeError, TargetError, option, warn
from .frontend.torch.export import Loss, Target
from .frontend.torch.export import Outputs as Outputs
from .ops.bf16 import FEWEST
from .passes import SWITCHES, check_switches
from .pipeline import Options, assemble
from .quantize import Int8, int8_of
from .report.compare import Comparison
from .scheme import Scheme
from .scheme.parameters import Parameter
from .settings import AUTO, Settings, check_search, to_compare
from .source import Source as Source
from .training import Send
from .tune.kept import this_machine
from .workbench import Workbench
from .workbench import plan as plan

if TYPE_CHECKING:
    import torch

Update = str | os.PathLike[str] | Scheme

# Classes that find a scheme, by the word for `update=`. Labs stand outside of the compiler, so they
# are named here and imported when they are asked for.
FINDERS = {AUTO: "whet.labs.search:Search"}


class Finder(Protocol):
    """Finds a scheme for a budget of RAM; `whet.Search` is one."""

    def find_scheme(self, bench: Workbench, data: Any, ram: int) -> Scheme: ...


def compile(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    *,
    loss: Loss | str | None = None,
    optimizer: torch.optim.Optimizer | str | None = None,
    labels: Target | None = None,
    update: Update | Finder | None = None,
    data: Any = None,
    target: str = "host",
    ram: int | str | None = None,
    flash: int | str | None = None,
    rematerialize: bool | str = False,
    accumulate: bool = False,
    cache_prefix: bool = False,
    lengths: Sequence[int] = (),
    clip_norm: float | None = None,
    portable: bool = False,
    dtype: str | Int8 | None = None,
    calibrate: Iterable[Any] | None = None,
    frozen: str | None = None,
    products: str | None = None,
    moments: str | None = None,
    send: Send | None = None,
    sparse: bool = False,
    mapped: bool = False,
    generate: bool = False,
    without: Collection[str] = (),
    name: str = "net",
) -> Program:
    """A program that trains `model` exactly as PyTorch would, on batches shaped like `inputs`.

    The loss defaults to cross-entropy and the optimizer to plain SGD; both may be names ("mse",
    "adam": with a rate of 0.01), as on the command line. `model.train()` or
    `.eval()` decides about batch norm and dropout; prediction always behaves as in eval mode.
    `update` says what trains: a Scheme, its name ("full", "bias+last", "last-3", ...) or its TOML
    file; without it, parameters train if they require a gradient and are in the optimizer. "auto",
    or a `whet.Search` that says more, finds the best scheme for `ram` by trying candidates on
    `data`: inputs and labels, or a loader of batches of them.
    `target` is where the program will run: "host", "portable" for plain C11 anywhere, or a
    microcontroller such as "cortex-m7"; see `whet.targets.TARGETS`.
    `ram` is a budget in bytes, or as "256K" or "1M": a program that needs more is not made, and the
    error says what would fit. On a microcontroller that is all the RAM there is, 256K by default,
    as `flash` is all the flash, 1M by default. `rematerialize`, or "elements", lets element-wise
    work be done twice where that saves memory, "layers" what layers compute as well (activation
    checkpointing); a budget that needs it switches it on by itself.
    `labels` is an example of what the loss compares with, needed only for losses whet does not
    know; a tuple for several tensors. A model whose loss takes more than its prediction returns
    `whet.Outputs`. `accumulate` adds the entry points `gradients` and `apply`; `clip_norm` limits
    the norm of all gradients. `cache_prefix` lets a step on a sample begin with what the frozen
    layers made of it before: see `Trainer.step`. `lengths` adds entry points for sequences shorter
    than those of the example. `without` names passes to leave out, to see what
    each is good for. `portable` takes kernels in plain C11 only; others use the vector extensions
    of gcc and clang.
    `dtype="int8"`, or a `whet.Int8` that says more, makes a program of integers from the model in
    eval mode; `calibrate` gives batches like those it will see, to find the range of activations.
    `frozen="int8"` stores weights that do not train in 8 bits, with a scale for each output
    channel; "q8_0", "q4_1" and "q4_0" store those of linear layers and embeddings in such blocks of
    GGUF files, and others in 8 bits. Both round weights, except those that are made up of these
    already. "gguf" rounds none: each weight is stored in the smallest of these blocks that it is
    made up of, if any, or in those of the file it came from. "kmeans4" (2 to 8 bits) stores indices
    into a codebook for each layer: exactly, if a weight has no more than 2^bits values, and else
    after k-means. Linear layers and embeddings read what is stored; other layers have the weight
    made right before them. `check` compares with the rounded weights.
    `products` makes linear layers faster where the processor can multiply such numbers. "bf16"
    rounds the operands of all of them, and of their gradients, to bfloat16; sums are float32.
    "int8" takes the integers that `frozen` stores and rounds each row of the input to 8 bits, on
    the way forward; gradients are those of the layer in float32. "int8+bf16" is int8 where that
    can be and bf16 elsewhere. `check` compares with such products.
    `moments="bf16"` stores the moments of Adam and AdamW in 16 bits, half of what they take.
    `sparse` keeps zeros: of every weight that trains and has zeros, as after pruning, the elements
    that are not zero train, and only those are stored. Parameters that are pruned by
    torch.nn.utils.prune train so in any case, wherever their masks are ones.
    `mapped` leaves the weights in a file beside the program, weights.bin, that it maps into memory
    instead of linking them, as all programs with more than 2 GB of weights do.
    `generate` adds what a causal language model needs to write texts: the entry points `prefill`
    and `decode`, which keep the keys and values of earlier tokens in the arena.
    `send`, a `whet.Send`, adds what a device needs to learn together with others: the update since
    the start of a round, clipped, with noise and sparse as it says, as bytes to be sent.
    """
    settings = Settings.of(
        update=update, target=target, ram=ram, flash=flash, rematerialize=rematerialize,
        portable=portable, dtype=dtype, frozen=frozen, products=products, moments=moments,
        without=without, name=name, clip_norm=clip_norm, mapped=mapped,
        cache_prefix=cache_prefix, lengths=lengths,
    )  # fmt: skip
    place, budget = settings.target, settings.ram
    if generate and place.inside_inputs:
        raise TargetError(
            f"a program for {option('target', target)} cannot write texts",
            why="its only entry points are those for training and prediction",
            try_=option("target", "portable"),
        )
    searching = is_search(settings.update)
    check_search(searching, budget, data)
    options = Options(
        settings.name, accumulate, settings.without, settings.recompute, place, this_machine(),
        frozen=settings.frozen, products=settings.products, send=send, mapped=settings.mapped,
        cache_prefix=cache_prefix, generate=generate,
    )  # fmt: skip
    if searching and calibrate is not None:
        calibrate = list(calibrate)  # read again for candidates of another batch size
    source = Source(
        model,
        loss,
        optimizer,
        inputs,
        labels,
        clip_norm,
        settings.int8,
        calibrate,
        lengths,
        moments,
    )
    imported = source.imported()
    bench = Workbench(imported, replace(options, single=False), source)
    if searching:
        assert budget is not None
        scheme = finder(settings.update).find_scheme(bench, data, budget)
    else:
        scheme = bench.scheme(settings.update)
    if sparse:
        scheme = scheme.keeping_zeros(bench.parameters, imported.live)
    if budget is None:
        program = assemble(imported, scheme, options, source)
    else:
        program = fit(imported, scheme, options, budget, source)
    warn_of_no_effect(program, settings.frozen, bench.parameters)
    check_flash(program)
    return program


def warn_of_no_effect(
    program: Program, frozen: str | None, parameters: Iterable[Parameter]
) -> None:
    """That nothing in the program is as `frozen` or `products` ask."""
    if frozen and not program.in_bytes:
        why = "no layer has a large one, or there is no room to make one"
        if frozen == "gguf":
            why = "none is made up of blocks"
        if all(program.trained.get(p.name, ()) is None for p in parameters):
            why = "all weights train"
        warn(f"no frozen weight is stored as {frozen}: {why}")
    for word, nodes in program.rounded_products.items():
        if not nodes:
            why = "weights stored as integers" if word == "int8" else f"{FEWEST} rows or more"
            warn(f"no product is of {word}: no linear layer has {why}")


def is_search(update: Any) -> bool:
    """Whether the scheme is to be searched for: "auto", or an object that finds schemes."""
    if update is None or isinstance(update, (str, Scheme)):
        return update in FINDERS if isinstance(update, str) else False
    if isinstance(update, type) or not hasattr(update, "find_scheme"):
        raise SchemeError(
            f"update={update!r} is not a valid scheme",
            try_=('"bias+last"', '"sparse.toml"', 'whet.Scheme([whet.Rule("classifier.*")])'),
        )
    return True


def finder(update: Any) -> Finder:
    """What searches for a scheme: the object given, or a new one of the registered class."""
    found: Finder = resolve_name(FINDERS[update])() if isinstance(update, str) else update
    return found


def compare(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    schemes: Sequence[Update],
    *,
    loss: Loss | str | None = None,
    optimizer: torch.optim.Optimizer | str | None = None,
    labels: Target | None = None,
    clip_norm: float | None = None,
    dtype: str | Int8 | None = None,
    calibrate: Iterable[Any] | None = None,
    without: Collection[str] = (),
) -> list[Comparison]:
    """The memory of a model under each scheme, and what every pass in `without` is good for.

    The first row is the first scheme with no pass at all: the plain program.
    """
    check_switches(without)
    updates = to_compare(schemes)
    for update in updates:
        is_search(update)  # or no scheme at all
    source = Source(model, loss, optimizer, inputs, labels, clip_norm, int8_of(dtype), calibrate)
    imported = source.imported()
    bench = Workbench(imported, Options(), source)
    rows = []
    for i, update in enumerate(updates):
        scheme = bench.scheme(update)
        name = scheme.name or f"scheme {i + 1}"
        if i == 0:
            plain = assemble(imported, scheme, Options(without=frozenset(SWITCHES)))
            rows.append(Comparison.of(f"{name}, no passes", plain, dict.fromkeys(without, plain)))
        others = {
            left_out: assemble(imported, scheme, Options(without=check_switches([left_out])))
            for left_out in without
        }
        rows.append(Comparison.of(name, assemble(imported, scheme, Options()), others))
    return rows
