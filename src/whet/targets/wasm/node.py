"""Node: a module in a process of Node, driven like any other trainer."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import threading
import weakref
from importlib import resources
from typing import IO, Any, cast

import numpy as np

from ...emit.c import STATUSES, Signature
from ...emit.program import Program
from ...errors import BuildError, RunError, TargetError, option
from ...ir import Array, Role
from ...runtime.checkpoint import Layout
from ...runtime.trainer import Trainer, changing
from .build import module

STATUS = {name: i for i, (name, _) in enumerate(STATUSES)}


class Node(Trainer):
    """One network in a module of its own. `close` ends its process."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.module = module(program)
        self._process = started(str(self.module.parent))
        self._stop = weakref.finalize(self, end, self._process)
        self._memory = np.zeros(Layout.of(program).size, np.uint8)  # a copy of the module's
        self._net = changing(program).from_buffer(self._memory)
        self._fresh = False  # whether the copy is up to date
        self._lock = threading.Lock()
        self.milliseconds = 0.0  # the last call took in Node
        self._bytes = 0

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stop()

    def summary(self) -> list[str]:
        return [f"{self.module.stat().st_size:,} bytes of module, {self._bytes:,} of memory"]

    @property
    def threads(self) -> int:
        return 1

    # Below: over the channel --------------------------------------------------------------------

    def _ask(self, command: dict[str, Any], data: bytes = b"") -> tuple[str, bytes]:
        """Send a command; the status and the bytes of the answer."""
        if not self._stop.alive:
            raise RunError("the trainer is closed", try_="program.load() starts another")
        text = json.dumps(command | {"size": len(data)}).encode()
        with self._lock:
            try:
                self._send(struct.pack("<I", len(text)) + text + data)
                head = json.loads(self._receive(struct.unpack("<I", self._receive(4))[0]))
                answer = self._receive(head["size"])
            except BaseException:  # half an exchange: the next answer would be the wrong one
                self._stop()
                raise
        if head["status"] == "FAILED":
            raise RunError("the module stopped", why=head["why"])
        self.milliseconds = head.get("ms", 0.0)
        self._bytes = head.get("memory", self._bytes)
        return head["status"], answer

    def _send(self, data: bytes) -> None:
        try:
            pipe = cast("IO[bytes]", self._process.stdin)
            pipe.write(data)
            pipe.flush()
        except BrokenPipeError as error:
            raise self._died() from error

    def _receive(self, size: int) -> bytes:
        data = cast("IO[bytes]", self._process.stdout).read(size)
        if len(data) < size:
            raise self._died()
        return data

    def _died(self) -> RunError:
        self._process.wait()
        words = cast("IO[bytes]", self._process.stderr).read().decode(errors="replace")
        why = [line for line in words.splitlines() if line.strip()][:8]
        return RunError("Node ended by itself", why=why or "it was killed")

    def _run(
        self, entry: str, feed: dict[str, Array], scalars: dict[str, float | None]
    ) -> list[Array]:
        signature = Signature.of(self._entry(entry))
        self._forget()
        data, given = bytearray(), []
        for name, leaf in signature.leaves:
            if leaf.role is Role.SCALAR:
                given.append(self._number(leaf, scalars[name]).value)
                continue
            data += feed[leaf.name].tobytes()
            data += bytes(-len(data) % 16)
        outs = [np.zeros(v.shape, v.type.dtype.numpy) for _, v in signature.outputs]
        self._fresh = False
        question = {"command": "run", "entry": entry, "numbers": given}
        status, answer = self._ask(question, bytes(data))
        for out in outs if status == "OK" else ():
            out[...] = np.frombuffer(answer[: out.nbytes], out.dtype).reshape(out.shape)
            answer = answer[out.nbytes :]
        if status == "NOT_FINITE":
            outs[0][...] = np.nan
        self._raise(STATUS[status], entry, feed, outs)
        return outs

    def _delta(self, round: int, key: bytes) -> bytes:
        raise TargetError(
            "updates to send are not made in WebAssembly", try_=option("target", "host")
        )

    def _view(self, name: str) -> Array:
        if not self._fresh:
            self._memory[:] = np.frombuffer(self._ask({"command": "read"})[1], np.uint8)
            self._fresh = True
        return super()._view(name)

    def _written(self) -> None:
        super()._written()
        self._ask({"command": "write"}, self._memory.tobytes())


def started(package: str) -> subprocess.Popen[bytes]:
    """Node with the module of this folder."""
    if (node := shutil.which("node")) is None:
        raise BuildError(
            "node is not installed, which runs WebAssembly",
            try_=("apt install nodejs  (Debian, Ubuntu)", option("target", "host")),
        )
    driver = (resources.files(__package__) / "node.mjs").read_text()
    return subprocess.Popen(
        [node, "--input-type=module", "--eval", driver, package],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for whoever drives it, not for the module
    )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
