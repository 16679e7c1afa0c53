"""Programs for sequences of several lengths: each is that of a program for this length alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import agreement  # noqa: F401  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

import whet
from whet.errors import DataError, FrontendError
from whet.llm import Task, causal_lm_loss, pad
from whet.models import Llama, LlamaConfig

WORDS = 37
CONFIG = LlamaConfig(
    vocabulary=WORDS, width=16, hidden=24, blocks=2, heads=2, kv_heads=1, head=8, tied=True
)
IDS = torch.randint(WORDS, (2, 16), generator=torch.Generator().manual_seed(0))

t.logging.set_verbosity_error()


def llama(length: int, lengths: tuple[int, ...] = (), **options: Any) -> whet.Program:
    torch.manual_seed(0)
    ids = IDS[:, :length]
    how: dict[str, Any] = {"update": "sparse-1", "optimizer": "adam", "accumulate": True}
    return whet.compile(
        Llama(CONFIG).eval(), (ids,), loss=causal_lm_loss, labels=ids, lengths=lengths,
        **how | options,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param(
            {"update": "lora", "frozen": "q8_0", "clip_norm": 0.1}, marks=pytest.mark.slow
        ),
    ],
)
def test_every_length_has_the_bits_of_its_own_program(options: dict[str, Any]) -> None:
    """One after the other, on the same weights and moments."""
    program = llama(16, (8, 16), **options)
    assert program.lengths == (8, 16)
    single = {n: llama(n, **options).load() for n in program.lengths}
    assert program.arena == single[16].program.arena
    assert program.memory["trained"] == single[16].program.memory["trained"]
    together = program.load()
    state = together._read()
    for length in (16, 8, 16, 8):
        ids, alone = IDS[:, :length], single[length]
        alone._write(state)
        np.testing.assert_array_equal(together.predict(ids), alone.predict(ids))
        assert together.step(ids, ids) == alone.step(ids, ids)
        assert together.gradients(ids, ids) == alone.gradients(ids, ids)
        for trainer in (together, alone):
            trainer.apply()
        state = together._read()
        for name, array in alone._read().items():
            np.testing.assert_array_equal(array, state[name], err_msg=name)


def test_a_mask_is_as_long_as_the_ids(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = t.BertConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, num_labels=3,
    )  # fmt: skip
    model = Task(t.BertForSequenceClassification(config).eval())
    y = torch.tensor([2, 0])
    given = pad([[5, 6, 7], [8, 9]], 12)
    program = whet.compile(model, (given.ids, given.mask), labels=y, lengths=(4, 12))
    program = whet.load(program.save(tmp_path / "net.whet"))
    trainer = program.load()
    for rows, length in (([[5, 6, 7], [8, 9]], 4), ([[5, 6, 7, 8, 9], [1]], 12)):
        ids, mask, _ = pad(rows, program.lengths)
        assert ids.shape == (2, length)
        right = [model(torch.tensor([row]), torch.ones(1, len(row)).long())[0] for row in rows]
        scores = torch.stack(right)
        np.testing.assert_allclose(trainer.predict((ids, mask)), scores.detach(), atol=1e-6)
        wanted = nn.functional.cross_entropy(scores, y).item()
        assert trainer.step((ids, mask), y, lr=0.0) == pytest.approx(wanted, rel=1e-5)


def test_lengths_that_there_are_not() -> None:
    trainer = llama(16, (8,)).load()
    for length, hint in ((5, r"whet.llm.pad\(sequences, 8\)"), (17, "cut them to 16")):
        ids: Tensor = torch.zeros(2, length, dtype=torch.int64)
        what = f"(?s)the sequences have length {length}, the program takes 8, 16.*{hint}"
        with pytest.raises(DataError, match=what):
            trainer.step(ids, ids)
        with pytest.raises(DataError, match=what):
            trainer.predict(ids)
    with pytest.raises(DataError, match="sequence 0 has 17 tokens; there is room for 16"):
        pad([range(17)], trainer.program.lengths)
    with pytest.raises(DataError, match="there are no lengths"):
        pad([range(3)], ())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lengths": (17,)}, "17 is not a length of sequences up to that of the example, 16"),
        ({"lengths": (0,)}, "0 is not a length"),
        ({"lengths": (True,)}, "True is not a length"),
        ({"lengths": 8}, "lengths=8 is not a tuple of lengths"),
        ({"lengths": (8,), "target": "cortex-m7"}, "cortex-m7 has its inputs in the arena"),
        ({"lengths": (8,), "cache_prefix": True}, "keeps has one length"),
    ],
)
def test_what_lengths_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(FrontendError, match=words):
        llama(16, **options)


def test_lengths_are_of_sequences() -> None:
    layer, x = nn.Linear(5, 3), torch.zeros(2, 5)
    with pytest.raises(FrontendError, match=r"lengths= is for sequences of ids"):
        whet.compile(layer, (x,), lengths=(3,))
