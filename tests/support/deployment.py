"""A federation of Flower on this machine: SuperLink and SuperNodes, with TLS and keys of nodes.

Every process is ended with the `Deployment`, by its process group: Flower starts others.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONNECTED = "SuperNode ID:"  # what a node says that was let in
PATIENCE = 600.0  # seconds for anything to happen, on a busy machine


class Deployment:
    """In `home`: keys, certificates, logs, and what the app reads and writes."""

    def __init__(self, home: Path, app: Path, tls: bool = True) -> None:
        self.home, self.app, self.tls, self.port = home, app, tls, free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (home / "flower").mkdir(parents=True)
        self.environment = environment(home)
        trust = f'root-certificates = "{home / "ca.crt"}"' if tls else "insecure = true"
        (home / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\n{trust}\n'
        )
        if tls:
            certificates(home)

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *error: object) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, name: str, *command: str) -> None:
        """A process in a group of its own, its words in a log."""
        with open(self.home / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=self.app, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """With all that it started."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, words: str, count: int = 1) -> None:
        """Until a process has said so."""
        self.wait_until(lambda: self.log(name).count(words) >= count, name, words)

    def wait_until(self, happened: Any, name: str, words: str = "") -> None:
        until = time.monotonic() + PATIENCE
        while not happened():
            gone = name in self.processes and self.processes[name].poll() is not None
            if gone or time.monotonic() > until:
                raise TimeoutError(f"{name} did not say {words!r}:\n{self.log(name)[-3000:]}")
            time.sleep(0.3)

    def superlink(self, *words: str) -> None:
        secure = ["--insecure"]
        if self.tls:
            files = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}
            secure = [w for k, v in files.items() for w in (f"--ssl-{k}", str(self.home / v))]
            secure.append("--enable-supernode-auth")
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        self.start("superlink", tool("flower-superlink"), *secure, *where, *words,
                   "--disable-runtime-dependency-installation")  # fmt: skip
        self.wait_until(lambda: listens(self.port), "superlink")

    def key(self, name: str, register: bool = True) -> Path:
        """A node's private key; the public one is registered with the SuperLink."""
        path = self.home / name
        ssh_key(path)
        if register:
            done = self.flwr("supernode", "register", f"{path}.pub", "here")
            assert done.returncode == 0, done.stdout + done.stderr
        return path

    def supernode(self, name: str, key: Path | None, *words: str, **config: Any) -> None:
        secure = ["--insecure"]
        if self.tls:
            secure = ["--root-certificates", str(self.home / "ca.crt")]
        if key is not None:
            secure += ["--auth-supernode-private-key", str(key)]
        quoted = [f'{k.replace("_", "-")}={v if isinstance(v, int) else repr(v)}'
                  for k, v in config.items()]  # fmt: skip
        node = ["--node-config", " ".join(quoted).replace("'", '"')] if quoted else []
        where = ["--superlink", self.address, "--host", "127.0.0.1", "--port", str(free_port())]
        self.start(name, tool("flower-supernode"), *secure, *where, *node, *words)

    def again(self, name: str, key: Path, **config: Any) -> None:
        """Start a node that was killed, as a service manager does: until it is let in.

        The SuperLink takes a node for connected until it misses heartbeats for a minute, and
        refuses a second one with its key.
        """
        before, until = self.log(name).count(CONNECTED), time.monotonic() + PATIENCE
        while self.log(name).count(CONNECTED) == before:
            if time.monotonic() > until:
                raise TimeoutError(f"{name} was not let in again:\n{self.log(name)[-3000:]}")
            if name not in self.processes:
                self.supernode(name, key, **config)
            elif self.processes[name].poll() is not None:
                self.kill(name)
                time.sleep(5)
            time.sleep(0.3)

    def flwr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([tool("flwr"), *words], cwd=self.app, env=self.environment,
                              capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip


def environment(home: Path) -> dict[str, str]:
    """Flower in `home`, quiet. Its processes look for its other tools on the path."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
             "RAY_USAGE_STATS_ENABLED": "0"}  # fmt: skip
    places = {"FEDERATED_HOME": str(home), "FLWR_HOME": str(home / "flower")}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return os.environ | quiet | places | {"OMP_NUM_THREADS": "1", "PATH": path}


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def ssh_key(path: Path) -> None:
    """Write a new private key as ssh-keygen does, and the public one beside it."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    )
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public)


def certificates(folder: Path) -> None:
    """An authority that trusts itself, and a server of 127.0.0.1 that it vouches for."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server")}
    names = {n: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in keys}
    for name, is_authority in (("ca", True), ("server", False)):
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(keys[name].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(keys["ca"], hashes.SHA256())
        )
        file = folder / ("ca.crt" if is_authority else "server.pem")
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key = keys["server"].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").write_bytes(key)
