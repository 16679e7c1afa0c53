"""The program for a budget: values are computed twice only where the budget needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..emit.program import Program
from ..frontend.model import Model
from ..passes import Recompute
from ..pipeline import Options, assemble
from ..scheme import Scheme

GAPS = 1024  # bytes that an arena whose parts begin with lines of the cache may need on top


def smallest(
    model: Model,
    scheme: Scheme,
    options: Options,
    ram: int,
    source: Any = None,
    quick: bool = False,
) -> Program:
    """The program for a budget, or the smallest one if none keeps it.

    Things are computed twice only if they have to be: element-wise work before layers, and until
    the budget is met before as far as it goes. A budget of 0 asks for the smallest one. `quick`
    gives up if prediction alone takes too much, which computing things twice hardly changes.
    """
    options = replace(options, grow=False)
    program = least = assemble(model, scheme, options, source)
    rest = program.memory["ram"] - program.memory["arena"]
    if quick and 0 < ram < rest + program.plans["predict"].lower_bound:
        return program
    enough = max(0, ram - rest - (GAPS if program.in_lines else 0))
    for limit in dict.fromkeys((enough, 0)):
        for layers in (False, True):
            if least.memory["ram"] <= ram:
                return least
            again = replace(options, recompute=Recompute(layers, limit))
            least = min(least, assemble(model, scheme, again, source), key=ram_of)
        if least.memory["lower_bound"] > enough:  # it has gone as far as it goes
            return least
    return least


def ram_of(program: Program) -> int:
    return program.memory["ram"]
