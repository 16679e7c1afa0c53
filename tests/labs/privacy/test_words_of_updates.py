"""Words from the gradients of an encoder, by each of the attackers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from whet.errors import DataError
from whet.labs.privacy import Encoder, Observation, masked_step, observe, recover_text
from whet.labs.privacy.text import bag, recovered_tokens

MASK, LENGTH = 1, 5
SENTENCE = torch.tensor([[17, 42, 9, 42, 80]])  # a word occurs twice
LAYERS = whet.Scheme([whet.Rule("layers.*"), whet.Rule("head.*")])


def seen(update: Any, width: int = 16) -> Observation:
    model = Encoder(vocabulary=100, length=LENGTH, width=width, layers=1, heads=2)
    x, y = masked_step(SENTENCE, [2], MASK)
    program = whet.compile(
        model, (x,), loss=nn.CrossEntropyLoss(), labels=y, update=update, accumulate=True
    )
    return observe(program, x, y)


def test_the_rows_of_an_embedding_name_the_words_and_their_order() -> None:
    observation = seen("full")
    assert bag(observation.gradients["embed.weight"]).tolist() == [1, 17, 42, 80]
    found = recover_text(observation, mask=MASK)
    assert found.method == "rows"
    assert found.tokens.tolist() == SENTENCE[0].tolist(), "the hidden word 9 included"


def test_the_span_of_the_first_layer_names_them_if_the_embedding_does_not_train() -> None:
    found = recover_text(seen(LAYERS), mask=MASK)
    assert found.method == "span" and found.tokens.tolist() == SENTENCE[0].tolist()


@pytest.mark.slow
def test_matching_finds_most_words() -> None:
    found = recover_text(seen(LAYERS, width=64), mask=MASK, method="match")
    some, placed = recovered_tokens(SENTENCE[0].numpy(), found.tokens)
    assert some >= 0.8 and placed >= 0.6 and found.evaluations > 100


def test_a_last_layer_tells_the_hidden_word_only() -> None:
    observation = seen("last")
    assert int(np.argmin(observation.gradients["head.bias"])) == 9


def test_words_are_counted_as_a_bag_and_at_their_place() -> None:
    truth, found = np.array([5, 6, 6, 7]), np.array([6, 5, 6, 6])
    assert recovered_tokens(truth, found) == (0.75, 0.25)


def test_what_is_no_encoder_is_refused() -> None:
    observation = Observation({}, nn.Linear(2, 2), nn.CrossEntropyLoss(), (1, 2), 2)
    with pytest.raises(DataError, match="Encoder"):
        recover_text(observation, mask=MASK)
    with pytest.raises(DataError, match="there is no attack 'guess' on text"):
        recover_text(seen("full"), mask=MASK, method="guess")
