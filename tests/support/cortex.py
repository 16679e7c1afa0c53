"""Build C for a Cortex-M and run it in an emulator, with files for its input and output."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
BOARDS = {"m7": "mps2-an500", "m4": "mps2-an386"}
CPUS = {
    "m7": ("-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16"),
    "m4": ("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"),
}
COMMON = ("-mthumb", "-mfloat-abi=hard", "-O2", "-ffp-contract=off", "-ffunction-sections")
START = ("-nostartfiles", "--specs=rdimon.specs", f"-T{HERE / 'cortex.ld'}", "-Wl,--gc-sections")


def need_tools() -> None:
    missing = [tool for tool in (COMPILER, EMULATOR) if not shutil.which(tool)]
    assert not missing, f"{missing} not found: `make system-test` installs them"


def flags(cpu: str) -> tuple[str, ...]:
    """What a compiler needs to make a whole program of C files with a `main`."""
    return (*CPUS[cpu], *COMMON, *START, str(HERE / "cortex.c"))


def run(
    cpu: str, program: Path, given: bytes = b"", options: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run the program; what it writes is in the result's `stdout`."""
    folder = program.parent
    (folder / "calls").write_bytes(given)
    (folder / "results").write_bytes(b"")
    board = (EMULATOR, "-M", BOARDS[cpu], "-nographic", "-monitor", "none", "-serial", "none")
    host = ("-semihosting-config", "enable=on,target=native", "-kernel", str(program))
    done = subprocess.run(
        [*board, *options, *host], cwd=folder, capture_output=True, check=False, timeout=300
    )
    done.stdout = (folder / "results").read_bytes()
    return done
