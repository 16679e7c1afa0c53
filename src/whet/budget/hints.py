"""What would keep a budget that is missed: changes that were compiled, the gentlest first.

A change is what to tell `compile` instead, by these keys: `update`, a scheme; `batch`, a number of
samples; `gradients`, the form of those of integer layers; `optimizer`, which can be "sgd" for plain
SGD without state.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..emit.program import Program
from ..errors import WhetError, either, option
from ..frontend.model import Model
from ..ops.optimizers import SGD
from ..pipeline import Options
from ..quantize import Int8
from ..report import kib
from ..scheme import Chosen, Parameter, Rule, Scheme, blocks, parameters_of, preset
from ..training import UpdateRule
from .smallest import smallest

SHOWN = 5
NARROWER = {"float32": ("int16", "int8"), "int16": ("int8",), "int8": ()}  # gradients
SHARES = {2: "half", 4: "a quarter", 8: "an eighth"}

Change = Mapping[str, Any]
Fitting = tuple[Change, Program]


@dataclass(frozen=True)
class Hint:
    """A change, how to make it, and the bytes of RAM that the program then takes."""

    change: Change
    words: str
    ram: int

    def __str__(self) -> str:
        return f"{kib(self.ram):>10}  {self.words}"


@dataclass
class Advisor:
    """Looks for changes with which a model keeps a budget; each is compiled as it would be."""

    model: Model
    scheme: Scheme
    options: Options
    ram: int
    source: Any  # of the model, to import it with a smaller batch
    batches: dict[int, Model | None] = field(default_factory=dict)

    def hints(self) -> list[Hint]:
        """The best change of each kind that fits: first those that train the same parameters, then
        fewer and fewer; if none does, all of the first kinds together."""
        found = [*filter(None, map(self.best, self.cheaper()))]
        found += sorted(filter(None, map(self.best, self.fewer())), key=trained, reverse=True)
        if not found:
            base = self.cheapest()
            kinds = [[base], *([base | {**change} for change in kind] for kind in self.presets())]
            found = [*filter(None, map(self.best, kinds))]
        by_ram: dict[int, Change] = {}
        for change, program in found:
            ram = program.memory["ram"]
            if ram not in by_ram or (typed(change) and not typed(by_ram[ram])):
                by_ram[ram] = change
        return [Hint(change, self.words(change), ram) for ram, change in by_ram.items()][:SHOWN]

    def least(self) -> Hint:
        """The change with the smallest program of all."""
        last, cheapest = {"update": preset("last", self.parameters)}, self.cheapest()
        changes = (last, cheapest | last, cheapest)
        tries = ((change, self.compiled(change, 0)) for change in changes if change)
        sizes = [(program.memory["ram"], change) for change, program in tries if program]
        ram, change = min(sizes, key=lambda pair: pair[0])
        return Hint(change, self.words(change), ram)

    # Kinds of changes, each a list from the gentlest on -------------------------------------------

    def cheaper(self) -> Iterator[list[Change]]:
        """The same parameters train."""
        rules = self.model.rules
        if rules.integer_rules.units:
            yield [{"gradients": form} for form in NARROWER[rules.integer_rules.gradients]]
        if any(rule.moments for rule in rules.rules.values()):
            yield [{"optimizer": "sgd"}]
        size = self.source.batch if self.model.independent else 1
        yield [{"batch": size >> n} for n in range(1, size.bit_length())]

    def cheapest(self) -> dict[str, Any]:
        """The last change of each of these kinds, together."""
        last = (kind[-1] for kind in self.cheaper() if kind)
        found = {key: value for change in last for key, value in change.items()}
        if "batch" in found and self.with_batch(found["batch"]) is None:
            del found["batch"]
        return found

    def fewer(self) -> Iterator[list[Change]]:
        """Fewer parameters train, or parts of them."""
        parameters, chosen = self.parameters, self.scheme.resolve(self.parameters)
        layers = sorted({p.layer for p in parameters if p.name in chosen})
        yield [self.behind(layer, chosen) for layer in layers[1:]]
        sliced = {
            p.name: p.channels
            for p in parameters
            if p.channels > 1 and p.name in chosen and not isinstance(chosen[p.name], str)
        }
        if sliced:
            yield [self.thinned(chosen, sliced, share) for share in SHARES]
        yield from self.presets()

    def presets(self) -> Iterator[list[Change]]:
        """Schemes that every model has."""
        names = [f"last-{k}" for k in range(len(blocks(self.parameters)), 0, -1)]
        for kind in (names, ["bias+last"], ["last"]):
            yield [{"update": preset(name, self.parameters)} for name in kind]

    def behind(self, layer: int, chosen: Chosen) -> Change:
        """What trained before, from a layer on."""
        names = [p.name for p in self.parameters if p.layer >= layer and p.name in chosen]
        rest = {name: channels for name, channels in chosen.items() if name in names}
        return named(rest, f"the same from {names[0]} on")

    def thinned(self, chosen: Chosen, sliced: Mapping[str, int], share: int) -> Change:
        """The first of the channels that train already, fewer by a factor; at least one."""
        found = dict(chosen)
        for name, channels in sliced.items():
            own = found[name]
            have = own if isinstance(own, tuple) else tuple(range(channels))
            found[name] = have[: max(1, len(have) // share)]
        return named(found, f"{SHARES[share]} of the input channels of every weight")

    @property
    def parameters(self) -> list[Parameter]:
        return parameters_of(self.model.training.graph)

    # Trying them ----------------------------------------------------------------------------------

    def best(self, kind: Sequence[Change]) -> Fitting | None:
        """The first of these changes that fits, as those behind it need less memory."""
        found: Fitting | None = None
        low, high = 0, len(kind)
        while low < high:
            middle = (low + high) // 2
            program = self.fitting(kind[middle])
            if program is None:
                low = middle + 1
            else:
                found, high = (kind[middle], program), middle
        return found

    def fitting(self, change: Change) -> Program | None:
        program = self.compiled(change, self.ram)
        if program is None or program.memory["ram"] > self.ram:
            return None
        flash = self.options.target.flash
        return program if flash is None or program.memory["flash"] <= flash else None

    def compiled(self, change: Change, ram: int) -> Program | None:
        """The program with this change; None if the model does not allow it."""
        model = self.model
        if "batch" in change:
            smaller = self.with_batch(change["batch"])
            if smaller is None:
                return None
            model = smaller
        if "gradients" in change:
            whole = replace(model.rules.integer_rules, gradients=change["gradients"])
            model = replace(model, rules=replace(model.rules, integer_rules=whole))
        if "optimizer" in change:
            model = stateless(model)
        try:
            scheme = change.get("update", self.scheme)
            options = replace(self.options, single=False)  # which takes no more than a batch does
            return smallest(model, scheme, options, ram, quick=True)
        except WhetError:  # of a weight with another use, which needs it whole; of an idle layer
            return None

    def with_batch(self, size: int) -> Model | None:
        if size not in self.batches:
            self.batches[size] = None
            with suppress(WhetError), warnings.catch_warnings():  # it may take its batch alone
                warnings.simplefilter("ignore")  # what was said already
                self.batches[size] = self.source.with_batch(size, self.model.recipe)
        return self.batches[size]

    # In words -------------------------------------------------------------------------------------

    def words(self, change: Change) -> str:
        """How a user makes the change."""
        parts = []
        if "update" in change:
            name = change["update"].name
            parts.append(option("update", name) if typed(change) else name)
        if "gradients" in change:
            form = change["gradients"]
            int8 = replace(self.source.int8, gradients=form)
            parts.append(either(f"dtype={python(int8)}", f"--int8 gradients={form}"))
        if "optimizer" in change:
            parts.append(either("plain SGD, which has no state", "--optimizer sgd --momentum 0"))
        if "batch" in change:
            shapes = ((change["batch"], *x.shape[1:]) for x in self.source.inputs)
            shown = " ".join(f"--input {','.join(map(str, shape))}" for shape in shapes)
            parts.append(either(f"a batch of {change['batch']}", shown))
        return " and ".join(parts)


def python(int8: Int8) -> str:
    """What makes it, the defaults left out."""
    pairs = ((f.name, getattr(int8, f.name), f.default) for f in fields(int8))
    return f"whet.Int8({', '.join(f'{n}={v!r}' for n, v, usual in pairs if v != usual)})"


def named(chosen: Chosen, name: str) -> Change:
    """A change to exactly these parameters and channels."""
    pairs = zip(Scheme.of(chosen).rules, chosen.values(), strict=True)
    return {"update": Scheme([Rule.of(rule.params, share) for rule, share in pairs], name=name)}


def typed(change: Change) -> bool:
    """Whether its scheme has a name that `update` takes."""
    return "update" not in change or " " not in change["update"].name


def trained(found: Fitting) -> int:
    return found[1].memory["trained"]


def stateless(model: Model) -> Model:
    def plain(rule: UpdateRule) -> UpdateRule:
        kept = {f.name for f in fields(SGD.update.Attrs)}
        return UpdateRule(SGD, {k: v for k, v in rule.attrs.items() if k in kept})

    rules = {name: plain(rule) for name, rule in model.rules.rules.items()}
    return replace(model, rules=replace(model.rules, rules=rules))
