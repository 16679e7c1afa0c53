"""Jobs in processes: shares of neighbours, and ends that are noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whet.errors import WhetError
from whet.labs.common.workers import Workers, next_job, stretches


def test_neighbours_go_to_one_worker() -> None:
    """A worker that is done takes from the end of the longest share."""
    shares = stretches(range(7), 3)
    assert [list(share) for share in shares] == [[0, 1], [2, 3], [4, 5, 6]]
    assert [next_job(shares[0], shares) for _ in range(8)] == [0, 1, 6, 3, 5, 2, 4, None]
    assert [list(share) for share in stretches(range(2), 5)] == [[0], [1]]


def square(job: int) -> int:
    return job**2


@pytest.mark.parametrize("count", [1, 2])
def test_every_job_has_its_result(count: int) -> None:
    assert dict(Workers(count).results(square, range(5))) == {i: i**2 for i in range(5)}
    assert list(Workers(count).results(square, [])) == []


def dying(job: int) -> int:
    """The first job ends its process, others take a minute."""
    if job == 0:
        os._exit(1)
    time.sleep(60)
    return job


def test_a_worker_that_dies_ends_the_others() -> None:
    began = time.monotonic()
    with pytest.raises(WhetError, match="a worker process ended"):
        list(Workers(2).results(dying, [0, 1]))
    assert time.monotonic() - began < 50


UNGUARDED = """
from whet.labs.common.workers import Workers

class Large:
    def __init__(self):
        self.data = bytes(1 << 20)  # more than a pipe holds

    def __call__(self, job):
        return job

print(list(Workers(2).results(Large(), [0, 1])))
"""


def test_a_script_that_starts_itself_again_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0 and "a worker process ended" in done.stderr
    assert "__main__" in done.stderr


def test_an_address_without_a_cluster_is_refused_at_once() -> None:
    pytest.importorskip("ray")
    with pytest.raises(WhetError, match="no Ray cluster at 127"):
        list(Workers(1, ray="127.0.0.1:1").results(square, [1]))
