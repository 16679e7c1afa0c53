"""Flower's strategies behind a guard, and compressed replies, with messages in this process."""

from __future__ import annotations

import functools
import random
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch

import whet
from hostile import hostile
from tiny import mlp
from whet.labs.federated.dgc import Compression
from whet.labs.federated.guard import Guard, Refused
from whet.labs.federated.guarded import guarded, npy, sift
from whet.labs.federated.mods import BLOB, STATE, dgc_mod, record
from whet.runtime.update import CODINGS, Update, encode, flatten

flwr = pytest.importorskip("flwr.app")
strategies = pytest.importorskip("flwr.serverapp.strategy")
identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
Client = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's processes know who they are; messages cannot be made without it."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(identity, name, 1)


@functools.cache
def program() -> whet.Program:
    return whet.compile(mlp(), (torch.zeros(4, 5),), update="last")


def start() -> dict[str, np.ndarray]:
    return program().load().arrays()


def answer(message: Any, arrays: Any, name: str = "arrays", **metrics: Any) -> Any:
    """A client's reply; arrays of any kind."""
    given = arrays if isinstance(arrays, flwr.ArrayRecord) else record(arrays)
    counted = flwr.MetricRecord({"num-examples": 10, "loss": 1.0} | metrics)
    return flwr.Message(flwr.RecordDict({name: given, "metrics": counted}), reply_to=message)


def received(message: Any) -> dict[str, np.ndarray]:
    return {n: a.numpy().copy() for n, a in message.content["arrays"].items()}


def honest(by: float) -> Client:
    return lambda m: answer(m, {n: a + np.float32(by) for n, a in received(m).items()})


class Nodes:
    """What a strategy needs of Flower's grid: every node is a function of its message."""

    def __init__(self, *clients: Client) -> None:
        self.clients = dict(enumerate(clients, start=1))

    def get_node_ids(self) -> Iterable[int]:
        return list(self.clients)

    def send_and_receive(self, messages: Iterable[Any], timeout: float = 0) -> list[Any]:
        return [self.clients[m.metadata.dst_node_id](m) for m in messages]


def run(nodes: Nodes, rounds: int = 1, strategy: Any = None, **limits: Any) -> tuple[Any, Any]:
    """The strategy afterwards, and the global model, None if it never moved."""
    few = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}
    fedavg = strategy or strategies.FedAvg(**few)
    behind = guarded(fedavg, Guard(program=program(), **limits))
    result = behind.start(nodes, record(start()), rounds)
    return behind, {n: a.numpy() for n, a in result.arrays.items()} if result.arrays else None


def test_honest_clients_are_averaged_as_without_a_guard() -> None:
    nodes = Nodes(honest(0.25), honest(0.75))
    behind, found = run(nodes, 3)
    plain = strategies.FedAvg(fraction_evaluate=0.0)
    theirs = plain.start(nodes, record(start()), 3).arrays
    assert behind.rejected == {1: {}, 2: {}, 3: {}}
    for name, array in theirs.items():
        assert np.array_equal(found[name], array.numpy()), name


