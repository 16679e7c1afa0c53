"""Independent jobs on this machine's cores or on a Ray cluster; the results are the same."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...errors import WhetError, either, option

Job = TypeVar("Job")
LOCAL = "local"  # a Ray cluster of this machine alone, started for the purpose


class Task(Protocol):
    """What does the jobs; sent to every worker once."""

    def run(self, job: Any) -> Any: ...


@dataclass(frozen=True)
class Engine:
    """Where jobs run: in `workers` processes here, or on the Ray cluster at an address."""

    workers: int = 1
    ray: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.workers, int) or self.workers < 1:
            raise WhetError(f"workers={self.workers!r} is no number of processes", try_="2")

    def results(self, task: Task, jobs: Sequence[Job]) -> Iterator[tuple[Job, Any]]:
        """Every job with its result, as they are done."""
        if not jobs:
            return iter(())
        if self.ray is not None:
            return on_ray(task, jobs, self.ray, self.workers)
        if self.workers == 1:
            return ((job, task.run(job)) for job in jobs)
        return in_processes(task, jobs, self.workers)


def in_processes(task: Task, jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Any]]:
    """Each worker has a stretch of the jobs, as neighbours share what they begin with.

    One that is done with its own takes from the end of the longest that is left. The task goes by a
    file: who starts a process and sends it much waits for ever if it ends before it has read that.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "task")
        path.write_bytes(pickle.dumps(task))
        yield from in_turns(path, jobs, workers)


def in_turns(task: Path, jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Any]]:
    context = multiprocessing.get_context("spawn")  # a copy of a process with threads may hang
    shares = stretches(jobs, workers)
    others = {child.pid for child in multiprocessing.active_children()}
    pools = [ProcessPoolExecutor(1, context, receive, (task,)) for _ in shares]
    try:
        waiting = {pool.submit(do, job := share.popleft()): (pool, share, job)
                   for pool, share in zip(pools, shares, strict=True)}  # fmt: skip
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                pool, share, job = waiting.pop(future)
                if (following := next_of(share, shares)) is not None:
                    waiting[pool.submit(do, following)] = (pool, share, following)
                yield job, future.result()
    except BrokenProcessPool as error:
        stop_all_but(others)
        raise WhetError(
            "a worker process ended",
            why="it ran out of memory, or the script that started it does so again in each of them",
            try_=(
                option("workers", 1),
                either('if __name__ == "__main__": around what the script does', ""),
            ),
        ) from error
    except BaseException:  # stopped: what is half done is of no use
        stop_all_but(others)
        raise
    finally:
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)


def stop_all_but(others: Collection[int | None]) -> None:
    """End the worker processes, but not those that were there before."""
    for child in multiprocessing.active_children():
        if child.pid not in others:
            child.terminate()


def stretches(jobs: Sequence[Job], workers: int) -> list[deque[Job]]:
    """Cut into as many parts as there are workers, each of neighbours and none of them empty."""
    count = min(workers, len(jobs))
    ends = [len(jobs) * i // count for i in range(count + 1)]
    return [deque(jobs[start:end]) for start, end in pairwise(ends)]


def next_of(own: deque[Job], shares: Sequence[deque[Job]]) -> Job | None:
    """The next of one's own, then the last of whoever has most; None if nobody has any."""
    if own:
        return own.popleft()
    longest = max(shares, key=len)
    return longest.pop() if longest else None


_task: list[Task] = []  # of a worker process


def receive(task: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it will see to that
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _task[:] = [pickle.loads(task.read_bytes())]  # of the process that started this one


def do(job: Any) -> Any:
    return _task[0].run(job)


def on_ray(
    task: Task, jobs: Sequence[Job], address: str, workers: int
) -> Iterator[tuple[Job, Any]]:
    check_address(address)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise WhetError(
            "Ray is not installed", try_=('pip install "whet[ray]"', option("workers", 2))
        ) from error
    started = not ray.is_initialized()
    if started:
        connect(ray, address, workers)
    try:
        shared = ray.put(task)
        remote = ray.remote(num_cpus=1, max_retries=3)(run_there)
        waiting = {remote.remote(shared, job): job for job in jobs}
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            for reference in done:
                yield waiting.pop(reference), ray.get(reference)
    finally:
        if started:
            ray.shutdown()


def connect(ray: Any, address: str, workers: int) -> None:
    words: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False}
    if address == LOCAL:
        words["num_cpus"] = workers
    else:
        words = {"address": address, "log_to_driver": False}
    try:
        ray.init(**words)
    except Exception as error:
        raise no_cluster(address, str(error).partition("\n")[0]) from error


def check_address(address: str) -> None:
    """Ray itself waits for minutes for a cluster that is not there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise no_cluster(address, str(error)) from error


def no_cluster(address: str, why: str) -> WhetError:
    return WhetError(
        f"there is no Ray cluster at {address}",
        why=why,
        try_=("ray start --head", f"{option('ray', LOCAL)} starts one for as long as it takes"),
    )


def run_there(task: Task, job: Any) -> Any:
    return task.run(job)
