"""Tasks of language models: gradients and ten steps of AdamW are PyTorch's, for every model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agreement import prepared  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

import whet
from made_gguf import minilm
from whet.errors import DataError, FrontendError, NotFinite
from whet.llm import Pairs, Task, causal_lm_loss, pad, token_loss
from whet.models import Llama, LlamaConfig
from whet.report import CheckReport

t.logging.set_verbosity_error()

WORDS, LENGTH, CLASSES = 99, 12, 3
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
SIZES: dict[str, Any] = dict(
    vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=64, max_position_embeddings=64, num_labels=CLASSES, pad_token_id=0,
)  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Roberta": {},
    "DistilBert": dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "GPT2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False),
    "Llama": dict(num_key_value_heads=2, use_cache=False),
    "Qwen2": dict(num_key_value_heads=2, use_cache=False),
    "Mistral": dict(num_key_value_heads=2, use_cache=False),
}
SEEN = torch.Generator().manual_seed(0)
GIVEN = {
    IDS: torch.randint(3, WORDS, (2, LENGTH), generator=SEEN),
    MASK: torch.tensor([[1] * LENGTH, [1] * 8 + [0] * 4]),
    TYPES: torch.tensor([[0] * 5 + [1] * 7, [0] * 4 + [1] * 8]),
}
SENTENCES = torch.tensor([0, 2])
TAGS = torch.randint(0, CLASSES, (2, LENGTH), generator=SEEN).masked_fill(GIVEN[MASK] == 0, -100)
GAPS = GIVEN[IDS].masked_fill(torch.rand(2, LENGTH, generator=SEEN) < 0.6, -100)
NEXT = GIVEN[IDS].masked_fill(GIVEN[MASK] == 0, -100)

# Biases of keys; GPT-2's are a part of those of c_attn.
KEYS = r"\b(k(ey|_lin|_proj)|c_attn)\.bias$"


def model_of(kind: str, head: str) -> nn.Module:
    config = getattr(t, f"{kind}Config")(**(SIZES | OWN[kind]))
    return getattr(t, kind + head)(config)


def agrees(
    model: nn.Module, inputs: tuple[Tensor, ...], labels: Tensor, loss: Any = None
) -> CheckReport:
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    program = whet.compile(model, inputs, loss=loss, labels=labels, optimizer=adam, accumulate=True)
    report = program.check(steps=10)
    assert max(report.gradients.values()) < 1e-4
    # The gradient of a key's bias is zero in exact numbers, and AdamW divides its noise by itself.
    moved = {n: e for n, e in report.parameters.items() if not re.search(KEYS, n)}
    assert max(moved.values()) < 1e-3
    return report


ENCODERS = {"Bert": (IDS, MASK, TYPES), "Roberta": (IDS, MASK), "DistilBert": (IDS, MASK)}
DECODERS = ("GPT2", "Llama", "Qwen2", "Mistral")
HEADS: dict[str, tuple[Tensor, Any]] = {
    "ForSequenceClassification": (SENTENCES, None),
    "ForTokenClassification": (TAGS, token_loss),
    "ForMaskedLM": (GAPS, token_loss),
}
CASES: list[tuple[str, str, Sequence[str]]] = [
    *((kind, head, names) for kind, names in ENCODERS.items() for head in HEADS),
    *((kind, "ForSequenceClassification", (IDS, MASK)) for kind in DECODERS),
    *((kind, "ForCausalLM", names) for kind in DECODERS[1:] for names in ((IDS,), (IDS, MASK))),
    *(("GPT2", "LMHeadModel", names) for names in ((IDS,), (IDS, MASK))),
]
FAST = {("Bert", "ForTokenClassification"), ("Llama", "ForCausalLM"), ("GPT2", "LMHeadModel")}
FAST |= {("DistilBert", "ForMaskedLM")}  # of every task one; the others are alike


@pytest.mark.parametrize(
    ("kind", "head", "names"),
    [
        pytest.param(*case, marks=() if case[:2] in FAST else pytest.mark.slow,
                     id=f"{case[0]}{case[1]}-{len(case[2])}")
        for case in CASES
    ],
)  # fmt: skip
def test_tasks_train_as_in_pytorch(kind: str, head: str, names: Sequence[str]) -> None:
    torch.manual_seed(0)
    labels, loss = HEADS.get(head, (NEXT, causal_lm_loss))
    inputs = tuple(GIVEN[name] for name in names)
    agrees(prepared(Task(model_of(kind, head), names), *inputs), inputs, labels, loss)


ALIKE = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("Roberta", "DistilBert")]


@pytest.mark.parametrize("kind", ["Bert", *ALIKE])
def test_sentences_that_belong_together_are_learnt_as_in_pytorch(kind: str) -> None:
    torch.manual_seed(0)
    ids, mask = (torch.cat([GIVEN[name], GIVEN[name].flip(0)]) for name in (IDS, MASK))
    model = prepared(Pairs(model_of(kind, "Model")), ids, mask)
    assert model(ids, mask).shape == (2, 2) and model(ids, mask).abs().max() <= 20
    agrees(model, (ids, mask), torch.arange(2))


@pytest.mark.slow
def test_a_published_encoder_learns_which_sentences_belong_together() -> None:
    import tokenizers

    folder = minilm()
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.no_padding()
    texts = ["A cat sits on the mat.", "The stock market fell today.",
             "There is a kitten on the rug.", "Shares lost value this morning."]  # fmt: skip
    ids, mask, _ = pad([library.encode(text).ids for text in texts], 16)
    encoder = t.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    model = Pairs(encoder)
    scores = model(ids, mask) / 20
    assert scores.diagonal().min() > 0.5 and scores.fliplr().diagonal().max() < 0.2
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name.startswith("encoder.layer.5."))
    agrees(model, (ids, mask), torch.arange(2))


def test_a_vision_transformer_trains_as_in_pytorch() -> None:
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                 image_size=32, patch_size=8, num_labels=CLASSES)  # fmt: skip
    pictures = torch.randn(2, 3, 32, 32)
    task = Task(t.ViTForImageClassification(t.ViTConfig(**sizes)), ("pixel_values",))
    agrees(prepared(task, pictures), (pictures,), SENTENCES)


@pytest.mark.parametrize("kind", ["Bert", "GPT2", "Llama"])
def test_losses_are_those_of_transformers(kind: str) -> None:
    heads = {"Bert": "ForMaskedLM", "GPT2": "LMHeadModel", "Llama": "ForCausalLM"}
    model = model_of(kind, heads[kind]).eval()
    given = {name: GIVEN[name] for name in (IDS, MASK)}
    loss, labels = (token_loss, GAPS) if kind == "Bert" else (causal_lm_loss, NEXT)
    wanted = model(**given, labels=labels).loss
    ours = loss(Task(model)(*given.values()), labels)
    assert ours.item() == pytest.approx(wanted.item(), rel=1e-6)


def tiny(context: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return Llama(LlamaConfig(WORDS, 32, 48, 2, 4, 2, 8, context)).eval()


def program_for(length: int, batch: int = 1) -> whet.Program:
    ids = torch.arange(batch * length).reshape(batch, length) % WORDS
    model = tiny()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return whet.compile(
        model, (ids,), loss=causal_lm_loss, labels=ids, optimizer=sgd, accumulate=True
    )


@pytest.mark.parametrize("size", [2, 7, 11])
def test_a_padded_sequence_trains_as_the_sequence_itself(size: int) -> None:
    torch.manual_seed(1)
    sequence = torch.randint(0, WORDS, (size,)).tolist()
    long, short = program_for(16).load(), program_for(size).load()
    ids, _, labels = pad([sequence], 16, token=5)
    alone = torch.tensor([sequence])
    assert long.gradients(ids, labels) == pytest.approx(short.gradients(alone, alone), rel=1e-6)
    theirs = short.collected()
    whole = np.sqrt(sum(np.square(gradient).sum() for gradient in theirs.values()))
    for name, gradient in long.collected().items():  # that of a query with one key is 0
        size_of = max(np.linalg.norm(theirs[name]), 0.1 * whole)
        assert np.linalg.norm(gradient - theirs[name]) < 1e-5 * size_of, name
    np.testing.assert_allclose(
        long.predict(ids)[:, :size], short.predict(alone), rtol=1e-5, atol=1e-5
    )


def test_sequences_of_several_lengths_share_a_batch() -> None:
    """The loss is the mean over all labelled tokens."""
    rows = [[1, 2, 3, 4, 5, 6], [7, 8, 9]]
    ids, mask, labels = pad(rows, 16)
    assert ids.shape == mask.shape == labels.shape == (2, 16)
    assert mask.sum(1).tolist() == [6, 3] and labels[1, 3:].eq(-100).all()
    model = tiny()
    each = [causal_lm_loss(model(torch.tensor([row])), torch.tensor([row])).item() for row in rows]
    loss = program_for(16, batch=2).load().step(ids, labels, lr=0.0)
    assert loss == pytest.approx((5 * each[0] + 2 * each[1]) / 7, rel=1e-5)


def test_an_encoder_needs_the_mask_for_that() -> None:
    torch.manual_seed(0)
    model = Task(model_of("Bert", "ForMaskedLM")).eval()
    row, wanted = [[5, 6, 7, 8]], [[-100, 6, -100, 8]]
    ids, mask, labels = pad(row, 9, wanted)
    short = token_loss(model(torch.tensor(row), torch.ones(1, 4).long()), torch.tensor(wanted))
    program = whet.compile(model, (ids, mask), loss=token_loss, labels=labels)
    assert program.load().step((ids, mask), labels, lr=0.0) == pytest.approx(short.item(), rel=1e-5)


def test_sequences_that_do_not_fit() -> None:
    with pytest.raises(DataError, match=r"sequence 1 has 9 tokens; there is room for 8"):
        pad([[1], list(range(9))], 8)
    with pytest.raises(DataError, match="sequence 0 has 0 tokens"):
        pad([[]], 8)
    with pytest.raises(DataError, match="there are no sequences"):
        pad([], 8)
    with pytest.raises(DataError, match="as many labels as it has ids"):
        pad([[1, 2]], 8, [[1]])
    trainer = program_for(16).load()
    for size, hint in (
        (20, "cut it to 16, or compile with"),
        (9, r"whet.llm.pad\(sequences, 16\)"),
    ):
        ids = torch.zeros(1, size).long()
        what = rf"(?s)input has shape \(1, {size}\), the program was compiled for.*{hint}"
        with pytest.raises(DataError, match=what):
            trainer.step(ids, ids)
        with pytest.raises(DataError, match=what):
            trainer.predict(ids)


def test_ids_and_labels_out_of_range_are_refused() -> None:
    trainer = program_for(8).load()
    ids = torch.arange(8)[None]
    before = trainer.save()
    for wrong in (WORDS, -1, 2**31 - 1):
        bad = ids.clone()
        bad[0, 3] = wrong
        with pytest.raises(DataError, match="a label or id is out of range"):
            trainer.step(bad, ids)
        with pytest.raises(DataError, match="a label or id is out of range"):
            trainer.step(ids, bad)
        with pytest.raises(DataError, match="a label or id is out of range"):
            trainer.predict(bad)
    assert trainer.save() == before, "nothing was trained"
    skipped = ids.clone()
    skipped[0, 4:] = -100
    assert np.isfinite(trainer.step(ids, skipped, lr=0.0))


def test_labels_none_of_which_count_are_refused() -> None:
    torch.manual_seed(0)
    model = Task(model_of("Bert", "ForTokenClassification")).eval()
    given = (GIVEN[IDS], GIVEN[MASK])
    trainer = whet.compile(model, given, loss=token_loss, labels=TAGS).load()
    before = trainer.save()
    with pytest.raises(NotFinite, match="all of label is -100, which does not count"):
        trainer.step(given, torch.full_like(TAGS, -100))
    assert trainer.save() == before


def test_segments_out_of_range_are_refused() -> None:
    torch.manual_seed(0)
    model = Task(model_of("Bert", "ForTokenClassification"), (IDS, MASK, TYPES)).eval()
    given = tuple(GIVEN[name] for name in (IDS, MASK, TYPES))
    trainer = whet.compile(model, given, loss=token_loss, labels=TAGS).load()
    with pytest.raises(DataError, match=r"allowed are 0 to 1"):
        trainer.step((*given[:2], given[2] + 1), TAGS)
    with pytest.raises(DataError, match=r"allowed are 0 to 98"):
        trainer.step((given[0] + 90, *given[1:]), TAGS)
    with pytest.raises(DataError, match=r"allowed are 0 to 2, and -100 to be ignored"):
        trainer.step(given, TAGS.where(TAGS != 2, 3))


@pytest.mark.parametrize("hidden", [1, 2])
def test_a_sentence_that_is_all_padding_does_no_harm(hidden: int) -> None:
    """Nor does a batch of such: attention gives zeros, as in PyTorch, and no gradient is NaN."""
    torch.manual_seed(0)
    model = Task(model_of("Bert", "ForSequenceClassification")).eval()
    mask = GIVEN[MASK].clone()
    mask[-hidden:] = 0
    example = (GIVEN[IDS], GIVEN[MASK])
    trainer = whet.compile(model, example, labels=SENTENCES, accumulate=True).load()
    wanted = nn.functional.cross_entropy(model(GIVEN[IDS], mask), SENTENCES)
    wanted.backward()
    loss = trainer.gradients((GIVEN[IDS], mask), SENTENCES)
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    theirs = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    for name, gradient in trainer.collected().items():
        np.testing.assert_allclose(gradient, theirs[name], atol=1e-6, err_msg=name)


def test_queries_that_see_nothing_are_checked_where_float64_gives_nan() -> None:
    """The lowest float64 becomes -inf in the softmax, which is in float32 whatever the model is."""
    torch.manual_seed(0)
    sizes = SIZES | OWN["Llama"] | dict(num_hidden_layers=1)
    config = t.LlamaConfig(**sizes, attn_implementation="eager")
    model = Task(t.LlamaForSequenceClassification(config)).eval()
    given = (GIVEN[IDS], GIVEN[MASK].flip(1))
    report = whet.compile(model, given, labels=SENTENCES, update="sparse-1").check(steps=2)
    assert any("float64" in note for note in report.notes)
    assert max(report.gradients.values()) < 1e-4


def test_a_task_has_as_many_inputs_as_names() -> None:
    model = Task(model_of("Bert", "Model"))
    assert model(GIVEN[IDS], GIVEN[MASK]).shape == (2, LENGTH, 32), "no head: vectors"
    with pytest.raises(FrontendError, match="the task has 2 inputs, got 1"):
        model(GIVEN[IDS])
    with pytest.raises(FrontendError, match="'input_ids' is one name"):
        Task(model.model, "input_ids")
