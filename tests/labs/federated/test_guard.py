"""Hostile updates: each is refused with a reason, and the global model does not move."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import whet
from hostile import hostile, put
from tiny import mlp
from whet.errors import DataError
from whet.labs.federated.guard import Guard
from whet.runtime.update import CODINGS, Update, coordinates, encode

Arrays = dict[str, np.ndarray]


@functools.cache
def program(seed: int = 0) -> whet.Program:
    return whet.compile(mlp(seed), (torch.zeros(4, 5),), update="last")


def model() -> Arrays:
    return {"w": np.ones((3, 2), np.float32), "b": np.zeros(3, np.float32)}


def moved(by: float) -> Arrays:
    return {name: array + np.float32(by) for name, array in model().items()}


def guard(**limits: float) -> Guard:
    found = Guard(program=program(), **limits)  # type: ignore[arg-type]
    found.begin(5, model())
    return found


def update(round: int = 5, value: float = 0.1, **other: Any) -> bytes:
    n, of = coordinates(program()), program().fingerprint
    given = {"fingerprint": of, "n": n, "values": np.full(other.get("n", n), value, np.float32)}
    return encode(Update(**({"round": round, "indices": None} | given | other)))


def nan(name: str) -> Arrays:
    found = moved(0.1)
    found[name].flat[1] = np.nan
    return found


def without_w() -> Arrays:
    return {"b": np.zeros(3, np.float32)}


HOSTILE: dict[str, tuple[Any, str]] = {
    "wrong shape": (
        moved(0.1) | {"w": np.ones((2, 3), np.float32)}, "'w' has shape (2, 3), the model (3, 2)"),
    "wrong type": (moved(0.1) | {"w": np.ones((3, 2))}, "'w' has dtype float64, the model float32"),
    "objects": (moved(0.1) | {"b": np.array([None] * 3)}, "'b' has dtype object"),
    "no array": (moved(0.1) | {"b": [0.0, 0.0, 0.0]}, "'b' is no array, but list"),
    "missing": (without_w(), "'w' is missing"),
    "unknown": (moved(0.1) | {"c": np.zeros(1)}, "'c' does not belong to the model"),
    "nan": (nan("b"), "'b' holds 1 numbers that are NaN or infinite"),
    "huge": (moved(1e30), "its norm is 3e+30, the limit is 2"),
    "huge update": (update(value=1e20), "the limit is 2"),
    "nan update": (put(36, "<f", float("nan"))(update()), "not finite: 1 of 27 values"),
    "cut update": (update()[:-1], "its checksum is wrong"),
    "no update": (b"\0" * 100, "it is not an update"),
    "foreign model": (
        update(fingerprint=program(1).fingerprint), "another model or scheme: its fingerprint"),
    "foreign size": (update(n=26), "it has 26 coordinates: this model has 27"),
    "replayed": (update(round=4), "it answers round 4, this is round 5: it is replayed"),
    "of tomorrow": (update(round=6), "from the future"),
    "decoded, foreign": (Update(1, 5, 27, None, np.ones(27)), "another model"),
    "decoded, nan": (Update(program().fingerprint, 5, 27, None, np.full(27, np.nan)), "not finite"),
    "something else": (7, "neither arrays nor an update, but int"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_updates_are_refused_with_a_reason(name: str) -> None:
    sent, words = HOSTILE[name]
    watch = guard(max_norm=2.0)
    for reason in (watch.admit("eve", sent), watch.sift({"eve": sent})["eve"]):
        assert reason is not None and reason.startswith("client eve: ") and words in reason
    assert watch.admit("bob", moved(0.1)) is None and watch.admit("ann", update()) is None


def test_an_update_is_taken_once_in_its_round() -> None:
    watch = guard()
    assert watch.admit("ann", update()) is None
    assert "already sent an update in round 5" in str(watch.admit("ann", update()))
    assert "already sent" in str(watch.sift({"ann": moved(0.1)})["ann"])
    watch.begin(6, model())
    assert "replayed" in str(watch.admit("ann", update()))
    assert "replayed" in str(watch.admit("ann", moved(0.1), round=5))
    assert watch.admit("ann", moved(0.1), round=6) is None
    with pytest.raises(DataError, match="round 6 does not come after round 6"):
        watch.begin(6, model())


def test_a_refused_client_may_try_again() -> None:
    watch = guard()
    assert watch.admit("ann", nan("w")) is not None and watch.admit("ann", moved(0.1)) is None


def test_norms_are_compared_with_the_median_of_the_round() -> None:
    sent = {i: moved(0.1) for i in range(4)} | {"eve": moved(1.5), "bob": moved(0.2)}
    found = guard(times_median=3.0).sift(sent)
    assert [client for client, reason in found.items() if reason] == ["eve"]
    assert found["eve"] == (
        "client eve: its norm is 4.5, more than 3 times the median of this round, 0.3"
    )
    backwards = guard(times_median=3.0).sift(dict(reversed(sent.items())))
    assert backwards == found, "whoever comes first"
    watch = guard(times_median=3.0)
    reasons = {client: watch.admit(client, arrays) for client, arrays in sent.items()}
    assert reasons == found, "one by one, from the fourth on"


@pytest.mark.parametrize("weight", [0, -3, float("nan"), float("inf"), 1001, "many", [1]])
def test_weights_are_positive_and_limited(weight: Any) -> None:
    watch = guard(max_weight=1000)
    assert "its weight is" in str(watch.admit("eve", moved(0.1), weight=weight))
    assert watch.admit("eve", moved(0.1), weight=1000) is None


def test_a_guard_has_to_be_set_up() -> None:
    with pytest.raises(DataError, match="no round has begun"):
        Guard().admit(1, moved(0.1))
    with pytest.raises(DataError, match=r"max_norm=-1\.0"):
        Guard(max_norm=-1.0)
    plain = Guard()
    plain.begin(1, model())
    assert "takes arrays by name" in str(plain.admit(1, update()))


def spoil(rng: random.Random) -> Arrays:
    """Arrays of which one thing or another is wrong, or nothing is."""
    arrays: dict[Any, Any] = moved(rng.choice([0.0, 0.1, 1e3, 3e38, -3e38]))
    name = rng.choice(["w", "b"])
    changes: list[Callable[[], Any]] = [
        lambda: arrays.pop(name),
        lambda: arrays.update({rng.choice([7, "x" * 999, "\udcff", ("a",)]): arrays[name]}),
        lambda: arrays.update({name: arrays[name].reshape(-1, 1)}),
        lambda: arrays.update({name: arrays[name].astype(rng.choice("bBhilefdFU?"))}),
        lambda: arrays.update({name: rng.choice([None, 3, "x", b"", [], {}, np.float32(1)])}),
        lambda: arrays[name].flat.__setitem__(0, rng.choice([np.nan, np.inf, -np.inf])),
        lambda: None,
    ]
    for _ in range(rng.randrange(3)):
        try:
            rng.choice(changes)()
        except (KeyError, AttributeError, ValueError, TypeError):
            pass  # the change does not apply to what the one before has left
    return arrays


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning", "ignore::RuntimeWarning")
def test_ten_thousand_fuzzed_updates_do_not_move_the_global_model() -> None:
    """All of them together: what is admitted is averaged, and only that."""
    rng, own = random.Random(1), model()
    before = {name: array.tobytes() for name, array in own.items()}
    watch = Guard(program=program(), max_norm=2.0)
    watch.begin(5, own)
    good = [update(), update(round=4), update(fingerprint=3)]
    good += [
        encode(Update(program().fingerprint, 5, 27, np.arange(k), np.ones(k), coding))
        for coding in CODINGS for k in (0, 1, 9)
    ]  # fmt: skip
    reasons: dict[str, int] = {}
    for client in range(10_000):
        sent = hostile(rng, good) if client % 2 else spoil(rng)
        reason = watch.admit(client, sent)
        if reason is None and isinstance(sent, dict):
            assert sent.keys() == own.keys()
            assert sum(np.square(sent[n] - own[n]).sum() for n in own) <= 4.0
        key = "admitted" if reason is None else reason.partition(": ")[2][:12]
        reasons[key] = reasons.get(key, 0) + 1
        assert {name: array.tobytes() for name, array in watch.model.items()} == before
    assert 500 < reasons["admitted"] < 5000 and len(reasons) > 10, reasons
