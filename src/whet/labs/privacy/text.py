"""Words from one step of masked language modelling of an Encoder, batch 1.

Three attackers, the strongest first. Which of them has something to go by depends on what trains:

rows    the embedding trains: the rows with a gradient are the words; the gradient of the place they
        were added to is the same one, which gives their order
span    the first attention layer trains: its inputs span the rows of its gradient, so every word
        can be tried at every place (DAGER, Petrov et al. 2024, arXiv:2405.15586)
match   dummy embeddings are moved until the gradients match, then read as the nearest words (DLG;
        TAG, Deng et al. 2021, arXiv:2103.06819)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError
from .encoder import IGNORED, Encoder
from .gradients import Matching, Observation, one_thread
from .recovered import Array

ATTENTION = "layers.0.self_attn.in_proj_weight"
NOTHING = 1e-6  # of the largest row: a row of the embedding that is smaller has no gradient
ALIKE = 1e-3  # relative difference below which two gradients are the same one
ITERATIONS = 200
POLISHED = 3  # starts whose words are improved one by one
NEAREST = 4  # words that are tried in place of each when all else is done
SHARE = 0.01  # of the L1 norm in the distance of gradients, as TAG has it


@dataclass(frozen=True)
class RecoveredText:
    method: str
    tokens: Array  # int64 [length], hidden words filled in if the last layer tells them
    loss: float = 0.0  # how far the gradients of these are from those observed, if that was used
    seconds: float = 0.0
    evaluations: int = 0


def recover_text(
    observation: Observation, *, mask: int, method: str | None = None, seed: int = 0
) -> RecoveredText:
    """The sentence; by the strongest attacker that has something to go by, unless one is named."""
    start = time.process_time()
    model = observation.model
    if not isinstance(model, Encoder) or observation.batch != 1:
        raise DataError("this attack is on a batch of 1 of a whet.labs.privacy Encoder")
    seen = observation.gradients
    if method is None:
        method = "match"
        method = "span" if ATTENTION in seen else method
        method = "rows" if {"embed.weight", "place"} <= seen.keys() else method
    if method == "match":
        found = match(observation, model, mask, seed)
    elif method == "rows":
        found = RecoveredText(method, by_rows(seen["embed.weight"], seen["place"]))
    elif method == "span":
        found = RecoveredText(method, by_span(model, seen[ATTENTION], observation.shape[1]))
    else:
        raise DataError(f"there is no attack {method!r} on text", try_="rows, span, match")
    tokens = filled(found.tokens, hidden_words(observation, mask, found.tokens), mask)
    spent = time.process_time() - start
    return RecoveredText(method, tokens, found.loss, spent, found.evaluations)


def bag(embedding: Array) -> Array:
    """The words that occur: those whose row of the embedding has a gradient."""
    sizes = np.linalg.norm(embedding, axis=1)
    return np.flatnonzero(sizes > NOTHING * max(float(sizes.max()), 1e-30))


def by_rows(embedding: Array, places: Array) -> Array:
    """For every place the word with the same gradient; what is left are words that occur twice.

    The gradient of such a word is the sum over its places: those most like it are taken.
    """
    words = bag(embedding)
    rows, places = embedding[words].astype(np.float64), places.astype(np.float64)
    sizes = np.linalg.norm(rows, axis=1)
    apart = np.linalg.norm(rows[:, None] - places[None], axis=2) / sizes[:, None]
    alike = rows @ places.T / sizes[:, None]
    once = apart.min(axis=1) < ALIKE
    alike[once] = -np.inf
    found: Array = words[np.argmax(alike, axis=0)]
    found[apart[once].argmin(axis=1)] = words[once]
    return found


def by_span(model: Encoder, gradient: Array, length: int) -> Array:
    """For every place the word whose vector there is nearest to the span of the rows."""
    _, sizes, rows = np.linalg.svd(gradient.astype(np.float64), full_matrices=False)
    span = rows[: min(length, int((sizes > 1e-5 * sizes[0]).sum()))]
    with torch.no_grad():
        found = []
        for place in range(length):
            words = torch.zeros(len(model.embed.weight), length, model.embed.embedding_dim)
            words[:, place] = model.embed.weight
            vectors = model.first_input(words)[:, place].double().numpy()
            inside = np.square(vectors @ span.T).sum(1) / np.square(vectors).sum(1)
            found.append(int(np.argmax(inside)))
    return np.array(found)


def hidden_words(observation: Observation, mask: int, tokens: Array) -> list[int]:
    """What the step was to predict, from the gradient of the last layer's bias."""
    bias = observation.gradients.get("head.bias")
    count = int((tokens == mask).sum())
    return [] if bias is None else [int(word) for word in np.argsort(bias)[:count]]


