"""The findings of an audit in words, for people and for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .roc import Z
from .score import RECOVERED

if TYPE_CHECKING:
    from .audit import Attempt, Audit

CLOSER = 3.0  # dB above the constant image: half of its squared error


def verdict(audit: Audit) -> str:
    """About the update as it is sent, without a defence."""
    return " ".join([about(audit, "none"), *labels_of(audit, "none"), *members_of(audit)])


def about(audit: Audit, defence: str) -> str:
    """What became of the samples behind one defence: the best attack counts."""
    attempts = audit.of(defence)
    total = len(audit.labels)
    judged = [a for a in attempts if a.score is not None and not a.failed]
    if best := [a for a in judged if a.recovered]:
        a = max(best, key=lambda a: (a.recovered, a.gain))
        assert a.score is not None
        return (
            f"Recovered: {a.method} reconstructed {a.recovered} of {samples(total)} "
            f"({a.score.best:.1f} dB at best; {RECOVERED:g} dB count as recognisable, a constant "
            f"image has {a.score.baseline.max():.1f} dB)."
        )
    if not judged:
        if any(a.found is not None and not a.failed for a in attempts):
            return "The input is not an image, so its reconstruction was not scored."
        reason = "every start diverged" if any(a.found for a in attempts) else "no attack applies"
        return f"Inconclusive: {reason}. That is no sign of protection."
    a = max(judged, key=lambda a: a.gain)
    assert a.score is not None
    names = " and ".join(dict.fromkeys(a.method for a in judged))
    words = f"by {names} with {audit.restarts} starts each; this is not a proof"
    if a.gain > CLOSER:
        return (
            f"Partly recovered: {a.method} came {a.gain:.1f} dB closer than a constant image "
            f"({a.score.best:.1f} dB at best), short of {RECOVERED:g} dB. Not more was recovered "
            f"{words}."
        )
    return f"Not recovered {words}."


def labels_of(audit: Audit, defence: str) -> list[str]:
    found = [a for a in audit.of(defence) if a.found is not None]
    if not found or audit.labels.dtype.kind not in "iu":
        return []
    most, total = max(a.labels for a in found), audit.labels.size
    if most == 0:
        return ["No label was found by these attacks."]
    if most == total:
        return ["The label leaked." if total == 1 else f"All {total} labels leaked."]
    return [f"{most} of {total} labels were found."]


def members_of(audit: Audit) -> list[str]:
    """The strongest membership attack; one that is within its error of guessing is said to be."""
    if not audit.membership:
        return []
    name, roc = max(audit.membership.items(), key=lambda item: item[1].auc)
    rate = roc.tpr_at(0.01)
    if roc.auc < 0.5 + Z * roc.auc_error:
        words = f"Membership was not inferred: by {name}, AUC {roc.auc:.3f} is within the error"
        return [f"{words} of guessing ({roc.members} members, {roc.others} others)."]
    return [
        f"Membership leaks: by {name}, AUC {roc.auc:.3f}; {rate.value:.1%} of members are found "
        f"at {rate.level:.0%} false positives."
    ]


def samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"


def row(audit: Audit, a: Attempt) -> tuple[str, ...]:
    """One attempt as cells, those of HEAD."""
    accuracy = audit.accuracy.get(a.defence.name)
    cost = "" if accuracy is None else ("diverged" if math.isnan(accuracy) else f"{accuracy:.1%}")
    if a.found is None:
        return (a.defence.words, a.method, f"{a.coordinates:,}", a.note, "", "", "", "", "", cost)
    starts = len(a.found.losses)
    diverged = f"{a.found.diverged} of {starts}" if starts else "no search"
    label = f"{a.labels} of {audit.labels.size}"
    if a.score is None:
        scores: tuple[str, ...] = ("not scored", "", "", "")
    else:
        s = a.score
        share = f"{a.recovered} of {len(s.psnr)}"
        outcome = "inconclusive" if a.failed else share
        scores = (outcome, f"{s.mse.mean():.2g}", f"{s.mean:.1f} ({s.baseline.mean():.1f})",
                  f"{s.ssim.mean():.2f}")  # fmt: skip
    return (a.defence.words, a.method, f"{a.coordinates:,}", scores[0], diverged, *scores[1:],
            label, cost)  # fmt: skip


HEAD = (
    "defence", "attack", "numbers seen", "recovered", "diverged starts", "MSE",
    "PSNR, dB (constant image)", "SSIM", "labels found", "accuracy",
)  # fmt: skip


def as_text(audit: Audit) -> str:
    """For a terminal."""
    lines = [f"update    {audit.sent}", f"of        {audit.program}", ""]
    table = [HEAD, *(row(audit, a) for a in audit.attempts)]
    used = [i for i in range(len(HEAD)) if any(cells[i] for cells in table[1:])]
    widths = {i: max(len(cells[i]) for cells in table) for i in used}
    for cells in table:
        lines.append("  ".join(cells[i].ljust(widths[i]) for i in used).rstrip())
    for name, roc in audit.membership.items():
        lines += ["", f"membership by {name}: {roc}"]
    return "\n".join([*lines, "", audit.verdict])
