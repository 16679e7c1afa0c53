"""The cache: what is linked and loaded is what was compiled here, or it is compiled again."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import whet
from tiny import mlp, vectors
from whet.errors import BuildError
from whet.passes.machine import UNTUNED
from whet.runtime import cache as caching
from whet.runtime.build import build
from whet.runtime.cache import PARTIAL, STALE, cache_folder, intact, kept
from whet.targets.bare_metal import firmware
from whet.targets.bare_metal.emulator import plugin
from whet.tune.kept import keep, this_machine

X, Y = next(vectors())
FLAGS = ("-O0",)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    caching.warn.cache_clear()
    yield tmp_path / "caches" / "whet"
    caching.warn.cache_clear()


@pytest.fixture(scope="module")
def program() -> whet.Program:
    return whet.compile(mlp(), (X,), portable=True)


@pytest.fixture(scope="module")
def small() -> whet.Program:
    return whet.compile(mlp(), (X,), target="cortex-m4", ram=100_000)


# Files that are not what was written ----------------------------------------------------------

DAMAGE = {  # of a file's content, and another file's
    "cut": lambda content, other: content[: len(content) // 2],
    "empty": lambda content, other: b"",
    "a bit": lambda content, other: content[:-99] + bytes([content[-99] ^ 1]) + content[-98:],
    "another one": lambda content, other: other,
    "an object": lambda content, other: content[content.index(b"\x7fELF") :],
}
damaged = pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
Change = Callable[[bytes, bytes], bytes]


def spoiled(change: Change, cache: Path, make: Callable[[], object]) -> set[str]:
    """What is kept, after every file was changed and `make` was there again."""
    make()
    kept("other", lambda: b"\x7fELF" + bytes(100))
    before = {path: path.read_bytes() for path in cache.iterdir() if path.name != "other"}
    other = (cache / "other").read_bytes()
    for path, content in before.items():
        path.write_bytes(change(content, other))
        assert path.read_bytes() != content
    make()
    assert {path: path.read_bytes() for path in before} == before, "made again, the same"
    return {path.name.partition("-")[0] for path in before}


@damaged
def test_damaged_kernels_are_compiled_again(
    change: Change, cache: Path, program: whet.Program, tmp_path: Path
) -> None:
    found = spoiled(change, cache, lambda: build(program, tmp_path / "out", FLAGS))
    assert {"linear", "tanh", "cross_entropy"} <= found


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="no compiler for Cortex-M")
@damaged
def test_damaged_kernels_of_firmware_are_compiled_again(
    change: Change, cache: Path, small: whet.Program, tmp_path: Path
) -> None:
    builds: list[Path] = []

    def make() -> None:
        builds.append(firmware.build(small, tmp_path / str(len(builds))).path)

    assert {"linear", "tanh", "cross_entropy"} <= spoiled(change, cache, make)
    first, second = (path.read_bytes() for path in builds)
    assert first == second


@damaged
def test_a_damaged_plugin_is_compiled_again(change: Change, cache: Path, tmp_path: Path) -> None:
    whole = plugin(tmp_path).read_bytes()
    assert spoiled(change, cache, lambda: plugin(tmp_path)) == {"watch"}
    assert plugin(tmp_path).read_bytes() == whole


def test_what_is_whole_is_not_made_again(cache: Path) -> None:
    assert kept("word", lambda: b"first") == b"first"
    assert kept("word", lambda: b"second") == b"first"
    assert intact(cache / "word") == b"first"


# Other users ----------------------------------------------------------------------------------


def test_a_new_cache_is_for_its_owner_alone(cache: Path) -> None:
    assert cache_folder() == cache and cache.stat().st_mode & 0o777 == 0o700
    kept("word", lambda: b"first")
    assert (cache / "word").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o722], ids=oct)
def test_a_cache_that_others_may_write_to_is_not_used(
    mode: int, cache: Path, program: whet.Program, tmp_path: Path
) -> None:
    cache.mkdir(parents=True)
    cache.chmod(mode)
    with pytest.warns(UserWarning, match="other users may write to it.*chmod go-w") as said:
        build(program, tmp_path / "out", FLAGS)
        build(program, tmp_path / "out", FLAGS)
        assert kept("word", lambda: b"first") == b"first", "kept in a folder of this process"
        assert kept("word", lambda: b"second") == b"first"
    ours = [warning for warning in said if "chmod go-w" in str(warning.message)]
    assert len(ours) == 1, "once; others come from garbage that earlier tests left"
    assert list(cache.iterdir()) == []
    cache.chmod(0o755)
    assert cache_folder() == cache, "what the message says to do is enough"


def test_a_cache_of_another_user_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept("word", lambda: b"theirs")
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="it belongs to another user"):
        assert kept("word", lambda: b"ours") == b"ours"
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    assert kept("word", lambda: b"again") == b"theirs", "and was left alone"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_of_another_user_is_made_again(cache: Path) -> None:
    kept("word", lambda: b"theirs")
    os.chown(cache / "word", 65534, 65534)
    assert kept("word", lambda: b"ours") == b"ours"
    os.chown(cache, 65534, 65534)
    with pytest.warns(UserWarning, match="it belongs to another user"):
        assert cache_folder() != cache


def test_a_file_that_others_may_write_to_is_made_again(cache: Path) -> None:
    kept("word", lambda: b"theirs")
    (cache / "word").chmod(0o666)
    assert kept("word", lambda: b"ours") == b"ours"


def test_numbers_of_a_machine_are_not_read_from_such_a_folder(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHET_UNTUNED")
    keep(UNTUNED)
    assert this_machine().tuned
    cache.chmod(0o777)
    with pytest.warns(UserWarning, match="other users may write to it"):
        assert this_machine() is UNTUNED
    with pytest.raises(BuildError, match="cannot be written, or not by you alone"):
        keep(UNTUNED)


def test_the_temporary_folder_goes_with_the_process(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("in the way")
    code = "from whet.runtime.cache import *; kept('a', lambda: b'x'); print(cache_folder())"
    folder = Path(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
    assert folder.name.startswith("whet-") and not folder.exists()


# Several processes, and killed ones -----------------------------------------------------------

BUILD = """
import sys
from pathlib import Path
from types import SimpleNamespace as Stub
from whet.runtime.build import build
written = Stub(name="net", write=lambda folder: None, target=Stub(libraries=("-lm",)))
build(written, Path(sys.argv[1]), ("-O0",))
"""
HANGING = """#!/bin/sh
if [ -e "$HANG" ] && [ "$2" = -Wall ]; then  # it compiles
    for last; do :; done
    printf half >"$last"
    touch "$HANG/there"
    exec sleep 600
