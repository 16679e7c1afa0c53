"""The page of an audit: one HTML file with its pictures inside, and no scripts."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...report.svg import escape
from .roc import Array, Rate, Roc, roc_svg
from .score import pixels
from .strip import png
from .updates import GRADIENTS
from .verdict import HEAD, about, labels_of, notes, row

if TYPE_CHECKING:
    from .audit import Attempt, Audit
    from .words import Words

SAMPLES = 8  # of a batch that are shown
SNAPSHOTS = 8  # of a search that are shown

STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --dim: #5c6670; --page: #ffffff; --card: #f4f5f7;
  --line: #d5d9de; --mark: #9b2c3a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7eb; --dim: #9aa5b0; --page: #14181c;
  --card: #1e242a; --line: #36404a; --mark: #ef8a96; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.2rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; } .dim, figcaption, caption { color: var(--dim); font-size: .85rem; }
.verdict { background: var(--card); border-left: 4px solid var(--mark); padding: .7rem 1rem;
  border-radius: 4px; margin: 1rem 0; font-size: 1.05rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { font-weight: 600; }
.row { display: flex; flex-wrap: wrap; gap: .6rem; margin: .5rem 0; }
figure { margin: 0; } figcaption { text-align: center; max-width: 8rem; }
img { image-rendering: pixelated; display: block; width: 6rem; height: auto; background: #888; }
.strip img { width: 4.6rem; }
details { margin: .4rem 0; } summary { cursor: pointer; }
"""


