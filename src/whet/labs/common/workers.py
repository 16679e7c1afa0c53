"""Independent jobs in this process, in worker processes, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from ...errors import WhetError, either, option

Job = TypeVar("Job")
Task = Callable[[Any], Any]  # does a job; sent to every worker once
LOCAL = "local"  # a Ray cluster of this machine alone, started for the purpose


@dataclass(frozen=True)
class Workers:
    """Processes of this machine, or the Ray cluster at an address."""

    count: int = 1
    ray: str | None = None

    def results(self, task: Task, jobs: Sequence[Job]) -> Iterator[tuple[Job, Any]]:
        """Every job with its result, in the order in which they are done."""
        if not jobs:
            return iter(())
        if self.ray is not None:
            return on_ray(task, jobs, self.ray, self.count)
        if self.count == 1:
            return ((job, task(job)) for job in jobs)
        return in_processes(task, jobs, self.count)


def in_processes(task: Task, jobs: Sequence[Job], count: int) -> Iterator[tuple[Job, Any]]:
    """Each process has its own stretch of the jobs, as neighbours share features of frozen layers.

    One that is done takes from the end of the longest stretch. The task goes by a file: sending
    much to a process hangs if it ends before it has read that.
    """
    context = multiprocessing.get_context("spawn")  # forking a process with threads may hang
    own = stretches(jobs, count)
    others = {child.pid for child in multiprocessing.active_children()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "task")
        path.write_bytes(pickle.dumps(task))
        pools = [ProcessPoolExecutor(1, context, receive, (path,)) for _ in own]
        try:
            waiting = {pool.submit(run_received, job := jobs_.popleft()): (pool, jobs_, job)
                       for pool, jobs_ in zip(pools, own, strict=True)}  # fmt: skip
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    pool, jobs_, job = waiting.pop(future)
                    if (following := next_job(jobs_, own)) is not None:
                        waiting[pool.submit(run_received, following)] = (pool, jobs_, following)
                    yield job, future.result()
        except BaseException as error:
            for child in multiprocessing.active_children():
                if child.pid not in others:
                    child.terminate()
            if isinstance(error, BrokenProcessPool):
                raise worker_ended() from error
            raise
        finally:
            for pool in pools:
                pool.shutdown(wait=True, cancel_futures=True)


def worker_ended() -> WhetError:
    guard = either('if __name__ == "__main__": around what the script does', "")
    return WhetError(
        "a worker process ended",
        why="it ran out of memory, or the script that started it does so again in each of them",
        try_=(option("workers", 1), guard),
    )


def stretches(jobs: Sequence[Job], count: int) -> list[deque[Job]]:
    """Neighbours in up to `count` parts, none of them empty."""
    count = min(count, len(jobs))
    ends = [len(jobs) * i // count for i in range(count + 1)]
    return [deque(jobs[start:end]) for start, end in pairwise(ends)]


def next_job(own: deque[Job], every: Sequence[deque[Job]]) -> Job | None:
    """The next of one's own, then the last of the longest stretch."""
    if own:
        return own.popleft()
    longest = max(every, key=len)
    return longest.pop() if longest else None


_task: list[Task] = []  # of a worker process


def receive(path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _task[:] = [pickle.loads(path.read_bytes())]  # written by the parent


def run_received(job: Any) -> Any:
    return _task[0](job)


def on_ray(task: Task, jobs: Sequence[Job], address: str, count: int) -> Iterator[tuple[Job, Any]]:
    try:
        import ray
    except ModuleNotFoundError as error:
        tries = ("pip install ray", option("workers", 2))
        raise WhetError("Ray is not installed", try_=tries) from error
    started = not ray.is_initialized()
    if started:
        connect(ray, address, count)
    try:
        shared = ray.put(task)
        remote = ray.remote(num_cpus=1, max_retries=3)(run_given)
        waiting = {remote.remote(shared, job): job for job in jobs}
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            for reference in done:
                yield waiting.pop(reference), ray.get(reference)
    finally:
        if started:
            ray.shutdown()


def run_given(task: Task, job: Any) -> Any:
    return task(job)


def connect(ray: Any, address: str, count: int) -> None:
    where: dict[str, Any] = {"num_cpus": count, "include_dashboard": False}
    if address != LOCAL:
        where = {"address": address}
    try:
        host, _, port = address.rpartition(":")
        if host and port.isdigit() and "/" not in host:  # Ray itself would wait for minutes
            socket.create_connection((host, int(port)), timeout=5).close()
        ray.init(log_to_driver=False, **where)
    except Exception as error:
        raise WhetError(
            f"there is no Ray cluster at {address}",
            why=str(error).partition("\n")[0],
            try_=("ray start --head", f"{option('ray', LOCAL)} starts one for as long as it takes"),
        ) from error
