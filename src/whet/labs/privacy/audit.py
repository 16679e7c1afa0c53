"""Attack the very update that a program would send, and say what was found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import Program
from ...errors import BuildError, DataError
from ...runtime import to_numpy
from ...writing import write_whole
from . import idlg
from .attack import attack
from .choices import Choice, defence
from .costs import Trained, trained_with
from .gradients import Observation
from .page import page, pictures
from .recovered import Recovered
from .roc import Array, Roc
from .score import Score, score
from .updates import sent_by
from .verdict import as_text, verdict
from .words import Words, find_words

if TYPE_CHECKING:
    from torch import nn

ATTACKS = ("dlg", "cosine", "analytic")
TEXT = "text"  # in their place, if the input is ids
Report = Callable[[str, float], None]  # what is being done, and how much of the audit is done


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack on the update as one defence lets it through."""

    method: str
    defence: Choice
    coordinates: int  # numbers that the attacker saw
    found: Recovered | None  # None: this attack does not apply, and `note` says why
    score: Score | None
    labels: int = 0  # how many of the batch were named
    note: str = ""
    words: Words | None = None  # if the input is ids

    @property
    def recovered(self) -> int:
        """Samples that can be recognised, by the threshold of score.py."""
        return 0 if self.score is None else round(self.score.recovered() * len(self.score.psnr))

    @property
    def failed(self) -> bool:
        """Whether it says nothing: every start diverged, or the attack does not apply."""
        return self.words is None and (self.found is None or self.found.failed)

    @property
    def gain(self) -> float:
        """The best sample's PSNR above the constant image of its own mean colour, in dB."""
        if self.score is None:
            return float("-inf")
        return float((self.score.psnr - self.score.baseline).max())

    @property
    def alike(self) -> float:
        """The best sample's SSIM, which does not mind a wrong brightness as PSNR does."""
        return 0.0 if self.score is None else float(self.score.ssim.max())


@dataclass(frozen=True, eq=False)
class Audit:
    """What was attacked, by what, and what came of it."""

    program: str  # in words
    sent: str
    originals: Array
    labels: Array
    span: tuple[float, float]
    restarts: int
    seed: int
    attempts: tuple[Attempt, ...]
    membership: Mapping[str, Roc] = field(default_factory=dict)
    trained: Mapping[str, Trained] = field(default_factory=dict)  # by the name of a defence
    training: str = ""  # how that was measured

    @property
    def defences(self) -> list[Choice]:
        return list({a.defence.name: a.defence for a in self.attempts}.values())

    @property
    def rocs(self) -> dict[str, Roc]:
        """All of membership inference: the model as compiled, and after training."""
        after = {
            f"loss after training, {c.name}": self.trained[c.name].members
            for c in self.defences
            if c.name in self.trained
        }
        return {**self.membership, **{n: roc for n, roc in after.items() if roc is not None}}

    def of(self, name: str) -> list[Attempt]:
        return [a for a in self.attempts if a.defence.name == name]

    @property
    def verdict(self) -> str:
        """The update as it is sent, in words that promise no more than was tested."""
        return verdict(self)

    def __str__(self) -> str:
        return as_text(self)

    def html(self) -> str:
        """One page that needs no other file."""
        return page(self)

    def write(self, path: str | Path) -> Path:
        try:
            write_whole(path, self.html())
        except OSError as error:
            raise BuildError(f"cannot write {path}", why=str(error.strerror)) from error
        return Path(path)


