"""A device behind a gateway answers as a client, and nothing that is asked ends the gateway."""

from __future__ import annotations

import random
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import clients
import whet
from gateways import device_program, serving
from whet.errors import DataError, RunError, WhetError
from whet.federated import Client, Gateway, GatewayClient, Local
from whet.labs.federated import frames
from whet.labs.federated.frames import Kind, Task
from whet.runtime.update import by_name, decode

LOCAL = Local(epochs=2, lr=0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def begin() -> dict[str, np.ndarray]:
    """Parameters that are not those that the program was compiled with."""
    start = Client(clients.program()).give()
    return {name: array + np.float32(0.25) for name, array in start.items()}


@pytest.mark.parametrize("target", ["portable", "cortex-m7"])
def test_a_device_answers_with_what_a_client_would_learn(path: Path, target: str) -> None:
    program, data, start = device_program(target=target), clients.clients()[1], begin()
    client = Client(clients.program(target="portable"))
    with serving(program, path, part=1):
        device = GatewayClient(path, 60)
        about = device.about()
        assert about.fingerprint == program.fingerprint
        assert (about.coordinates, about.examples) == (75, len(data.y))
        for turn in (3, 4):  # the second round begins where the server says, not where it was
            found = device.train(start, LOCAL, turn, 1)
            expected, loss = client.train(start, data, LOCAL, turn, 1)
            assert found.examples == len(data.y)
            assert found.loss == pytest.approx(loss, rel=1e-6)
            changes = by_name(program, decode(found.update, program.fingerprint, 75, turn))
            for name, array in expected.items():
                np.testing.assert_allclose(start[name] + changes[name], array, atol=2e-6)
                assert np.abs(changes[name]).max() > 1e-3
        score = client.judge(start, data.x_test, data.y_test)
        assert device.judge(start).accuracy == score.accuracy
        assert device.judge(start).loss == pytest.approx(score.loss, rel=1e-5)


def test_only_its_user_can_open_the_socket(path: Path) -> None:
    with serving(device_program(), path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(DataError, match="another gateway serves"):
            Gateway(device_program().load, None, path)
    assert not path.exists()
    with pytest.raises(RunError, match="does not answer"):
        GatewayClient(path).about()
    path.write_text("mine")
    with pytest.raises(DataError, match="is not a socket"):
        Gateway(device_program().load, None, path)
    assert path.read_text() == "mine"
    for wrong in (path / "below a file", path.with_name("no folder") / "gate"):
        with pytest.raises(DataError, match="cannot listen on"):
            Gateway(device_program().load, None, wrong)


def test_what_a_dead_gateway_left_is_replaced(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with serving(device_program(), path):
        assert GatewayClient(path).about().coordinates == 75


def test_a_program_that_sends_nothing_has_no_gateway(path: Path) -> None:
    with pytest.raises(DataError, match="the program sends nothing"):
        Gateway(clients.program().load, None, path)


def raw(path: Path, data: bytes) -> tuple[int, str]:
    """What comes back for these bytes."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        kind, body = frames.receive(line, 1 << 20, 10)
        return kind, bytes(body).decode(errors="replace")


def frame(kind: int, body: bytes, **other: int) -> bytes:
    version, length = other.get("version", 1), other.get("length", len(body))
    return struct.pack("<4sBBHI", b"WHGW", version, kind, other.get("zero", 0), length) + body


def test_what_is_malformed_gets_an_error_and_the_next_request_an_answer(path: Path) -> None:
    arrays, task = frames.pack_arrays(begin()), Task(1, 0, LOCAL).pack()
    twice = frames.pack_arrays({"a": np.zeros(1)})[2:] * 2
    nan = frames.pack_arrays({n: a * np.nan for n, a in begin().items()})
    wrong = {
        b"GET / HTTP/1.1\r\n\r\n": "not the protocol of a gateway",
        frame(1, b"", version=2): "version is 2",
        frame(1, b"", zero=9): "reserved bytes",
        frame(1, b"x"): "this one has none",
        frame(7, b""): "there is no request 7",
        frame(2, b"", length=2**31): "2,147,483,648 bytes are announced",
        frame(2, task[:-1]): "the request is cut",
        frame(2, task + arrays[:-1]): "1 bytes are missing",
        frame(2, task + arrays + b"x"): "1 bytes follow the last array",
        frame(2, task + nan): "not finite",
        frame(2, task + frames.pack_arrays({})): "there is no array for",
        frame(2, b"\0" * 16 + task[16:] + arrays): "epochs=0",
        frame(2, task[:8] + b"\0\0\1\0" + task[12:] + arrays): "65,536 epochs are asked for",
        frame(3, b"\2\0" + twice): "comes twice",
        frame(3, b"\1\0\1\0\xff"): "not UTF-8",
        frame(3, b"\1\0\1\0a\x09"): "9 axes",
        frame(3, b"\1\0\1\0a\2" + b"\xff" * 8): "bytes are missing",
        frame(3, b"\1\0\1\0a\3" + b"\0" * 4 + b"\xff" * 8): "cannot be",
    }
    with serving(device_program(), path) as gateway:
        for data, words in wrong.items():
            kind, text = raw(path, data)
            assert kind == Kind.ERROR and words in text, (data[:40], text)
        assert gateway.answered == 0
        assert GatewayClient(path, 60).train(begin(), LOCAL, 1).examples > 0


def test_fuzzed_requests_do_not_end_it(path: Path) -> None:
    rng = random.Random(5)
    good = frame(2, Task(1, 0, LOCAL).pack() + frames.pack_arrays(begin()))
    with serving(device_program(), path, limit=1):
        for _ in range(500):
            blob = bytearray(good[: rng.choice([len(good), rng.randrange(1, len(good))])])
            for _ in range(rng.randrange(1, 4)):
                blob[rng.randrange(8, len(blob)) if len(blob) > 8 else 0] = rng.randrange(256)
            try:
                raw(path, bytes(blob))
            except (ConnectionError, BrokenPipeError):
                pass
        assert GatewayClient(path, 60).about().coordinates == 75


def test_a_client_that_disappears_leaves_it_usable(path: Path) -> None:
    request = frame(2, Task(1, 0, LOCAL).pack() + frames.pack_arrays(begin()))
    with serving(device_program(), path, reading=0.3):
        for piece in (b"", request[:5], request[:-1], request):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(path))
                line.sendall(piece)
        with socket.socket(socket.AF_UNIX) as line:  # connected, but silent
            line.connect(str(path))
            assert GatewayClient(path, 60).judge(begin()).examples == 200


def test_a_request_that_is_repeated_gets_the_same_update_and_counts_once(path: Path) -> None:
    """Fresh noise on the same samples would average out."""
    noisy = device_program(whet.Send(clip=0.1, noise=1.0))
    with serving(noisy, path, limit=2) as gateway:
        device = GatewayClient(path, 60)
        first = device.train(begin(), LOCAL, 1)
        assert device.train(begin(), LOCAL, 1) == first and gateway.answered == 1
        second = device.train(begin(), LOCAL, 2)
        assert second.update[36:] != first.update[36:] and gateway.answered == 2
        with pytest.raises(RunError, match="2 updates, which is its limit"):
            device.train(begin(), LOCAL, 3)


def test_a_board_that_broke_is_started_anew(path: Path) -> None:
    with serving(device_program(target="cortex-m7"), path) as gateway:
        device = GatewayClient(path, 60)
        before = device.train(begin(), LOCAL, 1)
        gateway._client.trainer._machine.stop()  # type: ignore[union-attr]
        with pytest.raises(RunError, match="switched off"):
            device.train(begin(), LOCAL, 2)
        gateway._last = None
        assert device.train(begin(), LOCAL, 1) == before


def test_a_damaged_update_does_not_leave_the_client(path: Path) -> None:
    with serving(device_program(), path) as gateway:
        device = GatewayClient(path, 60)
        device.train(begin(), LOCAL, 1)
        digest, answer = gateway._last  # type: ignore[misc]
        gateway._last = digest, answer[:-1] + bytes([answer[-1] ^ 1])
        with pytest.raises(WhetError, match="its checksum is wrong"):
            device.train(begin(), LOCAL, 1)


def test_the_command_serves_until_it_is_told_to_stop(path: Path, tmp_path: Path) -> None:
    saved = device_program(target="cortex-m7").save(tmp_path / "net.whet")
    data = clients.clients()[0]
    np.savez(tmp_path / "own.npz", x=data.x, y=data.y, x_test=data.x_test, y_test=data.y_test)
    words = [str(saved), "--socket", str(path), "--data", str(tmp_path / "own.npz")]
    command = [sys.executable, "-m", "whet", "fed", "gateway", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as for jobs of a script
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not path.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        assert GatewayClient(path, 60).train(begin(), LOCAL, 1).examples == len(data.y)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and "1 updates were sent" in text, text
    assert not path.exists()