def with_first(message: Any, change: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    arrays = received(message)
    name = next(iter(arrays))
    return arrays | {name: change(arrays[name])}


OLD = encode(Update(program().fingerprint, 0, 27, None, np.ones(27)))
FOREIGN = encode(Update(99, 1, 27, None, np.ones(27)))


def in_bytes(blob: bytes) -> Any:
    return record({BLOB: np.frombuffer(blob, np.uint8)})


HOSTILE: dict[str, tuple[Client, str]] = {
    "wrong shape": (
        lambda m: answer(m, with_first(m, np.ravel)), "has shape (24,), the model (3, 8)"),
    "nan": (lambda m: answer(m, with_first(m, lambda a: a * np.nan)), "24 numbers that are NaN"),
    "huge norm": (honest(1e10), "its norm is 5.196e+10, the limit is 10"),
    "foreign model": (lambda m: answer(m, in_bytes(FOREIGN)), "another model or scheme"),
    "replayed round": (lambda m: answer(m, in_bytes(OLD)), "it is of round 0: this is round 1"),
    "old round": (lambda m: answer(m, received(m), **{"server-round": 0}), "'s"),
    "foreign names": (
        lambda m: answer(m, received(m) | {"x": np.ones(3)}), "'x' does not belong to the model"),
    "float64": (lambda m: answer(m, with_first(m, np.float64)), "has dtype float64"),
    "weight": (lambda m: answer(m, received(m), **{"num-examples": -5}), "its weight is -5"),
    "metrics": (lambda m: answer(m, received(m), loss=[1.0]), "not those of the other replies"),
    "metric nan": (lambda m: answer(m, received(m), loss=float("nan")), "'loss' is not finite"),
    "rounds": (
        lambda m: answer(m, received(m), **{"server-round": [1]}), "those of the other replies"),
    "record": (lambda m: answer(m, received(m), "other"), "not those of the other replies"),
    "not bytes": (lambda m: answer(m, record({BLOB: np.ones(3)})), "not made of bytes"),
    "long": (lambda m: answer(m, in_bytes(bytes(99_999))), "at most 1,270 are expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_is_left_out_and_the_others_are_averaged(name: str) -> None:
    client, words = HOSTILE[name]
    behind, found = run(Nodes(honest(0.25), client, honest(0.75)), max_norm=10.0)
    if name == "old round":  # its metrics differ from the others' as well
        words = "not those of the other replies"
    assert list(behind.rejected[1]) == [2] and words in behind.rejected[1][2]
    for key, array in start().items():
        np.testing.assert_allclose(found[key], array + 0.5, rtol=1e-6)


def test_an_old_round_in_the_metrics_is_a_replay() -> None:
    behind, found = run(Nodes(lambda m: answer(m, received(m), **{"server-round": 0})))
    assert "it answers round 0, this is round 1: it is replayed" in behind.rejected[1][1]
    assert found is None


def test_if_all_are_refused_the_global_model_does_not_move() -> None:
    """Nor does it with a strategy that keeps momentum."""
    seen: list[bytes] = []

    def noting(message: Any) -> Any:
        seen.append(b"".join(a.tobytes() for a in received(message).values()))
        return HOSTILE["nan"][0](message)

    for strategy in (None, strategies.FedAdam(fraction_evaluate=0.0)):
        behind, found = run(Nodes(noting, honest(1e10)), 3, strategy, max_norm=1.0)
        assert found is None and [len(r) for r in behind.rejected.values()] == [2, 2, 2]
    assert len(set(seen)) == 1 and seen[0] == b"".join(a.tobytes() for a in start().values())


def test_a_crashed_client_does_not_stop_the_round() -> None:
    def crashed(message: Any) -> Any:
        return flwr.Message(flwr.Error(code=1, reason="gone"), reply_to=message)

    behind, found = run(Nodes(crashed, honest(0.5)))
    assert behind.rejected == {1: {}} and found is not None


def test_arrays_are_read_as_numpy_does() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (whole, whole.T, whole[0, 0], whole[0, 0, 0], whole[:0], whole.astype(">i2")):
        data = flwr.Array(np.asarray(array)).data
        found = npy(data, len(data), "w")
        assert np.array_equal(found, array) and found.dtype == array.dtype
        for wrong, words in ((data + b"x", "bytes, not those of"), (b"x" + data, "not an array")):
            with pytest.raises(Refused, match=words):
                npy(wrong, 999, "w")
    for odd in (np.array(["a"]), np.zeros(2, [("a", "i4")])):
        with pytest.raises(Refused, match="not an array of numbers"):
            npy(flwr.Array(odd).data, 999, "w")


def headed(shape: str) -> bytes:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


@pytest.mark.parametrize("shape", ["1" * 500, "1, " * 40, "1,,", "1", ",", "1, 2, "])
def test_a_shape_that_is_none_is_refused_at_once(shape: str) -> None:
    before = time.process_time()
    with pytest.raises(Refused, match="not an array of numbers"):
        npy(headed(shape), 9999, "w")
    assert time.process_time() - before < 1


def test_an_array_of_nothing_that_is_too_large_is_refused() -> None:
    with pytest.raises(Refused, match="which NumPy does not take"):
        npy(headed("0, 9999999999, 9999999999, 9999999999"), 999, "w")


def test_a_round_that_is_a_list_is_refused_also_if_nobody_else_replies() -> None:
    behind, found = run(Nodes(HOSTILE["rounds"][0]))
    assert "it does not say 'server-round'" in behind.rejected[1][1] and found is None


def test_ten_thousand_fuzzed_replies_do_not_crash_the_server() -> None:
    """Arrays as bytes that may be anything; what is admitted is within the norm."""
    rng, own = random.Random(2), start()
    arrays = record(own)
    message = flwr.Message(flwr.RecordDict({"arrays": arrays}), 1, "train")
    good = [encode(Update(program().fingerprint, 1, 27, None, np.ones(27), c)) for c in CODINGS]
    npys = [a.data for a in arrays.values()] + [next(iter(in_bytes(b).values())).data for b in good]
    watch, admitted = Guard(program=program(), max_norm=9.0), 0
    watch.begin(1, own)
    before = b"".join(a.tobytes() for a in own.values())
    for _ in range(10_000):
        given = dict(arrays.items())
        for name in rng.sample([*given], rng.randrange(3)):
            shape, kind = (7, 7), rng.choice(["float32", "object", "<U9"])
            data = hostile(rng, npys)
            given[name] = flwr.Array(kind, shape, "numpy.ndarray", data)
        if rng.random() < 0.3:
            given = dict(in_bytes(hostile(rng, good)).items())
        reply = answer(message, flwr.ArrayRecord(given))
        watch._seen.clear()
        if not sift(watch, [reply]):
            admitted += 1
            found = [a.numpy() - own[n] for n, a in reply.content["arrays"].items()]
            assert sum(float(np.square(d).sum()) for d in found) <= 81.01
    assert 1000 < admitted < 6000
    assert b"".join(a.tobytes() for a in watch.model.values()) == before


# Compressed replies --------------------------------------------------------------------------


class Compressing:
    """A client that moves by random steps, behind the mod; it remembers what it wanted to send."""

    def __init__(self, settings: Compression, seed: int) -> None:
        self.mod, self.rng = dgc_mod(program(), settings), np.random.default_rng(seed)
        self.context = flwr.Context(1, seed, {}, flwr.RecordDict(), {})
        self.wanted = np.zeros(27)
        self.sizes: list[int] = []

    def __call__(self, message: Any) -> Any:
        reply = self.mod(message, self.context, self.train)
        (array,) = reply.content["arrays"].values()
        self.sizes.append(len(array.numpy()))
        return reply

    def train(self, message: Any, context: Any) -> Any:
        steps = {n: self.rng.standard_normal(a.shape) for n, a in received(message).items()}
        steps = {n: s.astype(np.float32) for n, s in steps.items()}
        self.wanted += flatten(program(), steps)
        return answer(message, {n: a + steps[n] for n, a in received(message).items()})


def test_compressed_replies_are_what_was_sent_and_the_rest_waits_in_the_context() -> None:
    clients = [Compressing(Compression(0.9, 0.0, coding="f16"), seed) for seed in (1, 2)]
    behind, found = run(Nodes(*clients), 12)
    assert behind.rejected == {r: {} for r in range(1, 13)}
    assert all(size == 36 + 3 * (1 + 2) for c in clients for size in c.sizes)
    kept = [c.context.state[STATE]["kept"].numpy() for c in clients]
    change = flatten(program(), {n: found[n] - a for n, a in start().items()})
    wanted = sum(c.wanted - k for c, k in zip(clients, kept, strict=True)) / 2
    np.testing.assert_allclose(change, wanted, atol=1e-4)
    assert np.abs(kept[0]).max() > 0.5


def test_without_sparsity_it_is_fedavg() -> None:
    dense, plain = ([Compressing(Compression(0.0, 0.0), s) for s in (1, 2)] for _ in range(2))
    _, found = run(Nodes(*dense), 3)
    alone = [lambda m, c=c: c.train(m, c.context) for c in plain]
    _, theirs = run(Nodes(*alone), 3)
    for name, array in theirs.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5)


def test_the_mod_leaves_other_messages_and_errors_alone() -> None:
    client = Compressing(Compression(), 1)
    content = flwr.RecordDict({"arrays": record(start()), "config": flwr.ConfigRecord()})
    asked = flwr.Message(content, 1, "evaluate")
    assert (
        client.mod(asked, client.context, lambda m, c: answer(m, start())).content["arrays"].keys()
        == start().keys()
    )
    content["config"]["server-round"] = 1
    asked = flwr.Message(content, 1, "train")
    gone = client.mod(
        asked, client.context, lambda m, c: flwr.Message(flwr.Error(1, "gone"), reply_to=m)
    )
    assert gone.has_error() and STATE not in client.context.state
