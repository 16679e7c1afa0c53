"""`whet.compile`: a PyTorch model, a loss and an optimizer become a Program."""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .budget import fit, parse_bytes
from .emit.program import Program
from .errors import BudgetError, FrontendError, SchemeError, TargetError
from .frontend.optim import default_optimizer, nothing_to_train
from .frontend.torch import Loss, Model, check_inputs, import_model
from .machine import this_machine
from .passes import SWITCHES, Recompute, check_switches
from .pipeline import Options, assemble
from .quantize import Int8, int8_of
from .quantize.model import integer_model
from .report import kib
from .report.compare import Comparison
from .scheme import Scheme, named, parameters_of
from .targets import PORTABLE, Chip, Target, target_named

if TYPE_CHECKING:
    import torch

    from .selection import Search

Update = str | os.PathLike[str] | Scheme
AUTO = "auto"


def compile(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    labels: torch.Tensor | None = None,
    update: Update | Search | None = None,
    data: Any = None,
    target: str = "host",
    ram: int | str | None = None,
    flash: int | str | None = None,
    rematerialize: bool | str = False,
    accumulate: bool = False,
    clip_norm: float | None = None,
    portable: bool = False,
    dtype: str | Int8 | None = None,
    calibrate: Iterable[Any] | None = None,
    frozen: str | None = None,
    without: Collection[str] = (),
    name: str = "net",
) -> Program:
    """A program that trains `model` exactly as PyTorch would, on batches shaped like `inputs`.

    The loss defaults to cross-entropy and the optimizer to plain SGD. `model.train()` or
    `.eval()` decides about batch norm and dropout; prediction always behaves as in eval mode.
    `update` says what trains: a Scheme, its name ("full", "bias+last", "last-3", ...) or its TOML
    file; without it, parameters train if they require a gradient and are in the optimizer. "auto",
    or a `whet.Search` that says more, finds the best scheme for `ram` by trying candidates on
    `data`: inputs and labels, or a loader of batches of them.
    `target` is where the program will run: "host", "cortex-m7", "cortex-m4", or "portable" for
    plain C11 anywhere.
    `ram` is a budget in bytes, or as "256K" or "1M": a program that needs more is not made, and the
    error says what would fit. On a microcontroller that is all the RAM there is, 256K by default,
    as `flash` is all the flash, 1M by default. `rematerialize`, or "elements", lets element-wise
    work be done twice where that saves memory, "layers" what layers compute as well (activation
    checkpointing); a budget that needs it switches it on by itself.
    `labels` is an example of what the loss compares with, needed only for losses whet does not
    know. `accumulate` adds the entry points `gradients` and `apply`; `clip_norm` limits the norm
    of all gradients. `without` names passes to leave out, to see what each is good for.
    `portable` takes kernels in plain C11 only; others use the vector extensions of gcc and clang.
    `dtype="int8"`, or a `whet.Int8` that says more, makes a program of integers from the model in
    eval mode; `calibrate` gives batches like those it will see, to find the range of activations.
    `frozen="int8"` stores weights that do not train in 8 bits if those make them up, as after
    `whet.tinytl.prepare(..., bits=8)`, and widens each where it is used.
    """
    if frozen not in (None, "int8"):
        raise SchemeError(f"there is no frozen={frozen!r}", try_='frozen="int8"')
    if rematerialize and rematerialize not in (True, "elements", "layers"):
        words = ("elements", "layers")
        raise SchemeError(f"there is no rematerialize={rematerialize!r}", try_=words)
    switches, machine = check_switches(without), this_machine()
    place = target_of(target, portable, ram, flash)
    twice = Recompute(layers=rematerialize == "layers")
    options = Options(
        check_name(name), accumulate, switches, twice if rematerialize else None, place, machine,
        narrow=frozen is not None,
    )  # fmt: skip
    budget = place.chip.ram if place.chip else None if ram is None else parse_bytes(ram)
    int8 = int8_of(dtype)
    if int8 and frozen:
        raise SchemeError('frozen="int8" is for a float program', why="all weights are bytes here")
    if is_search(update) and calibrate is not None:
        calibrate = list(calibrate)  # read again for candidates of another batch size
    if data is not None and not is_search(update):
        raise SchemeError("data= is for a search", try_='update="auto"')
    source = Source(model, loss, optimizer, inputs, labels, clip_norm, int8, calibrate)
    imported = source.imported()
    scheme = (
        search_scheme(update, source, imported, data, budget, options)
        if is_search(update)
        else choose_scheme(cast(Update | None, update), imported)
    )
    if budget is None:
        program = assemble(imported, scheme, options, source)
    else:
        program = fit(imported, scheme, options, budget, source)
    if frozen and not program.in_bytes:
        warnings.warn(
            "no frozen weight is stored in 8 bits: none is made up of them, or there is no room to "
            "widen one; whet.tinytl.prepare(..., bits=8) rounds weights",
            stacklevel=2,
        )
    if place.chip is not None:
        check_flash(program, place.chip)
    return program


