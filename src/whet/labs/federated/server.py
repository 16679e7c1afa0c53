"""The server of a federation as a Flower app: Flower's strategies, whet's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...runtime import trained
from .client import flower, record
from .guard import Guard
from .guarded import guarded, is_guarded
from .local import Arrays, Local, opened

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import Result, Strategy

Evaluate = Callable[[int, Arrays], Mapping[str, float] | None]


def server_app(
    strategy: str | Strategy = "fedavg",
    initial: Any = None,
    rounds: int = 3,
    *,
    local: Local = Local(),  # noqa: B008
    evaluate: Evaluate | None = None,
    guard: Guard | None = None,
    finished: Callable[[Result], None] | None = None,
    timeout: float = 3600.0,
    **options: Any,
) -> ServerApp:
    """A Flower ServerApp.

    `strategy` is one of Flower's, or a name: fedavg, fedprox, fedadam, krum, trimmed, with Flower's
    `options` for it. `initial` are the first parameters: arrays by name, or the program that the
    clients train, compiled or as the path of a saved one. `local` is sent to the clients; `rounds`
    and the words of `local` may be set in the configuration of the app, as `num-server-rounds`,
    `local-epochs`, `lr` and `proximal-mu`. `evaluate(round, arrays)` gives metrics of the global
    model. Replies pass `guard` before they count; the default, unless the strategy has one,
    refuses what does not fit the model or is not finite. `finished` takes the result.
    """
    flwr = flower()
    app: ServerApp = flwr.serverapp.ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        result = start(
            grid, strategy, initial, rounds, local=local, evaluate=evaluate, guard=guard,
            timeout=timeout, config=context.run_config, **options,
        )  # fmt: skip
        if finished is not None:
            finished(result)

    return app


def start(
    grid: Grid,
    strategy: str | Strategy,
    initial: Any,
    rounds: int,
    *,
    local: Local,
    evaluate: Evaluate | None,
    guard: Guard | None = None,
    timeout: float = 3600.0,
    config: Mapping[str, Any],
    **options: Any,
) -> Result:
    """Run a strategy on a grid."""
    from .strategies import strategy_of

    flwr = flower()
    words = Local.of(config, local.words())
    if strategy == "fedprox":
        options = {"proximal_mu": words.mu, **options}
    made = strategy_of(strategy, **options)
    if guard is not None or not is_guarded(made):
        made = guarded(made, guard or Guard())

    def evaluated(turn: int, arrays: Any) -> Any:
        assert evaluate is not None
        found = evaluate(turn, {name: array.numpy() for name, array in arrays.items()})
        return None if found is None else flwr.app.MetricRecord(dict(found))

    result: Result = made.start(
        grid=grid,
        initial_arrays=record(first(initial)),
        num_rounds=int(config.get("num-server-rounds", rounds)),
        timeout=timeout,
        train_config=flwr.app.ConfigRecord(words.words()),
        evaluate_fn=evaluated if evaluate is not None else None,
    )
    return result


def first(initial: Any) -> Mapping[str, Any]:
    """Arrays by name, as given or of a program as it was compiled."""
    if isinstance(initial, Mapping):
        return initial
    return trained(opened(initial))
