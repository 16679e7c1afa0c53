"""Cells trained by PyTorch on a GPU, many at once.

A step of a small network is some hundred kernels that each keep little of a GPU busy. So a cell
is captured once, as a graph that takes its pictures from the GPU's own memory, and replayed on a
stream of its own beside those of other cells. Processes make the pictures: the very windows that
whet's program would see.
"""

from __future__ import annotations

import copy
import functools
import multiprocessing
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common import pictures
from benchmarks.tinytl import study
from benchmarks.tinytl.study import METHODS, Cell

WARM_UP = 3  # steps before a capture, undone
AHEAD = 100  # steps that wait in a stream
JUDGED_AT_ONCE = 512

Found = Callable[[Cell, dict[str, Any]], None]


class Course:
    """What cells of one seed and size learn from and are judged on, in the GPU's memory."""

    def __init__(self, folder: str) -> None:
        windows, labels, shares, test, answers = (
            torch.from_numpy(np.load(Path(folder, f"{i}.npy"))).cuda() for i in range(5)
        )
        self.windows, self.labels, self.shares = windows, labels, shares.float()
        self.test, self.answers = test, answers
        torch.cuda.synchronize()  # streams of students do not wait for the one this was made on

    @property
    def steps(self) -> int:
        return len(self.labels)


def make_course(cell: Cell, folder: str) -> str:
    """The windows of all steps, their labels, and how far the rate has fallen; and the test."""
    train, test = cell.parts()
    own = Path(tempfile.mkdtemp(dir=folder))
    columns = zip(*study.lessons(replace(cell, rate=1.0), train), strict=True)
    judged = (pictures.centre(test.images, cell.side), test.labels)
    for i, column in enumerate((*columns, *judged)):
        np.save(own / f"{i}.npy", np.stack(column) if i < 3 else column)
    return str(own)


def course_of(cell: Cell) -> Cell:
    """What decides over the course alone."""
    return replace(cell, net="", method="", rate=0.0)


class Student:
    """One cell on its stream."""

    def __init__(self, cell: Cell, course: Course, trained: frozenset[str]) -> None:
        self.cell, self.course, self.began = cell, course, time.perf_counter()
        self.stream = torch.cuda.Stream()
        self.sent, self.events = 0, deque[torch.cuda.Event]()
        with torch.cuda.stream(self.stream):
            x = torch.zeros(1, 3, cell.side, cell.side)
            own = study.prepared(METHODS[cell.method], study.start(cell, "cuda"), x, bits=8)
            self.model = copy.deepcopy(own).cuda()
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_(name in trained)
            self.parameters = [p for p in self.model.parameters() if p.requires_grad]
            self.scale, self.shift = (
                torch.from_numpy(a).cuda() for a in study.scale_and_shift(cell.net)
            )
            self.at = torch.zeros(1, dtype=torch.long, device="cuda")
            self.losses = torch.zeros(cell.steps, device="cuda")
            self.rate = torch.zeros((), device="cuda")
            self.optimizer = torch.optim.Adam(
                self.parameters, lr=self.rate, capturable=True, fused=True
            )
            self.graph = self.captured()

    def next_of(self, values: torch.Tensor) -> torch.Tensor:
        return values.index_select(0, self.at)[0]

    def step(self) -> None:
        """The next one of the course."""
        x = self.next_of(self.course.windows).float() * self.scale + self.shift
        self.rate.copy_(self.next_of(self.course.shares) * self.cell.rate)
        loss = nn.functional.cross_entropy(self.model(x), self.next_of(self.course.labels))
        loss.backward()
        self.optimizer.step()
        self.losses.index_copy_(0, self.at, loss.detach().view(1))
        self.at += 1

    def captured(self) -> torch.cuda.CUDAGraph:
        """A step to replay; the steps that a capture needs before it are undone."""
        start = [p.detach().clone() for p in self.parameters]
        for _ in range(WARM_UP):
            self.step()
            self.optimizer.zero_grad()
        with torch.no_grad():
            for parameter, old in zip(self.parameters, start, strict=True):
                parameter.copy_(old)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()
            self.at.zero_()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        self.step()
        graph.capture_end()
        return graph

    def go_on(self) -> bool:
        """Send more steps; whether there is still something to do."""
        while self.events and self.events[0].query():
            self.events.popleft()
        if self.sent < self.cell.steps and len(self.events) < 2:
            more = min(AHEAD, self.cell.steps - self.sent)
            with torch.cuda.stream(self.stream):
                for _ in range(more):
                    self.graph.replay()
                event = torch.cuda.Event()
                event.record()
            self.sent += more
            self.events.append(event)
        return bool(self.events)

    def outcome(self) -> dict[str, Any]:
        with torch.cuda.stream(self.stream), torch.no_grad():
            right = torch.zeros((), device="cuda")
            parts = (p.split(JUDGED_AT_ONCE) for p in (self.course.test, self.course.answers))
            for images, answers in zip(*parts, strict=True):
                scores = self.model(images.float() * self.scale + self.shift)
                right += (scores.argmax(1) == answers).sum()
            losses = self.losses.cpu().numpy()
        found = study.outcome(losses, int(right), len(self.course.answers))
        return {
            **found,
            "seconds": round(time.perf_counter() - self.began, 1),
            "by": "PyTorch on a GPU",
        }


def train(cells: Sequence[Cell], at_once: int, found: Found) -> None:
    """In this order, as many at a time."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    waiting, active = deque(cells), list[Student]()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        keys = dict.fromkeys(map(course_of, cells))
        made = {key: pool.submit(make_course, key, folder) for key in keys}
        names = {(c.net, c.method): pool.submit(study.trained, c.net, c.method) for c in cells}
        courses = functools.cache(lambda key: Course(made[key].result()))
        while waiting or active:
            if waiting and len(active) < at_once:
                cell = waiting.popleft()
                trained = names[cell.net, cell.method].result()
                active.append(Student(cell, courses(course_of(cell)), trained))
            for student in list(active):
                if not student.go_on():
                    found(student.cell, student.outcome())
                    active.remove(student)
            if len(active) == at_once or not waiting:
                time.sleep(0.001)
