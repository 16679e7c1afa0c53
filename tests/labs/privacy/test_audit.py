"""Audits of tiny programs: what was attacked, what is said about it, and the page."""

from __future__ import annotations

import base64
import html.parser
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from whet.errors import DataError
from whet.labs.privacy.audit import Attempt, Audit, audit, both, named, span_of
from whet.labs.privacy.choices import defence
from whet.labs.privacy.costs import Trained
from whet.labs.privacy.encoder import Encoder, masked_step
from whet.labs.privacy.recovered import Recovered
from whet.labs.privacy.roc import Roc
from whet.labs.privacy.score import Score
from whet.labs.privacy.updates import sent_by
from whet.labs.privacy.verdict import about, about_words, labels_of, members_of
from whet.labs.privacy.words import Words


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(6 * 64, 3)
    )
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model.eval()


def samples(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images of 8 x 8, brighter on the side that the label says."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    x = rng.random((count, 1, 8, 8)) * 0.3
    x[np.arange(count), 0, :, 2 * y] += 0.7
    return x.astype(np.float32), y.astype(np.int64)


def compiled(batch: int = 1, accumulate: bool = True, lr: float = 0.1, **words: Any) -> Any:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x = torch.zeros(batch, 1, 8, 8)
    return whet.compile(model, (x,), optimizer=optimizer, accumulate=accumulate, **words)


@pytest.fixture(scope="module")
def found() -> Audit:
    x, y = samples(60)
    return audit(
        compiled(), x[:1], y[:1], attacks=("dlg", "analytic"), defences=("prune:0.99", "noise:100"),
        restarts=2, iterations=80, train=(x, y), test=samples(40, seed=1), train_steps=60,
    )  # fmt: skip


def test_an_undefended_update_is_recovered_and_strong_noise_is_not(found: Audit) -> None:
    plain, noisy = (
        next(a for a in found.of(n) if a.method == "dlg") for n in ("none", "noise:100")
    )
    assert plain.score is not None and plain.score.psnr[0] > 30 and plain.recovered == 1
    assert plain.coordinates == 6 * 9 + 6 + 3 * 384 + 3
    assert noisy.score is not None and noisy.recovered == 0
    assert found.verdict.startswith("Recovered: dlg reconstructed the sample")
    assert "The label leaked." in found.verdict
    assert found.sent == "gradients of one step"


def test_an_attacker_of_pruned_gradients_sees_what_was_left(found: Audit) -> None:
    (pruned, _) = found.of("prune:0.99")
    assert pruned.coordinates == (54 - 53) + (6 - 5) + (1152 - 1140) + (3 - 2)
    assert pruned.recovered == 0


def test_an_attack_that_does_not_apply_says_why_and_counts_for_nothing(found: Audit) -> None:
    (analytic,) = (a for a in found.of("none") if a.method == "analytic")
    assert analytic.found is None and analytic.failed and "linear layer" in analytic.note
    assert str(found).count("analytic: ") == 1


def test_training_behind_defences_is_measured(found: Audit) -> None:
    assert list(found.trained) == ["none", "prune:0.99", "noise:100"]
    assert found.trained["none"].accuracy > 0.6
    assert found.trained["noise:100"].accuracy < found.trained["none"].accuracy
    roc = found.trained["none"].members
    assert roc is not None and (roc.members, roc.others) == (60, 40)


class Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.sources += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(found: Audit, tmp_path: Path) -> None:
    text = found.write(tmp_path / "audit.html").read_text()
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags and "link" not in page.tags
    assert len(page.sources) > 4
    for source in page.sources:
        kind, data = source.split(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data)[:8] == b"\x89PNG\r\n\x1a\n"
    for words in ("prefers-color-scheme: dark", "width=device-width", "diverged starts",
                  "constant image", "TPR at 0.1 % FPR", "test accuracy", "seed 0"):  # fmt: skip
        assert words in text, words
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_what_the_attacks_take_for_a_gradient_is_said(found: Audit) -> None:
    words = "attacker who repeats the local steps"
    assert words not in found.html()
    assert words in replace(found, sent="change of the trained parameters").html()


def test_names_from_a_model_do_not_become_markup(found: Audit) -> None:
    bad = replace(found, program="<script>alert(1)</script>")
    assert "script" not in Page(bad.html()).tags


# What is sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["full", "last"])
def test_a_difference_after_one_step_is_the_gradient(update: str) -> None:
    x, y = samples(2)
    plain, _ = sent_by(compiled(2, update=update), x, y)
    change, words = sent_by(compiled(2, accumulate=False, update=update), x, y)
    assert words == "change of the trained parameters after one local step"
    assert plain.gradients.keys() == change.gradients.keys() and len(plain.gradients) in (2, 4)
    for name, gradient in plain.gradients.items():
        np.testing.assert_allclose(change.gradients[name], gradient, rtol=1e-3, atol=2e-5)
    assert plain.shape == change.shape and plain.classes == change.classes == 3


def normed() -> nn.Module:
    """Batch norms whose factors differ by channel."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Flatten(), nn.Linear(384, 3),
    )  # fmt: skip
    for norm in (model[1], model[4]):
        norm.running_var.copy_(torch.tensor([0.1, 0.5, 1.0, 4.0, 9.0, 25.0]))
        nn.init.uniform_(norm.weight, 0.5, 2)
    return model.eval()


@pytest.mark.parametrize("send", [None, whet.Send()])
@pytest.mark.parametrize("channels", [None, 0.5])
def test_a_norm_in_an_integer_parameter_is_taken_out_of_an_update(
    send: whet.Send | None, channels: float | None
) -> None:
    """At a rate that moves integers far, for their rounding; a few of them reach their limit."""
    rules = [whet.Rule("0.weight"), whet.Rule("3.weight", channels=channels), whet.Rule("7.*")]
    model, (x, y) = normed(), samples(1)
    options: dict[str, Any] = dict(
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0), update=whet.Scheme(rules),
        dtype="int8", calibrate=[torch.from_numpy(samples(32)[0])],
    )  # fmt: skip
    example = (torch.from_numpy(x),)
    plain, _ = sent_by(whet.compile(model, example, accumulate=True, **options), x, y)
    change, _ = sent_by(whet.compile(model, example, send=send, **options), x, y)
    for name in ("0.weight", "3.weight"):
        a, b = plain.gradients[name].ravel(), change.gradients[name].ravel()
        assert a.size == {"0.weight": 54, "3.weight": 27 if channels else 54}[name]
        large = np.abs(a) > 0.1 * np.abs(a).max()
        assert np.median(np.abs(b[large] / a[large] - 1)) < 0.1, name


def test_several_local_steps_are_seen_as_their_mean() -> None:
    x, y = samples(2)
    one, _ = sent_by(compiled(2, lr=1e-3), x, y, steps=1)
    five, words = sent_by(compiled(2, lr=1e-3), x, y, steps=5)
    assert words == "change of the trained parameters after 5 local steps on one batch"
    a, b = (np.concatenate([g.ravel() for g in s.gradients.values()]) for s in (one, five))
    assert 0 < np.linalg.norm(a - b) < 0.1 * np.linalg.norm(a)


def test_a_given_update_is_attacked_as_it_is() -> None:
    x, y = samples(1)
    program = compiled(lr=0.5)
    seen, _ = sent_by(program, x, y)
    update = {n: -0.5 * g for n, g in seen.gradients.items()}
    again, words = sent_by(program, x, y, update=update)
    assert words == "the update as given"
    for name, gradient in seen.gradients.items():
        np.testing.assert_allclose(again.gradients[name], gradient, rtol=1e-6)
    with pytest.raises(DataError, match=r"differ in 0\.bias"):
        sent_by(program, x, y, update={n: u for n, u in update.items() if n != "0.bias"})


def test_the_bytes_that_a_program_sends_are_attacked() -> None:
    x, y = samples(1)
    plain, _ = sent_by(compiled(), x, y)
    dense, words = sent_by(compiled(send=whet.Send()), x, y)
    assert "bytes that it sends after one local step (values as f32)" in words
    for name, gradient in plain.gradients.items():
        np.testing.assert_allclose(dense.gradients[name], gradient, rtol=1e-3, atol=2e-5)
    assert dense.masks == {}
    sparse, words = sent_by(compiled(send=whet.Send(clip=1e-3, top_k=0.1)), x, y)
    assert "clip=0.001, top_k=0.1" in words
    assert sparse.coordinates == round(0.1 * plain.coordinates)
    size = np.sqrt(sum(np.square(g).sum() for g in sparse.gradients.values()))
    assert 0.5e-3 / 0.1 < size <= 1.001e-3 / 0.1
    program = compiled(send=whet.Send(clip=1.0, noise=1.0))
    noisy = [sent_by(program, x, y, seed=s)[0] for s in (0, 0, 1)]
    a, b, c = (n.gradients["0.bias"] for n in noisy)
    assert (a == b).all() and (a != c).any()


def test_a_sparse_update_is_recovered_by_an_attacker_who_ignores_what_was_left_out() -> None:
    x, y = samples(1)
    program = compiled(send=whet.Send(top_k=0.5))
    found = audit(program, x, y, attacks=("dlg",), restarts=2, iterations=150)
    (attempt,) = found.attempts
    assert attempt.coordinates == 608 and found.sent.startswith("the ")
    assert attempt.score is not None and attempt.score.psnr[0] > 20, found.verdict


@pytest.mark.parametrize("send", [{"clip": 1e-2}, {"clip": 1e-2, "noise": 2e-3}])
def test_an_update_that_its_program_clips_is_recovered(send: dict[str, float]) -> None:
    """An attacker who is not told of the factor matches nothing and reports protection."""
    x, y = samples(1)
    program = compiled(send=whet.Send(**send))
    seen, _ = sent_by(program, x, y)
    assert seen.scaled and seen.noise == pytest.approx(send.get("noise", 0) * 1e-2 / 0.1)
    found = audit(program, x, y, attacks=("dlg",), restarts=1, iterations=100)
    assert found.verdict.startswith("Recovered: dlg"), found.verdict


def test_the_attacker_knows_the_noise_and_the_clipping_of_a_defence() -> None:
    x, y = samples(1)
    defences = ("clip:0.1", "dp:0.1:0.001")
    found = audit(compiled(), x, y, attacks=("dlg",), defences=defences, restarts=1, iterations=100)
    for name in defences:
        assert about(found, name).startswith("Recovered: dlg"), name


def test_masks_of_the_update_and_of_a_defence_are_joined() -> None:
    sent, left = {"a": np.array([True, True, False])}, {"a": np.array([True, False, True])}
    assert both(sent, left)["a"].tolist() == [True, False, False]
    assert both(sent, {})["a"].tolist() == [True, True, False]
    assert both({}, {}) == {}


def test_a_program_without_its_model_says_what_is_needed() -> None:
    x, y = samples(1)
    with pytest.raises(DataError, match="needs the PyTorch model"):
        audit(replace(compiled(), source=None), x, y)


# Words ------------------------------------------------------------------------------------------


def made(psnr: list[float], diverged: int = 0, labels: int = 0, **words: Any) -> Audit:
    """An audit of one attack with these scores; a constant image has 10 dB."""
    count, values = len(psnr), np.array(psnr)
    images = np.zeros((count, 1, 2, 2), np.float32)
    found = Recovered("dlg", images, np.zeros(count, int), (1.0, 1.0), diverged)
    score = Score(
        10 ** (-values / 10), values, values / 100, np.full(count, 10.0), np.arange(count)
    )
    attempt = Attempt("dlg", defence("none"), 10, found, score, labels)
    return Audit(
        "net", "gradients", images, np.zeros(count, int), (0, 1), 2, 0, (attempt,), **words
    )


def test_verdicts_promise_no_more_than_was_tested() -> None:
    assert about(made([25.0, 9.0]), "none").startswith(
        "Recovered: dlg reconstructed 1 of 2 samples"
    )
    assert about(made([16.0]), "none").startswith("Partly recovered: dlg came to 16.0 dB, 6.0")
    shapes = made([12.0])
    assert shapes.attempts[0].score is not None
    shapes.attempts[0].score.ssim[:] = 0.8  # in the wrong brightness
    assert about(shapes, "none").startswith("Partly recovered: dlg came to 12.0 dB, 2.0 dB above")
    hidden = about(made([12.0]), "none")
    assert hidden == "Not recovered by dlg with 2 starts each; this is not a proof."
    assert about(made([5.0], diverged=1), "none") == hidden
    lost = about(made([5.0], diverged=2), "none")
    assert lost == "Inconclusive: every start diverged. That is no sign of protection."
    # A picture that matches by luck after all starts diverged is no finding either.
    assert about(made([25.0], diverged=2), "none") == lost


def test_labels_are_counted_in_any_order() -> None:
    assert named(np.array([1, 1, 2]), np.array([2, 1, 0])) == 2
    assert labels_of(made([5.0, 5.0], labels=2), "none") == ["All 2 labels leaked."]
    assert labels_of(made([5.0, 5.0], labels=1), "none") == ["1 of 2 labels were found."]
    assert labels_of(made([5.0], labels=0), "none") == ["No label was found by these attacks."]


def test_a_picture_of_one_colour_has_a_range_to_be_scored_on() -> None:
    """On a range of nearly nothing, every guess would be black or white."""
    assert span_of(np.array([0.2, 0.7])) == (pytest.approx(0.2), pytest.approx(0.7))
    assert span_of(np.zeros(3)) == (0, 1) and span_of(np.full(3, 5.0)) == (4.5, 5.5)


def test_values_that_are_no_classes_are_not_counted_as_labels() -> None:
    found = replace(made([25.0]), labels=np.array([0.3]))
    assert labels_of(found, "none") == []
    assert "0 of 1" not in str(found)


def test_the_accuracy_after_training_stands_beside_its_membership() -> None:
    """A model that learned nothing remembers nobody, and that is no finding."""
    rng = np.random.default_rng(0)
    roc = Roc.of(rng.normal(size=100), rng.normal(size=100))
    (words,) = members_of(made([5.0], trained={"none": Trained(0.15, roc)}))
    assert words.startswith("Membership was not inferred: by loss after training (test accuracy")
    assert "15.0%" in words


def test_a_few_members_who_stand_out_are_a_leak() -> None:
    """On average they are as the others, and 30 of 1,000 are known for certain."""
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(-0.05, 1, 1000), rng.normal(size=4000)
    inside[:30] = 9.0
    roc = Roc.of(inside, outside)
    assert roc.auc < 0.5 + 1.96 * roc.auc_error
    (words,) = members_of(made([5.0], membership={"loss": roc}))
    assert words.startswith("Membership leaks: by loss, AUC 0.4") and "at 1% false" in words
    few = Roc.of(np.append(np.ones(56), [9.0] * 4), np.ones(40))
    (words,) = members_of(made([5.0], membership={"loss": few}))
    assert "not inferred" in words, "40 others do not show how rare such scores are"


def test_membership_is_said_to_leak_only_above_its_error() -> None:
    rng = np.random.default_rng(0)
    none = Roc.of(rng.normal(size=100), rng.normal(size=100))
    some = Roc.of(rng.normal(1, 1, 200), rng.normal(size=200))
    (words,) = members_of(made([5.0], membership={"loss": none}))
    assert "not inferred" in words and "100 members, 100 others" in words
    (words,) = members_of(made([5.0], membership={"loss": none, "norm": some}))
    assert words.startswith("Membership leaks: by norm, AUC 0.7")
    assert members_of(made([5.0])) == []


# Defences by name -------------------------------------------------------------------------------


def test_defences_by_name_do_what_they_say() -> None:
    gradients = {"w": np.array([[3.0, -4.0], [0.1, 0.0]], np.float32)}
    assert defence("none").apply(gradients, 0).gradients["w"].tolist() == gradients["w"].tolist()
    kept = defence("prune:0.5").apply(gradients, 0).gradients["w"]
    np.testing.assert_allclose(kept, [[3, -4], [0, 0]])
    assert np.linalg.norm(defence("clip:1").apply(gradients, 0).gradients["w"]) == pytest.approx(1)
    noisy = [defence("dp:1:0.5").apply(gradients, seed) for seed in (0, 0, 1)]
    assert noisy[0].absolute == 0.5
    a, b, c = (n.gradients["w"] for n in noisy)
    assert (a == b).all() and (a != c).all()
    assert defence("prune:0.9").words == "the smallest 90 % of each tensor set to zero"
    assert defence("top-k:0.01").words == "only the largest 1 % sent"


@pytest.mark.parametrize("text", ["gauss:1", "prune", "prune:a", "dp:1", "fp16:2", ""])
def test_unknown_defences_are_refused(text: str) -> None:
    with pytest.raises(DataError, match=re.escape("dp:1:0.5")):
        defence(text)


@pytest.mark.parametrize(
    "words",
    [{"attacks": ("dlg", "gan")}, {"attacks": ()}, {"restarts": 0}, {"train": (1, 2)},
     {"members": (1, 2)}, {"defences": ("gauss",)}, {"defences": ("prune:1.5",)},
     {"defences": ("noise:nan",)}],
)  # fmt: skip
def test_audits_that_cannot_be_are_refused_before_any_work(words: dict[str, Any]) -> None:
    x, y = samples(1)
    with pytest.raises(DataError):
        audit(None, x, y, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x", "update", "train", "test", "members", "others"])
def test_data_that_are_not_finite_are_refused_before_any_work(name: str) -> None:
    x, y = samples(4)
    bad = x.copy()
    bad[2, 0, 1, 1] = np.nan
    whole: dict[str, Any] = {n: (x, y) for n in ("train", "test", "members", "others")}
    words = {"update": {"update": {"0.bias": bad}}, "x": {}}.get(name, whole | {name: (bad, y)})
    with pytest.raises(DataError, match=f"^{name}.* not finite"):
        audit(None, bad if name == "x" else x, y, **words)  # type: ignore[arg-type]


# Words of a sentence ----------------------------------------------------------------------------


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(50, 6), nn.Linear(6, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(ids).mean(1))


def test_an_embedding_that_trains_tells_which_words_occur() -> None:
    x, y = torch.tensor([[3, 7, 7, 41, 12]]), torch.tensor([1])
    program = whet.compile(Classifier().eval(), (x,), accumulate=True)
    found = audit(program, x, y, defences=("noise:20",))
    plain, noisy = (a.words for a in found.attempts)
    assert plain is not None and noisy is not None
    assert {*plain.found.tolist()} == {3, 7, 12, 41} and (plain.known, plain.distinct) == (4, 4)
    assert noisy.known < 4
    expected = "Recovered: embedding rows found 4 of 4 distinct tokens. The label leaked."
    assert found.verdict == expected
    assert "<b>41</b>" in found.html() and Page(found.html()).open == []


def test_words_that_a_guess_finds_are_not_recovered() -> None:
    """Of twelve ids, ten that are named at random hold most of those that occur."""
    truth, found = np.arange(10), np.arange(2, 12)
    few = Words("embedding rows", truth, found, False, vocabulary=12)
    assert few.known == 8
    assert about_words(few).startswith("Not recovered") and "a guess finds 8.3" in about_words(few)
    assert about_words(replace(few, vocabulary=1000)).startswith("Recovered")


def test_a_frozen_embedding_does_not() -> None:
    x, y = torch.tensor([[3, 7, 7, 41, 12]]), torch.tensor([1])
    program = whet.compile(Classifier().eval(), (x,), update="last", accumulate=True)
    found = audit(program, x, y)
    assert found.verdict.startswith("Inconclusive: no attack applies")
    assert "text: no embedding trains" in str(found)


def test_a_sentence_of_masked_language_modelling_is_read() -> None:
    model = Encoder(vocabulary=60, length=6, width=16, layers=1, heads=2)
    tokens = torch.tensor([[5, 17, 3, 42, 9, 28]])
    x, y = masked_step(tokens, [2], mask=0)
    program = whet.compile(model, (x,), labels=y, accumulate=True)
    found = audit(program, x, y, mask=0)
    (words,) = (a.words for a in found.attempts)
    assert words is not None and words.truth.tolist() == tokens[0].tolist()
    assert words.placed == 6
    assert "6 of 6 places" in found.verdict
