"""A run in a folder: everything that it takes to go on as if it had never been stopped.

The file is a zip of `run.json`, of the checkpoint that the trainer's codec wrote, and of other
bytes. It is replaced as a whole: whatever moment a process is killed at, one of two whole files is
there. Nothing of it is executed when it is read.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..emit.program import Program
from ..errors import CheckpointError, DataError
from ..writing import write_whole

FILE, CONTENT, FORMAT = "run.zip", "run.json", 1
EPOCH = (1980, 1, 1, 0, 0, 0)  # equal runs give equal bytes
BYTES = "bytes"  # the only key of a record that stands for a file of the zip
BROKEN = (
    zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, TypeError, KeyError, IndexError,
    AttributeError, EOFError, OverflowError,
)  # fmt: skip


def packed(content: Mapping[str, Any]) -> bytes:
    """Records of numbers, texts, lists and bytes as one zip."""
    files: list[bytes] = []

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            files.append(value)
            return {BYTES: len(files) - 1}
        if isinstance(value, Mapping):
            return {str(key): plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value

    text = json.dumps({"format": FORMAT, "run": plain(content)}, separators=(",", ":"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        file.writestr(zipfile.ZipInfo(CONTENT, EPOCH), text)
        for number, content_ in enumerate(files):
            file.writestr(zipfile.ZipInfo(f"{number}.bin", EPOCH), content_)
    return buffer.getvalue()


def unpacked(blob: bytes) -> dict[str, Any]:
    """What `packed` took. Checksums of the zip tell damage."""
    with zipfile.ZipFile(io.BytesIO(blob)) as file:
        if any(info.compress_type != zipfile.ZIP_STORED for info in file.infolist()):
            raise ValueError("it is compressed")
        content = json.loads(file.read(CONTENT))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, this version reads {FORMAT}")

        def whole(value: Any) -> Any:
            if isinstance(value, dict):
                if value.keys() == {BYTES}:
                    return file.read(f"{int(value[BYTES])}.bin")
                return {key: whole(one) for key, one in value.items()}
            return [whole(one) for one in value] if isinstance(value, list) else value

        found: dict[str, Any] = whole(content["run"])
    return found


def fingerprint(program: Program) -> int:
    """Of what a step computes: the model, what trains, the batch, the loss and the optimizer."""
    return zlib.crc32(str(program.entries["train_step"]).encode(), program.fingerprint)


class Folder:
    """The folder of a run, and what the run is: a program, its data, and how it trains."""

    def __init__(self, path: str | Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = Path(path), dict(about)

    @property
    def file(self) -> Path:
        return self.path / FILE

    def write(self, content: Mapping[str, Any]) -> None:
        try:
            blob = packed({"about": self.about, **content})
        except TypeError as error:  # only callbacks bring things of their own
            raise DataError(
                "what a callback has to remember cannot be saved",
                why=str(error),
                try_="numbers, texts, bytes and lists of these in state_dict()",
            ) from error
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.file, blob, durable=True)
        except OSError as error:
            raise CheckpointError(f"cannot write {self.file}", why=str(error.strerror)) from error

    def read(self) -> dict[str, Any] | None:
        """What was written last, if it belongs to this run; None if there is nothing yet."""
        try:
            blob = self.file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"cannot read {self.file}", why=str(error.strerror)) from error
        try:
            found = unpacked(blob)
            there = dict(found["about"])
        except BROKEN as error:
            raise self.damaged(error) from error
        names = [n for n in self.about if there.get(n) != self.about[n]]
        if names:
            raise CheckpointError(
                f"{self.path} holds another run",
                why=[difference(n, there.get(n), self.about[n]) for n in names],
                try_="what the run began with, or another folder",
            )
        return found

    def damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"{self.file} is no run that can go on",
            why=f"{type(error).__name__}: {error}",
            try_="another folder",
        )


def difference(name: str, there: Any, here: Any) -> str:
    if name == "program":
        return "the program is another: its model, what trains, batch, loss or optimizer"
    return f"{name} was {there}, and is {here} now"
