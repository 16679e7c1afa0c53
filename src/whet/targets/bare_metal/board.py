"""Board: a program on an emulated microcontroller, driven like any other trainer."""

from __future__ import annotations

import struct
from types import TracebackType

import numpy as np

from ...emit.c import Signature
from ...emit.memory import network_bytes
from ...emit.program import Program
from ...errors import DataError, RunError
from ...ir import Array
from ...runtime.arrays import check_one_input
from ...runtime.trainer import Trainer, changing
from .chip import chip_of
from .emulator import Emulator, Watched
from .firmware import firmware
from .profile import PHASES, Profile, profile

LETTERS = {"train_step": b"T", "predict": b"P", "predict_one": b"O", "begin": b"B"}


class Board(Trainer):
    """One network on a board of its own. `close` ends it and says what was seen of it.

    Without `watched` nobody looks at what the program does, and it runs several times as fast.
    `counted` is the entry point whose instructions are told apart from all others.
    """

    def __init__(self, program: Program, watched: bool = True, counted: str = "train_step") -> None:
        chip = chip_of(program)
        check_one_input(program)
        self.program = program
        self.firmware = firmware(program)
        self._machine = Emulator(self.firmware, chip, f"{program.name}_{counted}", watched)
        self._counted = counted
        self._memory = np.zeros(network_bytes(program), np.uint8)  # a copy of the board's
        self._net = changing(program).from_buffer(self._memory)
        self._fresh = False  # whether the copy is up to date
        self.watched: Watched | None = None
        self.steps = 0

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._machine.stop()

    def close(self) -> Watched | None:
        """Switch it off. RunError if it reached outside of its memory."""
        if not self._machine.on:
            return self.watched
        measured = self.program.measured
        measured["stack, by its paint"] = struct.unpack("<I", self._ask(b"K", b"", 4))[0]
        self._ask(b"Q", b"", 0)
        seen = self._machine.finish()
        if seen is not None:
            self.watched = seen
            measured["stack"] = seen.stack
            measured["steps"] = self.steps
            measured["instructions"] = seen.instructions
            if seen.outside:
                raise RunError(
                    f"{seen.outside:,} loads or stores were outside of the memory there is",
                    at=f"the first of them: 0x{seen.first_outside:08x}",
                )
        return seen

    def profile(self) -> Profile:
        """What the calls of a mean step cost, once it was watched and is closed."""
        if self.watched is None or not self.steps or self._counted != "train_step":
            raise DataError("nothing was watched", try_="steps, then close()")
        return profile(self.program, self.firmware, self.watched, self.steps)

    def instructions(self) -> int:
        """Those of all calls of the counted entry point, once it is closed.

        Of what it calls: its own instructions, a few for each argument, are not among them, as the
        last of them cannot be told from what its caller does next.
        """
        if self.watched is None:
            raise DataError("nothing was watched", try_="close()")
        begin, size = self.firmware.symbols[f"{self.program.name}_{self._counted}"]
        spent = self.watched.spent
        code = self.firmware.code(begin, size)
        return sum(spent.get(at, 0) for at, _ in chip_of(self.program).calls(code, begin))

    def feed(self, arrays: dict[str, Array]) -> None:
        """A step that changes no parameter, on arrays as they are stored."""
        self._run("train_step", arrays, {"lr": 0.0})

    def summary(self) -> list[str]:
        if self.watched is None:
            return []
        costs, seen = self.profile(), self.watched
        return [
            f"{costs.total / 1e6:,.1f} M instructions a step",
            *(f"  {phase:<9} {costs.of(phase) / 1e6:8,.1f} M" for phase in PHASES),
            f"{seen.loads + seen.stores:,} loads and stores, {seen.outside} outside of the memory",
        ]

    @property
    def threads(self) -> int:
        return 1

    def _has(self, name: str) -> bool:
        return super()._has(name) and name in LETTERS

    # Below: over the channel --------------------------------------------------------------------

    def _ask(self, letter: bytes, data: bytes, size: int) -> bytes:
        """Send a command, and give back what the board says, its status checked."""
        with self._machine.exchange():
            self._machine.send(letter + data)
            self._status = struct.unpack("<i", self._machine.receive(4))[0]
            return self._machine.receive(size)

    def _run(
        self, entry: str, feed: dict[str, Array], scalars: dict[str, float | None]
    ) -> list[Array]:
        if entry not in LETTERS:
            raise DataError(f"a board has no command for {entry!r}", try_="step and predict")
        signature = Signature.of(self._entry(entry))
        rate = b"" if entry != "train_step" else bytes(self._scalar(scalars["lr"]))
        arrays = [feed[v.name] for _, v in signature.leaves if v.name in feed]
        data = rate + b"".join(array.tobytes() for array in arrays)
        outs = [np.zeros(v.shape, v.type.dtype.numpy) for _, v in signature.outputs]
        if entry in ("train_step", "begin"):
            self._fresh = False
        if entry == "train_step":
            self.steps += 1
        answer = self._ask(LETTERS[entry], data, sum(out.nbytes for out in outs))
        for out in outs:
            out[...] = np.frombuffer(answer[: out.nbytes], out.dtype).reshape(out.shape)
            answer = answer[out.nbytes :]
        self._raise(self._status, entry, feed, outs)
        return outs

    def _delta(self, round: int, key: bytes) -> bytes:
        with self._machine.exchange():
            self._machine.send(b"D" + struct.pack("<I", round) + key)
            _, size = struct.unpack("<iI", self._machine.receive(8))
            return self._machine.receive(size)

    def _view(self, name: str) -> Array:
        if not self._fresh:
            self._memory[:] = np.frombuffer(self._ask(b"F", b"", len(self._memory)), np.uint8)
            self._fresh = True
        return super()._view(name)

    def _written(self) -> None:
        self._ask(b"S", self._memory.tobytes(), 0)

    def _read(self) -> dict[str, Array]:
        self._fresh = False
        return super()._read()