def is_search(update: Any) -> bool:
    """Whether a scheme is to be found, and not given."""
    if update is None or isinstance(update, (str, os.PathLike, Scheme)):
        return update == AUTO
    from .selection import Search

    return isinstance(update, Search)


def search_scheme(
    update: Any, source: Source, imported: Model, data: Any, ram: int | None, options: Options
) -> Scheme:
    """The scheme that trains best within the budget, by what candidates do on the data."""
    from .selection import Search
    from .selection.choose import search_for

    for word, given in (("ram", ram), ("data", data)):
        if given is None:
            raise SchemeError(
                f'update="auto" needs {word}=',
                why="a scheme is chosen for a budget, by what it gains on data",
                try_=(
                    'compile(..., update="auto", ram="256K", data=loader)',
                    "whet search ... --ram 256K --data train.npz, on the command line",
                ),
            )
    assert ram is not None
    search = Search() if update == AUTO else update
    return search_for(source, imported, data, [ram], options, search).scheme


def target_of(name: str, portable: bool, ram: int | str | None, flash: int | str | None) -> Target:
    """The target asked for, with the memory asked for."""
    if hasattr(name, "shape"):
        raise TargetError(
            "target= names where the program runs",
            try_="labels=... for an example of what the loss compares with",
        )
    target = target_named(name)
    if target.chip is None:
        if flash is not None:
            raise TargetError(f"flash= means nothing to {name}", try_='target="cortex-m7"')
        return PORTABLE if portable else target
    chip = replace(
        target.chip,
        ram=target.chip.ram if ram is None else parse_bytes(ram),
        flash=target.chip.flash if flash is None else parse_bytes(flash),
    )
    return replace(target, isa=("ref",) if portable else target.isa, chip=chip)


def check_flash(program: Program, chip: Chip) -> None:
    """The arrays alone; the linker counts the code as well."""
    if (need := program.memory["flash"]) > chip.flash:
        raise BudgetError(
            f"{kib(need)} of weights exceed the flash of {kib(chip.flash)} by "
            f"{kib(need - chip.flash)}",
            why="frozen parameters, constants and initial values of what trains; code comes on top",
            try_='dtype="int8", frozen="int8", a smaller model, or a larger flash=',
        )


def compare(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    schemes: Sequence[Update],
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    labels: torch.Tensor | None = None,
    clip_norm: float | None = None,
    dtype: str | Int8 | None = None,
    calibrate: Iterable[Any] | None = None,
    without: Collection[str] = (),
) -> list[Comparison]:
    """The memory of a model under each scheme, and what every pass in `without` is good for.

    The first row is the first scheme with no pass at all: the plain program.
    """
    check_switches(without)
    if not schemes:
        raise SchemeError("there is no scheme to compare", try_='["full", "last"]')
    source = Source(model, loss, optimizer, inputs, labels, clip_norm, int8_of(dtype), calibrate)
    imported = source.imported()
    rows = []
    for i, update in enumerate(schemes):
        scheme = choose_scheme(update, imported)
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


