"""What a client does in a round."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import clients
import whet
from whet.errors import DataError
from whet.federated import Client, ClientData, Local
from whet.labs.federated.local import judged
from whet.runtime import trained


def in_torch(data: ClientData, local: Local, turn: int, number: int, lr: float) -> nn.Module:
    """FedProx as its paper has it: SGD on the loss plus mu / 2 * |w - w_global|^2."""
    model = clients.model()
    start = copy.deepcopy(model)
    random = np.random.default_rng((local.seed, turn, number))
    random.integers(2**31)
    for _ in range(local.epochs):
        order = random.permutation(len(data.y))
        order = np.concatenate([order, np.resize(order, -len(order) % 4)])
        for batch in order.reshape(-1, 4):
            x, y = torch.from_numpy(data.x[batch]), torch.from_numpy(data.y[batch])
            loss = nn.functional.cross_entropy(model(x), y)
            pairs = zip(model.parameters(), start.parameters(), strict=True)
            loss = loss + local.mu / 2 * sum(((w - v.detach()) ** 2).sum() for w, v in pairs)
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for w in model.parameters():
                    w -= lr * w.grad
    return model


@pytest.mark.parametrize("mu", [0.0, 0.5, 3.0])
def test_a_round_is_that_of_pytorch(mu: float) -> None:
    data = clients.clients()[1]
    local = Local(epochs=2, lr=0.05, mu=mu, seed=7)
    client = Client(clients.program())
    start = client.give()
    found, _ = client.train(start, data, local, turn=3, number=1)
    expected = dict(in_torch(data, local, 3, 1, 0.05).named_parameters())
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert np.allclose(array, expected[name].detach().numpy(), atol=2e-6), name
        assert np.abs(array - start[name]).max() > 0.01


def test_mu_holds_a_client_near_the_global_model() -> None:
    client, data = Client(clients.program()), clients.clients()[0]
    start = client.give()

    def moved(mu: float) -> float:
        found, _ = client.train(start, data, Local(epochs=3, mu=mu), 1, 0)
        return float(np.sqrt(sum(((a - start[n]) ** 2).sum() for n, a in found.items())))

    distances = [moved(mu) for mu in (0.0, 0.3, 3.0)]
    assert distances[0] > 1.3 * distances[1] > 1.3 * 1.3 * distances[2] > 0


def test_a_round_begins_afresh_and_repeats() -> None:
    """Momentum does not outlive a round: a device has a new process for each message."""
    client, data = Client(clients.program(momentum=0.9)), clients.clients()[0]
    start = client.give()
    first, loss = client.train(start, data, Local(), 1, 0)
    again, same = client.train(start, data, Local(), 1, 0)
    other, _ = client.train(start, data, Local(), 2, 0)
    assert loss == same and all(np.array_equal(first[n], again[n]) for n in first)
    assert not all(np.array_equal(first[n], other[n]) for n in first)


def test_a_client_with_less_than_a_batch_trains_on_what_it_has() -> None:
    data = ClientData(*(a[:3] for a in clients.samples()), *clients.judges())
    client = Client(clients.program())
    found, loss = client.train(client.give(), data, Local(), 1, 0)
    assert np.isfinite(loss) and all(np.isfinite(a).all() for a in found.values())


def test_accuracy_and_loss_are_those_of_pytorch() -> None:
    trainer, (x, y) = clients.program().load(), clients.judges()
    with torch.no_grad():
        scores = clients.model()(torch.from_numpy(x))
    score = judged(trainer, x[:99], y[:99])
    expected = nn.functional.cross_entropy(scores[:99], torch.from_numpy(y[:99]))
    assert score.examples == 99
    assert score.accuracy == (scores[:99].argmax(1).numpy() == y[:99]).mean()
    assert abs(score.loss - float(expected)) < 1e-6


def test_words_of_a_message_come_before_those_of_the_app() -> None:
    local = Local.of({"lr": 0.5, "server-round": 3}, {"lr": 0.1, "local-epochs": 4, "x": 1})
    assert local == Local(epochs=4, lr=0.5)
    assert Local.of(local.words()) == local
    assert Local.of(Local(mu=0.1, seed=3).words()) == Local(mu=0.1, seed=3)


@pytest.mark.parametrize("words", [{"epochs": 0}, {"lr": float("nan")}, {"mu": -1.0}])
def test_settings_that_mean_nothing_are_refused(words: dict) -> None:
    with pytest.raises(DataError):
        Local(**words)


def test_data_that_mean_nothing_are_refused() -> None:
    client, (x, y) = Client(clients.program()), clients.samples()
    start = client.give()
    empty = ClientData(x[:0], y[:0], x, y)
    with pytest.raises(DataError, match="no samples to train on"):
        client.train(start, empty, Local())
    with pytest.raises(DataError, match="no samples to judge by"):
        client.judge(start, x[:0], y[:0])
    with pytest.raises(DataError, match="name no classes"):
        client.judge(start, x, y * 0.5)
    assert trained(client.trainer).keys() == start.keys()


def test_labels_that_are_no_classes_of_the_model_are_refused() -> None:
    trainer, (x, y) = clients.program().load(), clients.judges()
    for wrong, words in ((y + 5, "labels are 5 to 7, the model has 3"), (y - 1, "labels are -1")):
        with pytest.raises(DataError, match=words):
            judged(trainer, x, wrong)
    torch.manual_seed(0)
    one = whet.compile(nn.Linear(5, 1), (torch.zeros(4, 5),), loss=nn.MSELoss()).load()
    with pytest.raises(DataError, match="not a score for each class"):
        judged(one, x, y)