fi
exec gcc "$@"
"""


def building(program: whet.Program, folder: Path, code: str = BUILD) -> subprocess.Popen[bytes]:
    """A process of its own that builds the program in a folder."""
    program.write(folder)
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], start_new_session=True)


def killed(process: subprocess.Popen[bytes], when: Callable[[], object]) -> None:
    """The process and its compilers, as soon as this is so."""
    deadline = time.monotonic() + 60
    while not when():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def loads(program: whet.Program, folder: Path) -> bool:
    """Whether a build that takes what is in the cache gives a library with all its functions."""
    library = ctypes.CDLL(str(build(program, folder, FLAGS)))
    return all(hasattr(library, f"net_{name}") for name in ("init", "train_step", "predict"))


def test_processes_that_build_at_once(cache: Path, program: whet.Program, tmp_path: Path) -> None:
    made = [building(program, tmp_path / str(i)) for i in range(4)]
    assert [process.wait(120) for process in made] == [0, 0, 0, 0]
    files = sorted(cache.iterdir())
    assert len(files) > 5 and all(intact(path) for path in files), "and nothing else lies there"
    assert loads(program, tmp_path / "out")


def test_a_kill_while_the_compiler_runs(
    cache: Path, program: whet.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, hang = tmp_path / "gcc", tmp_path / "hang"
    compiler.write_text(HANGING)
    compiler.chmod(0o755)
    hang.mkdir()
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("HANG", str(hang))
    killed(building(program, tmp_path / "first"), (hang / "there").exists)
    assert not cache.exists() or all(intact(path) for path in cache.iterdir())
    shutil.rmtree(hang)
    assert loads(program, tmp_path / "second")


def test_a_kill_while_a_file_is_kept(cache: Path, program: whet.Program, tmp_path: Path) -> None:
    """Between its first byte and its name: what is left has no name that anybody looks for."""
    slow = "import os, time\nos.replace = lambda *names: time.sleep(600)\n"
    killed(
        building(program, tmp_path / "first", slow + BUILD),
        lambda: any(path.stat().st_size for path in cache.glob(f"{PARTIAL}*")),
    )
    left = list(cache.iterdir())
    assert left and all(path.name.startswith(PARTIAL) for path in left)
    assert loads(program, tmp_path / "second")
    assert set(left) <= set(cache.iterdir()), "somebody may be at them still"
    for path in left:
        os.utime(path, (time.time() - STALE - 1,) * 2)
    kept("word", lambda: b"first")
    assert not any(path.exists() for path in left)


def test_a_full_disk_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert kept("word", lambda: b"first") == b"first"
    assert list(cache.iterdir()) == []
