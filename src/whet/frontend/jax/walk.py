"""Compute the outputs of a traced function: what is known by JAX, the rest by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import FrontendError, UnsupportedOps, WhetError
from ..torch.interpreted import Interpreted
from . import primitives as _fill_the_table  # noqa: F401
from .package import jax
from .rows import ROWS, Call, Value, as_tensor, is_known, place_of, type_of
from .rules import same, warn_of_rule

# Primitives that run another program, and where it is among their parameters.
CALLS = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr", "remat": "jaxpr", "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}  # fmt: skip
LONGEST = 1024  # steps of a scan, each of which becomes a part of the program
SEVERAL = ("optimization_barrier",)
PRINTS = ("debug_print", "debug_callback")  # compute nothing


class JaxWalk:
    """A function of parameters and inputs that `Interpreted` runs, traced once for each shape."""

    def __init__(
        self, function: Callable[..., Any], leaves: Sequence[str], shapes: Sequence[Any], tree: Any
    ) -> None:
        self.function, self.leaves, self.shapes, self.tree = function, leaves, shapes, tree
        self.traced: dict[Any, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> JaxWalk:
        return self

    def __call__(self, module: Interpreted, inputs: Sequence[Tensor]) -> Any:
        given = [*(module.tensor(name) for name in self.leaves), *inputs]
        double = any(x.dtype == torch.float64 for x in given)
        program = self.program([(tuple(x.shape), name_of(x.dtype)) for x in inputs])
        run = Run(torch.float64 if double else torch.float32)
        found = run.closed(program, given)
        outputs = [as_tensor(value, run.real) for value in found]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def program(self, inputs: Sequence[tuple[tuple[int, ...], str]]) -> Any:
        """The closed jaxpr for inputs of these shapes and types."""
        key = tuple(inputs)
        if key not in self.traced:
            package = jax()
            examples = [package.ShapeDtypeStruct(shape, kind) for shape, kind in inputs]

            def flat(leaves: list[Any], *values: Any) -> Any:
                return self.function(package.tree_util.tree_unflatten(self.tree, leaves), *values)

            try:
                self.traced[key] = package.make_jaxpr(flat)(list(self.shapes), *examples)
            except Exception as error:
                lines = str(error).strip().splitlines()
                why = f"{type(error).__name__}: {lines[0] if lines else ''}"
                raise FrontendError("JAX cannot trace the function", why=why[:300]) from error
        return self.traced[key]


def name_of(dtype: torch.dtype) -> str:
    """Of what JAX computes with by default: 32 bits."""
    name = str(dtype).removeprefix("torch.")
    return {"float64": "float32", "int64": "int32"}.get(name, name)


class Run:
    def __init__(self, real: torch.dtype) -> None:
        self.real = real

    def closed(self, program: Any, values: Sequence[Value]) -> list[Value]:
        return self.open(program.jaxpr, program.consts, values)

    def open(self, jaxpr: Any, consts: Sequence[Value], values: Sequence[Value]) -> list[Value]:
        env: dict[Any, Value] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, values, strict=True))
        for equation in jaxpr.eqns:
            operands = [value_of(v, env) for v in equation.invars]
            results = self.equation(equation, operands)
            env.update(zip(equation.outvars, results, strict=True))
        return [value_of(v, env) for v in jaxpr.outvars]

    def equation(self, equation: Any, values: list[Value]) -> Sequence[Value]:
        name = equation.primitive.name
        if name in CALLS:
            return self.call(equation, values)
        if name == "scan":
            return self.scan(equation, values)
        if name in SEVERAL:
            return values
        if name in PRINTS:
            return []
        if all(map(is_known, values)):
            found = equation.primitive.bind(*values, **equation.params)
            return found if equation.primitive.multiple_results else [found]
        try:
            found = ROWS[name](Call(equation, self.real), *values)
        except WhetError:
            raise
        except Exception as error:
            raise FrontendError(
                f"{name} of JAX cannot be computed with these operands",
                at=place_of(equation),
                why=f"{type(error).__name__}: {error}"[:300],
            ) from error
        return found if equation.primitive.multiple_results else [found]

    def call(self, equation: Any, values: Sequence[Value]) -> list[Value]:
        compute = same(equation)
        if compute and isinstance(values[0], Tensor) and values[0].is_floating_point():
            return [compute(values[0])]
        inner = equation.params[CALLS[equation.primitive.name]]
        if hasattr(inner, "consts"):
            return self.closed(inner, values)
        return self.open(inner, (), values)

    def scan(self, equation: Any, values: Sequence[Value]) -> list[Value]:
        """Its steps, one after the other."""
        params = equation.params
        consts, carried = params["num_consts"], params["num_carry"]
        fixed, carry = values[:consts], list(values[consts : consts + carried])
        over, length = values[consts + carried :], params["length"]
        steps = reversed(range(length)) if params["reverse"] else range(length)
        found: dict[int, list[Value]] = {}
        for i in steps:
            results = self.closed(params["jaxpr"], [*fixed, *carry, *(x[i] for x in over)])
            carry, found[i] = results[:carried], results[carried:]
        kept = [
            self.stacked([found[i][k] for i in range(length)], v.aval)
            for k, v in enumerate(equation.outvars[carried:])
        ]
        return [*carry, *kept]

    def stacked(self, parts: Sequence[Value], aval: Any) -> Tensor:
        if not parts:
            return torch.zeros(aval.shape, dtype=type_of(aval.dtype, self.real))
        return torch.stack([as_tensor(part, self.real) for part in parts])


def value_of(variable: Any, env: Mapping[Any, Value]) -> Value:
    return variable.val if hasattr(variable, "val") else env[variable]


def refuse_unknown(program: Any) -> None:
    """Say all primitives at once that have no row."""
    missing: dict[str, str] = {}
    look(program.jaxpr, [False] * len(program.jaxpr.invars), missing)
    if missing:
        raise UnsupportedOps(
            f"whet does not know {len(missing)} primitives of this JAX function: "
            + ", ".join(sorted(missing)),
            at=[f"{name} in {place}" for name, place in sorted(missing.items()) if place][:5],
            try_="docs/jax.md lists the primitives",
        )


def look(jaxpr: Any, given: Sequence[bool], missing: dict[str, str]) -> list[bool]:
    """Collect what has no row; `given` and the result say which values JAX will know."""
    known = dict.fromkeys(jaxpr.constvars, True)
    known.update(zip(jaxpr.invars, given, strict=True))
    for equation in jaxpr.eqns:
        flags = [hasattr(v, "val") or known[v] for v in equation.invars]
        known.update(zip(equation.outvars, looked(equation, flags, missing), strict=True))
    return [hasattr(v, "val") or known[v] for v in jaxpr.outvars]


def looked(equation: Any, flags: list[bool], missing: dict[str, str]) -> Sequence[bool]:
    name = equation.primitive.name
    if name in CALLS:
        inner = equation.params[CALLS[name]]
        if name.startswith("custom_") and not all(flags):
            warn_of_rule(equation)
        return look(getattr(inner, "jaxpr", inner), flags, missing)
    if name == "scan":
        return look_at_scan(equation, flags, missing)
    if name in SEVERAL:
        return flags
    if name in PRINTS:
        return []
    everything = all(flags)
    if not everything and name not in ROWS:
        missing.setdefault(name, place_of(equation))
    return [everything] * len(equation.outvars)


def look_at_scan(equation: Any, flags: list[bool], missing: dict[str, str]) -> Sequence[bool]:
    params = equation.params
    if params["length"] > LONGEST:
        raise UnsupportedOps(
            f"scan of JAX with {params['length']:,} steps",
            at=place_of(equation),
            why=f"each becomes a part of the program, and whet takes {LONGEST:,} at most",
        )
    inner = params["jaxpr"].jaxpr
    fixed = params["num_consts"]
    start = [*flags[:fixed], *([False] * (len(flags) - fixed))]
    look(inner, start, missing)
    return [False] * len(equation.outvars)
