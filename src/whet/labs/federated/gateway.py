"""The microcontroller as a client: a daemon that owns the device and speaks for it.

In a deployment of Flower each message starts a process, which cannot hold a serial line. The
gateway does, and serves one request after the other on a socket of this machine that only its user
can open. It keeps the device's samples. TLS ends here, so whoever runs the gateway sees what the
device sends: clipping, noise and sparsification are part of the device's program (`whet.Send`).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import DataError, RunError, WhetError
from ...runtime import Trainer
from ...runtime.update import coordinates, decode
from . import frames
from .frames import About, Kind, Task, Trained
from .local import Client, Local, Score

READING = 30.0  # seconds for a request to arrive, or for an answer to be taken
EPOCHS = 100  # of a request, at most: nobody can keep the device busy for ever
LARGEST = 1 << 30  # bytes of an answer
LOOK = 1.0  # seconds between two looks at the socket
log = logging.getLogger("whet.gateway")


class Gateway:
    """Serves a device on a socket, until `close`.

    `connect` opens the device: here it starts an emulated board, elsewhere it opens a serial line.
    It is called again if the device breaks. `data` are the device's samples: x, y, x_test, y_test.
    `limit` is how many training requests are answered at most: each update that leaves the device
    spends some of its privacy. The last one asked again gets the same bytes and counts once.
    """

    def __init__(
        self,
        connect: Callable[[], Trainer],
        data: Any,
        path: str | Path,
        *,
        limit: int | None = None,
        reading: float = READING,
    ) -> None:
        self._connect, self._data, self._limit, self._reading = connect, data, limit, reading
        self.answered = 0
        self._last: tuple[bytes, bytes] | None = None  # digest of a task, and the answer to it
        self._client: Client | None = None
        program = self._device().trainer.program
        if program.delta is None:
            raise DataError(
                "the program sends nothing", try_="compile(..., send=whet.Send(clip=1.0))"
            )
        self._most = 4096 + sum(
            4 * kind.elements + 1024 for kind in program.storage.params.values()
        )
        self.path = Path(path)
        try:
            self._socket = listening(self.path)
        except DataError:
            self._drop()
            raise

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)
        self._drop()

    def serve(self) -> None:
        """For ever. A signal between two looks at the socket is served at the second."""
        while True:
            with contextlib.suppress(TimeoutError):
                self.serve_one()

    def serve_one(self) -> None:
        """One connection, which has one request. Whatever comes, the next one can be served.

        TimeoutError if none comes in LOOK seconds.
        """
        line, _ = self._socket.accept()
        with line:
            try:
                try:
                    kind, body = frames.receive(line, self._most, self._reading)
                    answer = self._answer(kind, body)
                except WhetError as error:
                    log.warning("refused: %s", error.what)
                    if isinstance(error, RunError):  # the device broke: open it anew
                        self._drop()
                    line.settimeout(self._reading)
                    frames.send(line, Kind.ERROR, str(error).encode())
                else:
                    line.settimeout(self._reading)
                    frames.send(line, Kind.ANSWER, answer)
            except OSError as error:
                log.warning("a client is gone: %s", error)

    # Below: what is asked for -------------------------------------------------------------------

    def _answer(self, kind: int, body: memoryview) -> bytes:
        if kind == Kind.ABOUT:
            return self._about(body)
        if kind == Kind.TRAIN:
            return self._train(body)
        if kind == Kind.EVALUATE:
            arrays = frames.unpack_arrays(body)
            data = self._data
            return frames.pack_score(self._device().judge(arrays, data.x_test, data.y_test))
        raise DataError(f"there is no request {kind}", try_="1 about, 2 train, 3 evaluate")

    def _about(self, body: memoryview) -> bytes:
        if len(body):
            raise DataError("the request has a body", why="this one has none")
        program = self._device().trainer.program
        counts = len(self._data.y), len(self._data.y_test)
        return frames.ABOUT.pack(program.fingerprint, coordinates(program), *counts)

    def _train(self, body: memoryview) -> bytes:
        digest = hashlib.sha256(body).digest()
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        task, arrays = Task.unpack(body), frames.unpack_arrays(body[frames.TASK.size :])
        if task.local.epochs > EPOCHS:
            raise DataError(f"{task.local.epochs:,} epochs are asked for, at most are {EPOCHS}")
        if self._limit is not None and self.answered >= self._limit:
            raise DataError(f"the device has sent {self.answered} updates, which is its limit")
        device = self._device()
        device.take(arrays)
        device.trainer.begin()
        loss = device.learn(self._data, task.local, task.round, task.client)
        update = device.trainer.delta(task.round)  # with a new random key, which is not kept
        self.answered += 1
        log.info("round %d: loss %.4f, %d bytes", task.round, loss, len(update))
        answer = frames.RESULT.pack(loss, len(self._data.y)) + update
        self._last = digest, answer
        return answer

    def _device(self) -> Client:
        if self._client is None:
            self._client = Client(self._connect())
        return self._client

    def _drop(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            with contextlib.suppress(RunError):
                client.trainer.close()


class GatewayClient:
    """Asks a gateway, over a connection of its own for each request. WhetError if it refuses."""

    def __init__(self, path: str | Path, timeout: float = 3600.0) -> None:
        self.path, self.timeout = Path(path), timeout

    def about(self) -> About:
        body = self._ask(Kind.ABOUT, b"")
        return About(*frames.ABOUT.unpack(frames.taken(body, 0, frames.ABOUT.size)))

    def train(
        self, arrays: Mapping[str, Any], local: Local, turn: int = 0, number: int = 0
    ) -> Trained:
        """Train the global parameters on the device's samples; the update that it sends.

        An update that was damaged on its way is refused here.
        """
        task = Task(turn, number, local).pack()
        body = self._ask(Kind.TRAIN, task + frames.pack_arrays(arrays))
        loss, examples = frames.RESULT.unpack(frames.taken(body, 0, frames.RESULT.size))
        update = bytes(body[frames.RESULT.size :])
        decode(update, round=turn)
        return Trained(loss, examples, update)

    def judge(self, arrays: Mapping[str, Any]) -> Score:
        body = self._ask(Kind.EVALUATE, frames.pack_arrays(arrays))
        return Score(*frames.SCORE.unpack(frames.taken(body, 0, frames.SCORE.size)))

    def _ask(self, kind: Kind, body: bytes) -> memoryview:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(self.timeout)
            try:
                line.connect(str(self.path))
                with contextlib.suppress(BrokenPipeError):  # it has an error to say
                    frames.send(line, kind, body)
                got, answer = frames.receive(line, LARGEST, self.timeout)
            except OSError as error:
                raise RunError(
                    f"the gateway at {self.path} does not answer",
                    why=str(error),
                    try_="whet fed gateway PROGRAM --socket PATH",
                ) from error
        if got == Kind.ERROR:
            raise RunError("the gateway refuses", why=bytes(answer).decode(errors="replace"))
        if got != Kind.ANSWER:
            raise RunError(f"the gateway answers with {got}", why="known are 0 and 255")
        return answer


def listening(path: Path) -> socket.socket:
    """A socket that only this user can open. What a dead gateway left behind is replaced."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise DataError(f"{path} exists and is not a socket", try_="another --socket")
        if alive(path):
            raise DataError(f"another gateway serves {path}", try_="another --socket")
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DataError(f"cannot listen on {path}", why=str(error)) from error
    found = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)  # from the first moment on, not only after a chmod
    early = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        found.bind(str(early))
        found.listen(16)
        found.settimeout(LOOK)
        early.rename(path)  # whoever sees it can connect
    except OSError as error:
        found.close()
        with contextlib.suppress(OSError):
            early.unlink()
        raise DataError(f"cannot listen on {path}", why=str(error)) from error
    finally:
        os.umask(mask)
    return found


def alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(1.0)
        try:
            line.connect(str(path))
        except TimeoutError:
            return True  # busy
        except OSError:
            return False
    return True
