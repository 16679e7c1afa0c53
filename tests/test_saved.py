"""Programs in files: the same program comes back, without PyTorch; nothing else does any harm."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from whet.errors import BuildError
from whet.ir import Array

X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([1, 0, 4, 2])
HALF = whet.Scheme([whet.Rule("0.weight", 0.5), whet.Rule("4.*")], name="half")
CASES: dict[str, dict[str, Any]] = {
    "float": {},
    "last": {"update": "last"},
    "channels": {"update": HALF},
    "accumulate": {"accumulate": True, "optimizer": "adam", "clip_norm": 1.0},
    "cached": {"update": "last", "cache_prefix": True, "accumulate": True},
    "portable": {"target": "portable", "rematerialize": True},
    "int8": {"dtype": whet.Int8(rounding="carry8"), "calibrate": [X]},
    "board": {"dtype": "int8", "calibrate": [X], "target": "cortex-m7", "ram": "64K"},
}


def program(case: str) -> whet.Program:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(8 * 64, 5))
    return whet.compile(model.eval(), (X,), **CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_the_same_program_comes_back(case: str, tmp_path: Path) -> None:
    before = program(case)
    file = before.save(tmp_path / "net.whet")
    after = whet.load(file)
    assert after.files == before.files
    assert after.fingerprint == before.fingerprint
    assert after.trained == before.trained
    assert after.report() == before.report()
    again = after.save(tmp_path / "again.whet")
    assert again.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("case", ["channels", "int8"])
def test_it_trains_as_before(case: str, tmp_path: Path) -> None:
    before = program(case)
    one, other = before.load(), whet.load(before.save(tmp_path / "net.whet")).load()
    assert [one.step(X, Y) for _ in range(3)] == [other.step(X, Y) for _ in range(3)]
    assert one.save() == other.save()
    arrays, same = one.arrays(), other.arrays()
    assert arrays.keys() == same.keys()
    assert all(np.array_equal(arrays[name], same[name]) for name in arrays)


def test_pytorch_is_not_needed(tmp_path: Path) -> None:
    file, data = program("int8").save(tmp_path / "net.whet"), tmp_path / "x.npz"
    np.savez(data, x=X.numpy(), y=Y.numpy())
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, whet\n"
        "data = np.load(sys.argv[2])\n"
        "trainer = whet.load(sys.argv[1]).load()\n"
        "print(*[trainer.step(data['x'], data['y']).hex() for _ in range(3)])\n"
    )
    words = [sys.executable, "-c", script, str(file), str(data)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    here = whet.load(file).load()
    assert done.stdout.split() == [here.step(X, Y).hex() for _ in range(3)]


def test_a_loaded_program_has_no_model_to_check_against(tmp_path: Path) -> None:
    with pytest.raises(whet.WhetError, match="does not remember the model"):
        whet.load(program("last").save(tmp_path / "net.whet")).check()


def rewritten(file: Path, change: Any) -> Path:
    """A copy of a file with another program.json."""
    copy = file.with_name("changed.whet")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "program.json":
                tree = json.loads(content)
                change(tree)
                content = json.dumps(tree).encode()
            new.writestr(name, content)
    return copy


CHANGES: dict[str, tuple[Any, str]] = {
    "format": (lambda t: t.update(format=2), "its format is 2"),
    "target": (lambda t: t["target"].__setitem__(0, "toaster"), "there is no target 'toaster'"),
    "name": (lambda t: t["options"].update(name="x;rm"), "not a C identifier"),
    "pass": (lambda t: t["options"].update(without={"is": "set", "items": ["x"]}), "'x' is not"),
    "class": (lambda t: t["program"].update(scheme={"is": "Popen"}), "Popen"),
    "field": (lambda t: t["program"].update(colour=1), "colour"),
    "lost": (lambda t: t["program"].pop("entries"), "entries"),
    "array": (lambda t: t["program"].update(lr={"is": "array", "number": 10**6}), "arrays/"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_file_that_is_wrong_is_refused(case: str, tmp_path: Path) -> None:
    change, words = CHANGES[case]
    file = rewritten(program("last").save(tmp_path / "net.whet"), change)
    with pytest.raises(BuildError) as caught:
        whet.load(file)
    text = str(caught.value)
    assert "is not a saved program" in text and words in text, text


def nodes_of(tree: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree of JSON: its container, and the key or index there."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                waiting.append(holder[key])
    return found


OTHERS = (None, -1, 10**9, 0.5, "x", "", [], {}, {"is": "graph"}, [[]], True)


def test_damage_anywhere_is_an_error_or_harmless(tmp_path: Path) -> None:
    """500 files with one part of their content replaced: whet.load says what is wrong, or gives a
    program."""
    file, chance = program("channels").save(tmp_path / "net.whet"), random.Random(0)
    outcomes = {"refused": 0, "loaded": 0}

    def change(tree: Any) -> None:
        holder, key = chance.choice(nodes_of(tree))
        holder[key] = chance.choice(OTHERS)

    for _ in range(500):
        try:
            whet.load(rewritten(file, change))
            outcomes["loaded"] += 1
        except BuildError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 100, outcomes


def test_bytes_that_are_no_zip_file(tmp_path: Path) -> None:
    file = program("last").save(tmp_path / "net.whet")
    content = file.read_bytes()
    for broken in (b"", b"WHET", content[: len(content) // 2], content[:-1]):
        (tmp_path / "broken.whet").write_bytes(broken)
        with pytest.raises(BuildError, match="is not a saved program"):
            whet.load(tmp_path / "broken.whet")
    with pytest.raises(BuildError, match="cannot read"):
        whet.load(tmp_path / "missing.whet")
    with pytest.raises(BuildError, match="cannot write"):
        program("last").save(tmp_path / "no" / "net.whet")


def test_flipped_bytes_anywhere_are_an_error_or_harmless(tmp_path: Path) -> None:
    """Of the compressed content and of the directory of the zip file, too."""
    file, chance = program("last").save(tmp_path / "net.whet"), random.Random(0)
    content, refused = file.read_bytes(), 0
    for _ in range(500):
        changed = bytearray(content)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        file.write_bytes(bytes(changed))
        try:
            whet.load(file)
        except BuildError:
            refused += 1
    assert refused > 100


def test_a_file_nested_too_deep_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "deep.whet", "w") as zipped:
        zipped.writestr("program.json", "[" * 200_000)
    with pytest.raises(BuildError, match="is not a saved program"):
        whet.load(tmp_path / "deep.whet")


def test_a_flipped_byte_of_an_array_is_noticed(tmp_path: Path) -> None:
    file = program("last").save(tmp_path / "net.whet")
    with zipfile.ZipFile(file) as zipped:
        place = zipped.getinfo("arrays/0.npy")
    content = bytearray(file.read_bytes())
    content[place.header_offset + 30 + len(place.filename) + place.compress_size // 2] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(BuildError, match="is not a saved program"):
        whet.load(file)


def test_arrays_keep_their_bits(tmp_path: Path) -> None:
    def data(p: whet.Program) -> dict[str, Array]:
        return {f"{e}:{n}": a for e, g in p.entries.items() for n, a in g.data.items()}

    before = program("int8")
    one, other = data(before), data(whet.load(before.save(tmp_path / "net.whet")))
    assert one.keys() == other.keys()
    assert all(one[n].dtype == other[n].dtype and (one[n] == other[n]).all() for n in one)