def audit(
    program: Program,
    x: Any,
    y: Any,
    *,
    attacks: Sequence[str] = ("dlg", "cosine"),
    defences: Sequence[str] = (),
    restarts: int = 4,
    iterations: int | None = None,
    steps: int = 0,
    update: Mapping[str, Any] | None = None,
    train: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    train_steps: int = 300,
    members: tuple[Any, Any] | None = None,
    others: tuple[Any, Any] | None = None,
    model: nn.Module | None = None,
    loss: Any = None,
    span: tuple[float, float] | None = None,
    mask: int | None = None,
    seed: int = 0,
    on_progress: Report | None = None,
) -> Audit:
    """Attack the update that `program` sends after one batch, as it is and behind each defence.

    The update is what a program compiled with `send=` writes; of another, the gradients of one
    step, or with `steps` the change of the parameters after so many local steps; or the `update`
    given (by name, after minus before). Every attacker is adaptive: it knows which coordinates were
    dropped, how much noise was added, that an update was clipped though not by which factor, and
    how labels show in a gradient.
    `defences` are named as in `noise:0.01`, `prune:0.9`, `top-k:0.01`, `fp16`, `int8`, `clip:1`
    and `dp:1:0.5`. With `train` and `test`, the program is also trained behind each defence, and
    accuracy and membership inference are measured after that. If the model was trained before,
    `members` are samples it was trained on, and `others` samples it was not. `span` is what black
    and white are in the input: the least and the greatest number of `x` by default. If the input is
    ids, words are looked for, and `mask` is the id of a hidden one. `on_progress` is told what is
    being done, and how much of the audit is done.
    """
    choices = [defence(name) for name in dict.fromkeys(("none", *defences))]
    check(attacks, restarts, train, test, members, others)
    check_finite({"x": (x, y), "train": train, "test": test, "members": members, "others": others,
                  "update": tuple((update or {}).values())})  # fmt: skip
    inputs, labels = np.asarray(to_numpy(x)), np.asarray(to_numpy(y))
    methods = list(attacks) if inputs.dtype.kind == "f" else [TEXT]
    given = span or (0.0, 1.0)
    if span is None and inputs.dtype.kind == "f":
        given = span_of(inputs)
    steps_of_work = len(choices) * (len(methods) + (train is not None)) + (members is not None)
    work = Work(on_progress, steps_of_work)
    seen, words = sent_by(
        program,
        inputs,
        labels,
        steps=steps,
        update=update,
        model=model,
        loss=loss,
        span=given,
        seed=seed,
    )
    attempts = []
    for choice in choices:
        defended = choice.apply(seen.gradients, seed)
        through = seen.defended(
            defended.gradients,
            both(seen.masks, defended.masks),
            noise=math.hypot(seen.noise, defended.absolute),
            scaled=seen.scaled or defended.scaled,
        )
        for method in methods:
            with work.part(f"{method} against {choice.words}") as tell:
                if method == TEXT:
                    attempts.append(read(through, choice, inputs, labels, mask, seed))
                    continue
                attempts.append(
                    attempted(through, choice, method, inputs, labels, restarts, iterations, seed,
                              tell)
                )  # fmt: skip
    after: dict[str, Trained] = {}
    training = ""
    if train is not None and test is not None:
        for choice in choices:
            with work.part(f"training with {choice.words}") as tell:
                after[choice.name] = trained_with(
                    program, train, test, None if choice.name == "none" else choice, train_steps,
                    seed, tell,
                )  # fmt: skip
        training = (
            f"after {train_steps} steps of batch {program.batch} on {len(train[0])} samples, "
            f"measured on {len(test[0])} others; one client, every step's update defended"
        )
    found = {}
    if members is not None and others is not None:
        with work.part("membership inference"):
            found = membership_of(program, members, others)
    return Audit(
        described(program, seen), words, inputs, labels, given, restarts, seed, tuple(attempts),
        found, after, training,
    )  # fmt: skip


def span_of(x: Array) -> tuple[float, float]:
    """From the least to the greatest number; of a constant, which has no contrast, a range of 1."""
    low, high = float(x.min()), float(x.max())
    if low < high:
        return low, high
    return (0.0, 1.0) if 0 <= low <= 1 else (low - 0.5, low + 0.5)


def both(sent: Mapping[str, Array], left: Mapping[str, Array]) -> dict[str, Array]:
    """Coordinates that the program sends and that a defence leaves standing."""
    names = {**sent, **left}
    return {n: np.asarray(sent.get(n, True)) & np.asarray(left.get(n, True)) for n in names}