def page(audit: Audit) -> str:
    """Everything is escaped: names come from models and files."""
    parts = [
        "<h1>What this update tells about its data</h1>",
        paragraph(f"Attacked: {audit.sent} of {audit.program}.", "dim"),
        f'<div class="verdict">{escape(audit.verdict)}</div>',
        *reconstructions(audit),
        "<h2>Every attack</h2>",
        table(HEAD, [row(audit, a) for a in audit.attempts], merge=True),
        *(paragraph(words, "dim") for words in notes(audit)),
        paragraph(READING, "dim"),
        *behind_defences(audit),
        *members(audit.rocs),
        "<h2>What was and was not tested</h2>",
        *(paragraph(words, "dim") for words in limits(audit)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Leakage audit</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


READING = (
    "MSE, PSNR and SSIM are means over the batch, on pixels from 0 to 1, after each reconstruction "
    "was assigned to an original. In brackets: the PSNR of a constant image in the original's mean "
    "colour, which shows nothing. A start that diverged says nothing about the defence; the "
    "attacker drops it and picks among the others by how well the gradients match, without knowing "
    "the original."
)


def reconstructions(audit: Audit) -> list[str]:
    """The update without a defence: originals beside what each attack found."""
    parts = ["<h2>Original and reconstruction</h2>"]
    if texts := [a.words for a in audit.of("none") if a.words is not None]:
        return [*parts, *map(sentence, texts)]
    if audit.originals.dtype.kind != "f":
        return []
    originals = pictures(audit.originals)
    shown = [a for a in audit.of("none") if a.found is not None and a.score is not None]
    for i in range(min(len(originals), SAMPLES)):
        cells = [figure(originals[i], audit.span, caption(f"original {i + 1}", audit, i))]
        cells += [cell(audit, a, i) for a in shown]
        parts.append(f'<div class="row">{"".join(cells)}</div>')
    if len(originals) > SAMPLES:
        parts.append(paragraph(f"{len(originals) - SAMPLES} more are not shown.", "dim"))
    return [*parts, *(strip_of(audit, a) for a in shown)]


def sentence(words: Words) -> str:
    """Ids, those that were found in bold."""
    known = {*words.found.tolist()}
    marked = [f"<b>{t}</b>" if t in known else str(t) for t in words.truth.tolist()]
    found = " ".join(map(str, words.found.tolist()))
    return f"<p>original: {' '.join(marked)}</p><p>{escape(words.method)}: {found}</p>" + paragraph(
        "Token ids; those that were found are bold.", "dim"
    )


def caption(words: str, audit: Audit, i: int) -> str:
    flat = audit.labels.ravel()
    one = len(flat) == len(audit.originals) and flat.dtype.kind in "iu"
    return f"{words}, label {flat[i]}" if one else words


def cell(audit: Audit, a: Attempt, i: int) -> str:
    assert a.found is not None and a.score is not None
    at = int(a.score.order[i])
    words = f"{a.method}, {a.score.psnr[i]:.1f} dB"
    if a.failed:
        words += ", all starts diverged"
    return figure(pictures(a.found.images)[at], audit.span, words)


def strip_of(audit: Audit, a: Attempt) -> str:
    """Snapshots of the chosen start, for the sample that came out best."""
    assert a.found is not None and a.score is not None
    history = a.found.history
    if len(history) < 2:
        return ""
    best = int(np.argmax(a.score.psnr))
    at = int(a.score.order[best])
    places = np.unique(np.rint(np.geomspace(1, len(history), SNAPSHOTS)).astype(int) - 1)
    cells = [
        figure(pictures(history[i].images)[at], audit.span, f"{history[i].iteration}")
        for i in places
    ]
    cells.append(figure(pictures(audit.originals)[best], audit.span, "original"))
    words = f"{a.method}: sample {best + 1} after so many iterations"
    return f'{paragraph(words, "dim")}<div class="row strip">{"".join(cells)}</div>'


def behind_defences(audit: Audit) -> list[str]:
    """One line for each defence: what became of the samples, the labels and the accuracy."""
    others = [c for c in audit.defences if c.name != "none"]
    if not others and not audit.trained:
        return []
    rows = []
    for choice in [c for c in audit.defences if c.name == "none"] + others:
        words = str(audit.trained.get(choice.name, ""))
        found = " ".join([about(audit, choice.name), *labels_of(audit, choice.name)])
        rows.append((choice.words, found, words))
    parts = ["<h2>Defences, and what they cost</h2>"]
    parts.append(table(("defence", "against the attacks above", "test accuracy"), rows))
    if audit.training:
        parts.append(paragraph(f"Accuracy: {audit.training}.", "dim"))
    for choice in others:
        shown = [a for a in audit.of(choice.name) if a.found is not None and a.score is not None]
        cells = [cell(audit, a, int(np.argmax(a.score.psnr))) for a in shown if a.score is not None]
        if cells:
            parts.append(
                f"<details><summary>{escape(choice.words)}</summary>"
                f'<div class="row">{"".join(cells)}</div></details>'
            )
    return parts


def members(found: Mapping[str, Roc]) -> list[str]:
    if not found:
        return []
    rows = []
    for name, roc in found.items():
        rates = [rate_words(roc.tpr_at(level)) for level in (0.01, 0.001)]
        rows.append((name, f"{roc.auc:.3f} ± {1.96 * roc.auc_error:.3f}", *rates))
    head = ("score", "AUC", "TPR at 1 % FPR", "TPR at 0.1 % FPR")
    some = next(iter(found.values()))
    words = (
        f"{some.members} members, {some.others} others. Intervals cover 95 %. To know a false "
        f"positive rate of 0.1 % to about a third takes {some.tpr_at(0.001).needed:,} non-members."
    )
    return [
        "<h2>Membership inference</h2>",
        roc_svg(found),
        table(head, rows),
        paragraph(words, "dim"),
    ]


def rate_words(rate: Rate) -> str:
    words = f"{rate.value:.1%} [{rate.low:.1%}, {rate.high:.1%}]"
    return words if rate.measurable else f"{words}, with no false positive at all"


def limits(audit: Audit) -> Iterable[str]:
    methods = ", ".join(dict.fromkeys(a.method for a in audit.attempts))
    seconds = sum(a.found.seconds for a in audit.attempts if a.found is not None)
    count = sum(a.found.evaluations for a in audit.attempts if a.found is not None)
    yield (
        f"Attacks: {methods}, {audit.restarts} starts each where the attack searches, seed "
        f"{audit.seed}; {count:,} evaluations of the gradients in {seconds:.0f} s of processor "
        "time. The attacker knows the model, its parameters, the loss and the shape of a batch."
    )
    if audit.sent != GRADIENTS:
        yield (
            "What was sent is how parameters changed. The attacks take it for a gradient, which it "
            "is after one step of plain SGD; an attacker who repeats the local steps, or knows the "
            "optimizer's rule, may recover more."
        )
    yield (
        "What was not recovered was not recovered by these attacks, on these samples, with this "
        "many starts. Stronger priors, more starts, several updates of one client or a server that "
        "chooses the parameters may recover more. Only an account of differential privacy bounds "
        "what any attack can learn."
    )


def figure(image: Array, span: tuple[float, float], words: str) -> str:
    data = pixels(image, span)
    channels = data if len(data) == 3 else data[:1]
    colour = np.broadcast_to(channels, (3, *channels.shape[1:])).transpose(1, 2, 0)
    address = "data:image/png;base64," + base64.b64encode(png(colour)).decode()
    text = escape(words)
    alt = text.replace('"', "&quot;")
    return f'<figure><img alt="{alt}" src="{address}"><figcaption>{text}</figcaption></figure>'


def pictures(array: Any) -> Array:
    """[batch, channels, height, width]; signals and vectors become pictures of one channel."""
    found = np.asarray(array, np.float32)
    if found.ndim == 4:
        return found
    if found.ndim == 3:
        return found[:, None]
    return found.reshape(len(found), 1, 1, -1)


def paragraph(words: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(words)}</p>' if kind else f"<p>{escape(words)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], merge: bool = False) -> str:
    """Columns that are empty in every row are left out; `merge` joins equal first cells."""
    used = [i for i in range(len(head)) if any(cells[i] for cells in rows)]
    lines = ["".join(f"<th>{escape(head[i])}</th>" for i in used)]
    for at, cells in enumerate(rows):
        line = ""
        for i in used:
            if merge and i == 0:
                if at == 0 or rows[at - 1][0] != cells[0]:
                    same = equal(rows[at:])
                    line += f'<td rowspan="{same}">{escape(cells[0])}</td>'
                continue
            line += f"<td>{escape(cells[i])}</td>"
        lines.append(line)
    return f'<div class="wide"><table>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def equal(rows: Sequence[Sequence[str]]) -> int:
    """How many rows begin with the same cell as the first."""
    return next((i for i, cells in enumerate(rows) if cells[0] != rows[0][0]), len(rows))
