"""The findings of an audit in words, for people and for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .roc import LEVELS, Roc, Z, wilson
from .score import RECOVERED

if TYPE_CHECKING:
    from .audit import Attempt, Audit
    from .words import Words

CLOSER = 3.0  # dB above the constant image: half of its squared error
AFTER = "loss after training"
ALIKE = 0.5  # SSIM from which shapes show, even in the wrong brightness; a constant image has none


def verdict(audit: Audit) -> str:
    """About the update as it is sent, without a defence."""
    return " ".join([about(audit, "none"), *labels_of(audit, "none"), *members_of(audit)])


def about(audit: Audit, defence: str) -> str:
    """What became of the samples behind one defence: the best attack counts."""
    attempts = audit.of(defence)
    total = len(audit.labels)
    if texts := [a.words for a in attempts if a.words is not None]:
        return about_words(texts[0])
    judged = [a for a in attempts if a.score is not None and not a.failed]
    if best := [a for a in judged if a.recovered]:
        a = max(best, key=lambda a: (a.recovered, a.gain))
        assert a.score is not None
        return (
            f"Recovered: {a.method} reconstructed {share(a.recovered, total)} "
            f"({a.score.best:.1f} dB at best; {RECOVERED:g} dB count as recognisable, a constant "
            f"image has {a.score.baseline[int(a.score.psnr.argmax())]:.1f} dB there)."
        )
    if not judged:
        reason = "every start diverged" if any(a.found for a in attempts) else "no attack applies"
        return f"Inconclusive: {reason}. That is no sign of protection."
    names = " and ".join(dict.fromkeys(a.method for a in judged))
    starts = "1 start" if audit.restarts == 1 else f"{audit.restarts} starts"
    words = f"by {names} with {starts} each; this is not a proof"
    a = max(judged, key=lambda a: (a.alike >= ALIKE, a.gain))
    assert a.score is not None
    if a.gain > CLOSER or a.alike >= ALIKE:
        return (
            f"Partly recovered: {a.method} came to {a.score.best:.1f} dB, {a.gain:.1f} dB above a "
            f"constant image and short of {RECOVERED:g} dB, with an SSIM of {a.alike:.2f}. Not "
            f"more was recovered {words}."
        )
    return f"Not recovered {words}."


def about_words(words: Words) -> str:
    """Half of the words count as recovered, if they are twice as many as a guess finds."""
    tested = "this is not a proof"
    if not words.ordered and words.known < 2 * words.guessed:
        return (
            f"Not recovered by {words.method}: it found {words}, a guess finds "
            f"{words.guessed:.1f}; {tested}."
        )
    if 2 * words.known >= words.distinct:
        return f"Recovered: {words.method} found {words}."
    if words.known:
        return f"Partly recovered: {words.method} found {words}; {tested}."
    return f"Not recovered by {words.method}; {tested}."


def labels_of(audit: Audit, defence: str) -> list[str]:
    found = [a for a in audit.of(defence) if a.found is not None or a.words is not None]
    if not found or not classes(audit) or (audit.labels < 0).any():  # words to be predicted
        return []
    most, total = max(a.labels for a in found), audit.labels.size
    if most == 0:
        return ["No label was found by these attacks."]
    if most == total:
        return ["The label leaked." if total == 1 else f"All {total} labels leaked."]
    return [f"{most} of {total} labels were found."]


def members_of(audit: Audit) -> list[str]:
    """The strongest membership attack; one that is within its error of guessing is said to be.

    A few members who stand out leave the AUC where it was, so the rate at few false positives
    counts as well.
    """
    known = dict(audit.membership)
    if "none" in audit.trained and (after := audit.trained["none"].members) is not None:
        known[AFTER] = after
    if not known:
        return []
    name, roc = max(known.items(), key=lambda item: (stands_out(item[1]), item[1].auc))
    rate = roc.tpr_at(LEVELS[0])
    beside = f" (test accuracy {audit.trained['none']})" if name == AFTER else ""
    if not stands_out(roc) and roc.auc < 0.5 + Z * roc.auc_error:
        words = f"Membership was not inferred: by {name}{beside}, AUC {roc.auc:.3f} is within the"
        return [f"{words} error of guessing ({roc.members} members, {roc.others} others)."]
    return [
        f"Membership leaks: by {name}{beside}, AUC {roc.auc:.3f}; {rate.value:.1%} of members are "
        f"found at {rate.level:.0%} false positives."
    ]


def stands_out(roc: Roc) -> bool:
    """Whether more members than others are found at few false positives, both at their bounds."""
    rate = roc.tpr_at(LEVELS[0])
    return rate.low > wilson(rate.false, rate.others)[1]


def share(count: int, total: int) -> str:
    return "the sample" if total == 1 else f"{count} of {total} samples"


def row(audit: Audit, a: Attempt) -> tuple[str, ...]:
    """One attempt as cells, those of HEAD."""
    seen = a.defence.words, a.method, f"{a.coordinates:,}"
    if a.words is not None:
        return (*seen, str(a.words), *[""] * 5)
    if a.found is None or a.score is None:
        return (*seen, "does not apply", *[""] * 5)
    s, starts = a.score, len(a.found.losses)
    return (
        *seen,
        "inconclusive" if a.failed else f"{a.recovered} of {len(s.psnr)}",
        f"{a.found.diverged} of {starts}" if starts else "no search",
        f"{s.mse.mean():.2g}",
        f"{s.mean:.1f} ({s.baseline.mean():.1f})",
        f"{s.ssim.mean():.2f}",
        f"{a.labels} of {audit.labels.size}" if classes(audit) else "",
    )


def classes(audit: Audit) -> bool:
    """Whether the labels are classes, which an attacker can name."""
    return audit.labels.dtype.kind in "iu"


HEAD = (
    "defence", "attack", "numbers seen", "recovered", "diverged starts", "MSE",
    "PSNR, dB (constant image)", "SSIM", "labels found",
)  # fmt: skip


def notes(audit: Audit) -> list[str]:
    """Why some attacks do not apply, each said once."""
    return list(dict.fromkeys(f"{a.method}: {a.note}" for a in audit.attempts if a.note))


def as_text(audit: Audit) -> str:
    """For a terminal."""
    lines = [f"update    {audit.sent}", f"of        {audit.program}", ""]
    lines += columns([HEAD, *(row(audit, a) for a in audit.attempts)])
    lines += [f"{note}" for note in notes(audit)]
    if audit.trained:
        lines += ["", f"accuracy {audit.training}"]
        lines += columns([(c.words, str(audit.trained[c.name])) for c in audit.defences])
    for name, roc in audit.rocs.items():
        lines += ["", f"membership by {name}:", f"  {roc}"]
    return "\n".join([*lines, "", audit.verdict])


def columns(table: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    ]
