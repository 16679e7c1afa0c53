"""Many clients on one machine: in this process, or as nodes of Flower's simulation on Ray."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import WhetError
from ...runtime import Trainer
from ..common.data import Array
from .client import client_app, flower
from .local import Arrays, Client, ClientData, Local
from .loop import History, Round, Watch, check, federate, judged, size
from .server import server_app, start

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Result

ENGINES = ("loop", "flower")
PARTS = ("x", "y", "x_test", "y_test")


def simulate(
    program: Any,
    clients: Sequence[Any],
    rounds: int = 3,
    local: Local = Local(),  # noqa: B008
    *,
    strategy: str = "fedavg",
    test: tuple[Array, Array] | None = None,
    engine: str = "loop",
    fraction: float = 1.0,
    watch: Watch | None = None,
    **options: Any,
) -> History:
    """Train a program with these clients; the accuracy, the loss and the bytes of every round.

    The engine `loop` runs all clients in this process, one after the other: FedAvg and FedProx by
    `federate`, other strategies by Flower (extra `fl`) without its network. The engine `flower`
    runs them as nodes of Flower's simulation (extra `fl-sim`). `options` are those of Flower's
    strategy.
    """
    check(clients, rounds, fraction)
    if engine not in ENGINES:
        raise WhetError(f"there is no engine {engine!r}", try_=", ".join(ENGINES))
    if engine == "loop" and strategy in ("fedavg", "fedprox") and not options:
        local = local if strategy == "fedprox" else replace(local, mu=0.0)
        return federate(program, clients, rounds, local, test=test, fraction=fraction, watch=watch)
    flower()
    report = Report(program, clients, test, fraction, watch)
    count = max(1, int(fraction * len(clients)))
    options = {
        "fraction_train": fraction, "fraction_evaluate": 0.0, "min_train_nodes": count,
        "min_available_nodes": len(clients), **options,
    }  # fmt: skip
    asked = Simulation(program, clients, rounds, local, strategy, report, options)
    with quiet():
        result = asked.in_process() if engine == "loop" else asked.on_ray()
    return report.history(result)


@contextmanager
def quiet() -> Iterator[None]:
    """Flower logs every round in many lines; `watch` is told of each instead."""
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


class Report:
    """Judges the global model after each round, where Flower's server runs."""

    def __init__(
        self,
        program: Any,
        clients: Sequence[Any],
        test: tuple[Array, Array] | None,
        fraction: float,
        watch: Watch | None,
    ) -> None:
        self.client = Client(program)
        self.initial = self.client.give()
        self.clients, self.test, self.watch = clients, test, watch
        weight = size(self.initial) * max(1, int(fraction * len(clients)))
        # Bytes until a round, sent and received. A simulation of Flower shows none; what travels
        # has the same size in both directions.
        self.traffic: Callable[[int], tuple[int, int]] = lambda turn: (turn * weight,) * 2
        self.rounds: list[Round] = []

    def __call__(self, turn: int, arrays: Arrays) -> dict[str, float]:
        score = judged(self.client, arrays, self.clients, self.test)
        traffic = self.traffic(turn)
        self.rounds.append(Round(turn, score.accuracy, score.loss, float("nan"), *traffic))
        if self.watch is not None:
            self.watch(self.rounds[-1])
        return {"accuracy": score.accuracy, "loss": score.loss}

    def history(self, result: Result) -> History:
        losses = {
            turn: float(metrics["train_loss"])  # type: ignore[arg-type]
            for turn, metrics in result.train_metrics_clientapp.items()
        }
        rounds = (replace(r, train_loss=losses.get(r.number, r.train_loss)) for r in self.rounds)
        arrays = {name: array.numpy() for name, array in result.arrays.items()}
        return History(arrays or self.initial, tuple(rounds))


@dataclass(frozen=True)
class Simulation:
    """What Flower is told, whichever way its clients run."""

    program: Any
    clients: Sequence[Any]
    rounds: int
    local: Local
    strategy: str
    report: Report
    options: dict[str, Any]

    def in_process(self) -> Result:
        """Flower's strategy with clients that answer one after the other."""
        from .grid import LocalGrid

        report = self.report
        app = client_app(report.client.trainer, lambda k, _: self.clients[k])
        grid = LocalGrid(app, len(self.clients))
        report.traffic = lambda turn: (grid.sent, grid.received)
        return start(
            grid, self.strategy, report.initial, self.rounds, local=self.local, evaluate=report,
            config={}, **self.options,
        )  # fmt: skip

    def on_ray(self) -> Result:
        """Flower's simulation: each node gets its program and its samples from files."""
        os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray  # noqa: F401
            from flwr.simulation import run_simulation
        except ModuleNotFoundError as error:
            package = 'pip install "flwr[simulation]>=1.41,<1.42"'
            raise WhetError("Ray is not installed", try_=package) from error
        results: list[Result] = []
        with tempfile.TemporaryDirectory(prefix="whet-") as folder:
            for k, client in enumerate(self.clients):
                for part in PARTS:
                    np.save(Path(folder, f"{k}-{part}.npy"), getattr(client, part))
            server = server_app(
                self.strategy, self.report.initial, self.rounds, local=self.local,
                evaluate=self.report, finished=results.append, **self.options,
            )  # fmt: skip
            app = client_app(stored(self.program, Path(folder)), Files(folder))
            resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
            run_simulation(server, app, len(self.clients), backend_config=resources)  # type: ignore[arg-type]
        if not results:
            raise WhetError("Flower's simulation ended without a result", why="its log says why")
        return results[0]


def stored(program: Any, folder: Path) -> Path:
    """Where the program is saved: a node loads it there, as on a device."""
    if isinstance(program, (str, Path)):
        return Path(program).absolute()
    compiled = program.program if isinstance(program, Trainer) else program
    saved: Path = compiled.save(folder / "net.whet")
    return saved


class Files:
    """The samples of a client, read where it runs."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, number: int, count: int) -> ClientData:
        paths = (Path(self.folder, f"{number}-{part}.npy") for part in PARTS)
        return ClientData(*(np.load(path, allow_pickle=False) for path in paths))
