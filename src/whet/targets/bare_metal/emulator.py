"""QEMU running a microcontroller's firmware, and a plugin that watches what it does."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import BuildError, RunError, WhetError, either
from ...runtime.build import find_compiler, run, version
from ...runtime.cache import kept
from .chip import Chip
from .firmware import Firmware

UNWATCHED = "whet.targets.bare_metal.Board(program, watched=False)"
PATIENCE = 0.5  # seconds between looks at whether the emulator is still there
REASONS = {
    1: "a fault while there was one already, as when the stack leaves the memory",
    96: "a fault, after the stack left the memory",
    97: "it was sent a command it does not know",
    98: "the channel broke",
    99: "a fault",
}


@dataclass(frozen=True)
class Watched:
    """What the plugin saw: counts from main on, wrong accesses from reset on."""

    instructions: int
    loads: int
    stores: int
    registers: int  # accesses to the processor's own
    outside: int  # accesses that are neither in RAM nor a load from flash
    first_outside: int
    stack: int  # bytes, at its deepest
    # Instructions from each address of the training step to the next in it.
    spent: dict[int, int] = field(repr=False)


class Emulator:
    """A running machine. What is sent arrives where the firmware reads, and the other way."""

    def __init__(self, built: Firmware, chip: Chip, step: str, watched: bool) -> None:
        if shutil.which(chip.emulator) is None:
            package = f"apt install {chip.emulator_package}  (Debian, Ubuntu)"
            raise BuildError(
                f"the emulator {chip.emulator} is not installed", try_=("make setup-mcu", package)
            )
        self._folder = tempfile.TemporaryDirectory(prefix="whet-board-")
        root = Path(self._folder.name)
        self._ends = []
        for name in ("commands", "answers"):  # open at both ends here, so that nobody waits
            os.mkfifo(root / name)
            self._ends.append(os.open(root / name, os.O_RDWR | os.O_NONBLOCK))
        self._seen = root / "seen"
        command = [chip.emulator, "-M", chip.machine, "-nographic", "-monitor", "none"]
        command += ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
        if watched:
            path = str(plugin(root)).replace(",", ",,")  # QEMU's way to write one
            command += ["-plugin", f"{path},{arguments(built, chip, step)},out={self._seen.name}"]
        self._log = open(root / "log", "wb")
        self._process = subprocess.Popen(
            [*command, *started(chip, built.path)],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for whoever drives it, not for the board
        )
        self._stop = weakref.finalize(self, end, self._process, self._ends, self._log, self._folder)

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """A question and its answer are one piece: Ctrl-C waits for the end of it, a second one
        does not, and half of one ends the board, whose next answer would be the wrong one."""
        if not self.on:
            raise RunError("the board is switched off", try_="program.load() starts another")
        before = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread() and before is not None
        pressed: list[int] = []

        def press(number: int, frame: Any) -> None:
            pressed.append(number)
            if len(pressed) > 1:
                raise KeyboardInterrupt

        if main:
            signal.signal(signal.SIGINT, press)
        try:
            yield
        except BaseException:
            self._stop()
            raise
        finally:
            if main:
                signal.signal(signal.SIGINT, before)
        if pressed and callable(before):
            before(pressed[0], None)

    @property
    def on(self) -> bool:
        return self._stop.alive

    def stop(self) -> None:
        """At once, whatever it does."""
        self._stop()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._wait([], [self._ends[0]])
            view = view[os.write(self._ends[0], view) :]

    def receive(self, size: int) -> bytes:
        parts = []
        while size:
            self._wait([self._ends[1]], [])
            parts.append(os.read(self._ends[1], size))
            size -= len(parts[-1])
        return b"".join(parts)

    def _wait(self, readable: list[int], writable: list[int]) -> None:
        while True:
            ready = select.select(readable, writable, [], PATIENCE)
            if ready[0]:
                return
            if (code := self._process.poll()) is not None:
                raise self._died(code)
            if ready[1]:
                return

    def _died(self, code: int) -> WhetError:
        log = (Path(self._folder.name) / "log").read_text(errors="replace").strip()
        if "plugin" in log:
            return BuildError(
                "this QEMU does not take the plugin that watches",
                why=log.splitlines()[-3:],
                try_=("QEMU 4.2 to 8.1", either(UNWATCHED, "--no-watch")),
            )
        if "Lockup" in log:  # QEMU aborts where a core with TrustZone would stop
            code = 1
        reason = REASONS.get(code, f"exit code {code}")
        why = [reason, *log.splitlines()[:3]]
        return RunError("the emulated board stopped by itself", why=why)

    def finish(self) -> Watched | None:
        """Wait for the firmware to end, which it was asked to; what was seen of it."""
        code = self._process.wait()
        if code != 0:
            raise self._died(code)
        seen = self._seen.read_text() if self._seen.exists() else ""
        self._stop()
        return read_seen(seen) if seen else None


def end(
    process: subprocess.Popen[bytes],
    ends: list[int],
    log: object,
    folder: tempfile.TemporaryDirectory[str],
) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for one in ends:
        os.close(one)
    log.close()  # type: ignore[attr-defined]
    folder.cleanup()


def started(chip: Chip, path: Path) -> list[str]:
    """Arguments that run this firmware."""
    *options, before = chip.start
    name = str(path).replace(",", ",,") if before else str(path)  # QEMU's way to write one
    return [*options, before + name]


def arguments(built: Firmware, chip: Chip, step: str) -> str:
    """The plugin's: which memory there is, and which function is the training step."""
    begin, stop = built.symbols["stack_begin"][0], built.symbols["stack_end"][0]
    at, size = built.symbols[step]
    spans = {
        "ram": (chip.ram_at, chip.ram_at + chip.ram),
        "flash": (chip.flash_at, chip.flash_at + chip.flash),
        "stack": (begin, stop),
        "function": (at, at + size),
        "own": chip.own,
    }
    words = [f"{name}=0x{low:x}:0x{high:x}" for name, (low, high) in spans.items()]
    return ",".join([*words, f"start=0x{built.symbols['main'][0]:x}"])


def read_seen(text: str) -> Watched:
    numbers, spent = {}, {}
    for line in text.splitlines():
        name, *rest = line.split()
        if name == "at":
            spent[int(rest[0])] = int(rest[1])
        else:
            numbers[name] = int(rest[0])
    return Watched(**numbers, spent=spent)


def plugin(folder: Path) -> Path:
    """The plugin, built when it is first needed, as a file in this folder."""
    source = (resources.files(__package__) / "watch.c").read_bytes()
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    command = [*find_compiler(), *flags]
    words = "\0".join((version(tuple(find_compiler())), *command)).encode()
    target = folder / "watch.so"

    def compiled() -> bytes:
        (folder / "watch.c").write_bytes(source)
        run([*command, "watch.c", "-o", "watch.so"], folder)
        return target.read_bytes()

    name = f"watch-{hashlib.sha256(source + words).hexdigest()[:24]}.kept"
    target.write_bytes(kept(name, compiled))
    return target
