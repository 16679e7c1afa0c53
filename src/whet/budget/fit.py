"""A memory budget: keep it, or say by how much it is missed and what would keep it."""

from __future__ import annotations

from typing import Any

from ..emit.program import Program
from ..errors import BudgetError, either, option
from ..frontend.model import Model
from ..ir.printing import summary
from ..pipeline import Options
from ..report import kib
from ..report.program import lifetime, live_at_peak, others
from ..scheme import Scheme
from .hints import Advisor, Hint, typed
from .smallest import smallest


def fit(model: Model, scheme: Scheme, options: Options, ram: int, source: Any) -> Program:
    """A program within the budget, or an error that says what would fit."""
    program = smallest(model, scheme, options, ram, source)
    if program.memory["ram"] <= ram:
        return program
    advisor = Advisor(model, scheme, options, ram, source)
    hints = advisor.hints()
    raise over_budget(program, ram, hints or [advisor.least()])


def over_budget(program: Program, ram: int, hints: list[Hint]) -> BudgetError:
    """`hints` fit, or there is just one that does not: the least that anything takes."""
    memory = program.memory
    entry, plan = max(program.plans.items(), key=lambda item: item[1].arena)
    node = plan.graph.nodes[min(plan.peak, len(plan.graph.nodes) - 1)]
    parts = {"arena": "arena", "trained": "trained parameters", "state": "optimizer state",
             "io": program.target.io_words, "stack": "stack"}  # fmt: skip
    live = live_at_peak(plan)
    rest = sum(b.bytes for b in live[3:])
    why = [", ".join(f"{kib(memory[key])} {word}" for key, word in parts.items() if memory[key])]
    why += [f"{kib(b.bytes):>10}  {b.values[0]}, {lifetime(plan, b)}" for b in live[:3]]
    why += [f"{kib(rest):>10}  in {others(len(live) - 3)}"] if rest else []
    tries = [str(hint) for hint in hints]
    if not all(map(typed, (hint.change for hint in hints))):
        first = next(i for i, hint in enumerate(hints) if not typed(hint.change))
        where = either(f'error.hints[{first}].change["update"]', "error.hints, in Python")
        tries.append(f"{'':>10}  update= of {hints[first].words!r} is {where}")
    if hints[0].ram > ram:
        tries = [f"nothing fits; the least is {kib(hints[0].ram)}, by {hints[0].words}"]
    error = BudgetError(
        f"{kib(memory['ram'])} of RAM exceed the budget of {kib(ram)} by "
        f"{kib(memory['ram'] - ram)}",
        at=(summary(node), f"{entry}, {node.loc}"),
        why=why,
        try_=tries,
    )
    error.hints = tuple(hints)
    return error


def check_flash(program: Program) -> None:
    """Whether the arrays fit, where there is flash; the linker counts the code as well."""
    need, flash = program.memory["flash"], program.target.flash
    if flash is not None and need > flash:
        raise BudgetError(
            f"{kib(need)} of weights exceed the flash of {kib(flash)} by {kib(need - flash)}",
            why="frozen parameters, constants and initial values of what trains; code comes on top",
            try_=f"{option('flash', f'{-(-need // 1024)}K')} or more, or a smaller model",
        )
