"""A gateway that serves in a thread, with a device in this process or on an emulated board."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clients
import whet
from whet.federated import Gateway

BLUNT = whet.Send()  # everything, as it is


@functools.cache
def device_program(send: whet.Send = BLUNT, target: str = "portable") -> whet.Program:
    """The program of tests/support/clients.py with an update to send."""
    return clients.program(send=send, target=target)


@contextlib.contextmanager
def serving(program: whet.Program, path: Path, part: int = 0, **words: Any) -> Iterator[Gateway]:
    data = clients.clients()[part]

    def connect() -> whet.Trainer:
        return program.target.load(program, watched=False)

    with Gateway(connect, data, path, **words) as gateway:
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    gateway.serve_one()

        gateway._socket.settimeout(0.2)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield gateway
        finally:
            done.set()
            thread.join(60)