def filled(tokens: Array, words: Sequence[int], mask: int) -> Array:
    whole = tokens.copy()
    places = np.flatnonzero(tokens == mask)[: len(words)]
    whole[places] = words[: len(places)]
    return whole


def match(observation: Observation, model: Encoder, mask: int, seed: int) -> RecoveredText:
    """One start with each place as the hidden one, since that is not known; the best match."""
    matching = Matching(observation, dtype=torch.float64)
    assert isinstance(matching.model, Encoder)
    matching.forward = matching.model.predict  # from embeddings, which can be moved
    with one_thread():
        places = range(observation.shape[1])
        found = [match_at(matching, model, observation, p, mask, seed) for p in places]
        standing = sorted(found, key=lambda f: f.loss)[:POLISHED]
        polished = [polish(matching, model, observation, f.tokens, mask) for f in standing]
    best = min(polished, key=lambda f: f.loss)
    total = sum(f.evaluations for f in [*found, *polished])
    return RecoveredText("match", best.tokens, best.loss, evaluations=total)


def polish(
    matching: Matching, model: Encoder, observation: Observation, tokens: Array, mask: int
) -> RecoveredText:
    """Swap two words, or take a similar one, as long as that brings the gradients closer."""
    table = model.embed.weight.detach().double()
    label = hidden_words(observation, mask, np.array([mask]))
    evaluations = 0

    def loss(words: tuple[int, ...]) -> float:
        nonlocal evaluations
        evaluations += 1
        given = torch.tensor(words)
        labels = torch.where(given == mask, label[0] if label else mask, IGNORED)
        found = matching.gradients(table[given][None], labels).detach()
        return float((found - matching.target).square().sum())

    best = tuple(int(word) for word in tokens)
    least, better = loss(best), True
    while better:
        better = False
        for other in neighbours(best, table, mask):
            if (value := loss(other)) < least:
                best, least, better = other, value, True
    return RecoveredText("match", np.array(best), least, evaluations=evaluations)


def neighbours(words: tuple[int, ...], table: Tensor, mask: int) -> list[tuple[int, ...]]:
    """Sentences that differ by a swap, or in one word that is like it or elsewhere in them."""
    found = []
    for i, j in itertools.combinations(range(len(words)), 2):
        swapped = list(words)
        swapped[i], swapped[j] = words[j], words[i]
        found.append(tuple(swapped))
    for i, word in enumerate(words):
        if word != mask:
            near = torch.cdist(table[word][None], table)[0].argsort()[1 : NEAREST + 1].tolist()
            found += [(*words[:i], w, *words[i + 1 :]) for w in {*near, *words} - {word, mask}]
    return list(dict.fromkeys(found))


def match_at(
    matching: Matching, model: Encoder, observation: Observation, place: int, mask: int, seed: int
) -> RecoveredText:
    length, table = observation.shape[1], model.embed.weight.detach().double()
    random = torch.Generator().manual_seed(seed * 1000 + place)
    z = table.std() * torch.randn(length, table.shape[1], generator=random, dtype=table.dtype)
    z.requires_grad_()
    word = hidden_words(observation, mask, np.array([mask]))
    labels = torch.full((length,), IGNORED)
    labels[place] = word[0] if word else mask
    fixed = torch.arange(length)[:, None] == place
    target, evaluations = matching.target, 0

    def loss() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        words = torch.where(fixed, table[mask], z)
        difference = matching.gradients(words[None], labels) - target
        return difference.square().sum() + SHARE * target.abs().mean() * difference.abs().sum()

    optimizer = torch.optim.LBFGS(
        [z], lr=1, max_iter=ITERATIONS, history_size=50, tolerance_grad=0, tolerance_change=0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        value = loss()
        (z.grad,) = torch.autograd.grad(value, [z])
        return value.detach()

    optimizer.step(closure)
    value = float(loss().detach())
    tokens = torch.cdist(z.detach(), table).argmin(1)
    tokens[place] = mask
    return RecoveredText("match", tokens.numpy(), value, evaluations=evaluations)


def recovered_tokens(truth: Array, found: Array) -> tuple[float, float]:
    """The share of words that were found at all, as a bag, and at their place."""
    left, hits = list(found), 0
    for word in truth:
        if word in left:
            left.remove(word)
            hits += 1
    return hits / len(truth), float(np.mean(truth == found))
