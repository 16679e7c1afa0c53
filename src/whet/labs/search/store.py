"""What has been found out so far, on disk: an analysis that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...errors import DataError
from ...ir import Array
from ...scheme.contribution import Candidate, Outcome
from .lesson import Bench

VERSION = 2  # of how candidates are tried


def fingerprint(bench: Bench) -> str:
    """Of all that the outcome of a candidate depends on, its head excepted, which follows."""
    graph, prediction = bench.model.training.graph, bench.model.prediction.graph
    rules = bench.model.rules
    found = hashlib.sha256()
    words = (
        VERSION,
        graph,
        prediction,
        rules.clip_norm,
        rules.integer_rules,
        bench.rate,
        bench.lesson,
    )
    found.update("\n".join(map(str, words)).encode())
    for name, rule in rules.rules.items():
        found.update(f"{name} {rule.op.name} {sorted(rule.attrs.items())} {rule.step}".encode())
        for state in rule.state.values():
            found.update(np.ascontiguousarray(state).tobytes())
    for name, data in sorted({**prediction.data, **graph.data}.items()):
        found.update(name.encode() + np.ascontiguousarray(data).tobytes())
    for samples in (bench.train, bench.judge):
        found.update(str(samples.checksum()).encode())
    return found.hexdigest()[:16]


class Store:
    """A folder for one analysis: a line for each candidate, and the head they begin with."""

    def __init__(self, root: Path, bench: Bench) -> None:
        self.folder = root / fingerprint(bench)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot write to {root}", why=str(error.strerror)) from error
        self.lines = self.folder / "outcomes.jsonl"

    def outcomes(self) -> dict[tuple[Candidate, int], Outcome]:
        """By candidate and length; a line that was not finished is passed over."""
        found = {}
        text = self.lines.read_text(errors="replace") if self.lines.exists() else ""
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                key = Candidate.parse(entry["candidate"]), int(entry["epochs"])
                found[key] = Outcome.from_dict(entry["outcome"])
            except (ValueError, TypeError, KeyError):
                continue
        return found

    def add(self, candidate: Candidate, epochs: int, outcome: Outcome) -> None:
        entry = {"candidate": str(candidate), "epochs": epochs, "outcome": outcome.as_dict()}
        self._end_line()
        with open(self.lines, "a") as file:
            file.write(json.dumps(entry) + "\n")

    def _end_line(self) -> None:
        """A line that a stopped run left unfinished must not swallow the next one."""
        if self.lines.exists() and (text := self.lines.read_bytes()) and not text.endswith(b"\n"):
            with open(self.lines, "a") as file:
                file.write("\n")

    def head(self) -> dict[str, Array] | None:
        path = self.folder / "head.npz"
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # none, or half of one
            return None

    def keep_head(self, head: Mapping[str, Array]) -> None:
        partial = self.folder / f"head.{os.getpid()}.npz"
        np.savez(partial, **dict(head))  # type: ignore[arg-type]
        os.replace(partial, self.folder / "head.npz")