def choose_scheme(update: Update | None, model: Model) -> Scheme:
    """The scheme asked for; without one, what PyTorch would train."""
    if isinstance(update, Scheme):
        return update
    if isinstance(update, os.PathLike):
        return Scheme.from_toml(Path(update))
    if isinstance(update, str):
        return named(update, parameters_of(model.training.graph))
    if update is not None:
        raise SchemeError(
            f"update={update!r} is no scheme",
            try_=('"bias+last"', '"sparse.toml"', 'whet.Scheme([whet.Rule("classifier.*")])'),
        )
    used = {p.name for p in parameters_of(model.training.graph)}
    trained = [name for name in model.trainable if name in used]
    if not trained:
        raise nothing_to_train()
    return Scheme.of(trained, name="requires_grad")


C_TYPES = frozenset(
    f"{word}_t"
    for word in "size ptrdiff wchar max_align intptr uintptr intmax uintmax clock time div ldiv "
    "lldiv fpos float double int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)
TAKEN = {
    "whet": "its functions would have the names of whet's kernels",
    **dict.fromkeys(("kernels", "Makefile"), "its folder has something else of that name"),
    **dict.fromkeys(("lib", "clean", "run"), "its Makefile has a target of that name"),
}


def check_name(name: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[a-z_]\w*", name, re.ASCII | re.IGNORECASE):
        raise FrontendError(
            f"the program's name {name!r} is not a C identifier",
            try_="letters, digits and underscores, and no digit first",
        )
    why = TAKEN.get(name)
    if f"{name}_t" in C_TYPES:
        why = f"its struct would be {name}_t, which is a type of C's own headers"
    if why is not None:
        raise FrontendError(f"the program cannot be called {name!r}", why=why)
    return name


def check_clip_norm(limit: float | None) -> float | None:
    if limit is not None and not 0 < float(limit) < float("inf"):
        raise FrontendError(f"clip_norm={limit} limits nothing", try_="a number above 0, or None")
    return None if limit is None else float(limit)


class Source:
    """What a program is compiled from, kept so that `check` can compare with PyTorch."""

    def __init__(
        self,
        model: torch.nn.Module,
        loss: Loss | None,
        optimizer: torch.optim.Optimizer | None,
        inputs: tuple[torch.Tensor, ...],
        labels: torch.Tensor | None,
        clip_norm: float | None,
        int8: Int8 | None = None,
        calibrate: Iterable[Any] | None = None,
    ) -> None:
        import torch

        check_inputs(model, inputs)
        loss = loss if loss is not None else torch.nn.CrossEntropyLoss()
        optimizer = optimizer if optimizer is not None else default_optimizer(model)
        self.model, self.loss, self.optimizer = copy.deepcopy((model, loss, optimizer))
        self.inputs, self.labels = inputs, labels
        self.clip_norm = check_clip_norm(clip_norm)
        self.int8, self.calibrate = int8, calibrate
        self.integers: Model | None = None
        if int8 is None:
            if calibrate is not None:
                raise FrontendError("a float program needs no calibration", try_='dtype="int8"')
        elif model.training:
            words = "batch norm is folded and nothing drops at random"
            warnings.warn(
                f"an int8 program is compiled in eval mode: {words}; model.eval() says so",
                stacklevel=3,
            )
            self.model.eval()

    def imported(self) -> Model:
        parts = (self.model, self.inputs, self.loss, self.optimizer, self.labels, self.clip_norm)
        if self.int8 is None:
            return import_model(*parts)
        if self.integers is None:  # once: the calibration data may be readable only once
            recipe = getattr(self.model, "whet_recipe", None)
            self.integers = integer_model(import_model(*parts), self.int8, self.calibrate, recipe)
        return self.integers