def attempted(
    seen: Observation,
    choice: Choice,
    method: str,
    originals: Array,
    labels: Array,
    restarts: int,
    iterations: int | None,
    seed: int,
    tell: Callable[[float], None],
) -> Attempt:
    limit = iterations or 600

    def progress(start: int, iteration: int, loss: float, images: Array) -> None:
        tell((start + min(iteration / limit, 1)) / restarts)

    try:
        found = attack(
            seen, method=method, restarts=restarts, iterations=iterations, seed=seed,
            on_progress=progress,
        )  # fmt: skip
    except DataError as error:
        return Attempt(method, choice, seen.coordinates, None, None, note=error.what)
    scored = score(pictures(originals), pictures(found.images), span=seen.span)
    return Attempt(method, choice, seen.coordinates, found, scored, named(found.labels, labels))


def read(
    seen: Observation, choice: Choice, x: Array, y: Array, mask: int | None, seed: int
) -> Attempt:
    """An attack on ids."""
    try:
        found = find_words(seen, x, y, mask, seed)
    except DataError as error:
        return Attempt(TEXT, choice, seen.coordinates, None, None, note=error.what)
    label = idlg.labels(seen) if seen.batch == 1 and y.size == 1 else None
    count = 0 if label is None else named(label, y)
    return Attempt(found.method, choice, seen.coordinates, None, None, count, words=found)


def named(guessed: Array, labels: Array) -> int:
    """How many labels of a batch were found, in any order."""
    left = list(np.asarray(labels).ravel().tolist())
    for label in np.asarray(guessed).ravel().tolist():
        if label in left:
            left.remove(label)
    return int(np.asarray(labels).size - len(left))


def membership_of(
    program: Program, members: tuple[Any, Any], others: tuple[Any, Any]
) -> dict[str, Roc]:
    """By loss, and by the norm of gradients where the program computes those of single samples."""
    from .membership import loss_scores, norm_scores, sample_gradients

    trainer = program.load()
    found = {"loss": Roc.of(loss_scores(trainer, *members), loss_scores(trainer, *others))}
    if program.batch == 1 and "gradients" in program.entries:
        inside, outside = (sample_gradients(trainer, *part) for part in (members, others))
        found["gradient norm"] = Roc.of(norm_scores(inside), norm_scores(outside))
    return found


def described(program: Program, seen: Observation) -> str:
    scheme = f", update scheme {program.scheme.name}" if program.scheme is not None else ""
    return (
        f"{program.name} ({program.dtype}{scheme}, {program.parameters:,} parameters, of which "
        f"{sum(g.size for g in seen.gradients.values()):,} numbers in {len(seen.gradients)} "
        f"tensors are sent), batch {program.batch}"
    )


def check(
    attacks: Sequence[str], restarts: int, train: Any, test: Any, members: Any, others: Any
) -> None:
    if unknown := [name for name in attacks if name not in ATTACKS]:
        raise DataError(f"there is no attack {unknown[0]!r}", try_=", ".join(ATTACKS))
    if not attacks or restarts < 1:
        raise DataError("an audit needs an attack and a start", try_='attacks=("dlg",), restarts=4')
    for one, two, words in ((train, test, "train and test"), (members, others, "members, others")):
        if (one is None) != (two is None):
            raise DataError(f"one of {words} is missing", try_="both, or neither")


def check_finite(data: Mapping[str, Any]) -> None:
    """A number that is not finite would make every score behind it meaningless."""
    for name, arrays in data.items():
        for array in map(to_numpy, arrays or ()):
            wrong = 0 if array.dtype.kind != "f" else int((~np.isfinite(array)).sum())
            if wrong:
                raise DataError(f"{name} holds {wrong:,} numbers that are not finite")


class Work:
    """How much of an audit is done, for those who wait."""

    def __init__(self, report: Report | None, total: int) -> None:
        self.report, self.total, self.done, self.words = report, total, 0, ""

    def part(self, words: str) -> Work:
        self.words = words
        return self

    def __enter__(self) -> Callable[[float], None]:
        self.tell(0.0)
        return self.tell

    def __exit__(self, *_: object) -> None:
        self.done += 1
        self.words, words = "", self.words
        if self.report is not None:
            self.report(words, self.done / self.total)

    def tell(self, part: float) -> None:
        if self.report is not None:
            self.report(self.words, (self.done + min(max(part, 0.0), 1.0)) / self.total)
