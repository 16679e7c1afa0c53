"""Every Python example in the README and the docs runs and prints what it says it prints."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import numpy as np
import pytest

from agreement import LIBRARIES
from examples import ROOT, examples
from made_gguf import tiny_chat_model
from made_onnx import quantized_net
from tflite_files import mobile_net
from whet.cli import app

EXTENDING = [ROOT / "docs" / "contributing" / name for name in ("add-a-pass.md", "add-a-lab.md")]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *EXTENDING]

assert LIBRARIES is not None  # transformers cannot be imported without

# Files that the examples of a page read, in place of larger ones.
FILES = {
    "llm.md": {"SmolLM2-135M-Instruct.Q4_1.gguf": tiny_chat_model},
    "onnx.md": {"quantized.onnx": lambda: quantized_net()[0].SerializeToString()},
    "tflite.md": {"net.tflite": mobile_net},
}


LONG = ("browser.md", "jax.md", "keras.md", "results.md", "tinytl.md")  # more than a few seconds
WITH_EXAMPLES = [
    pytest.param(p, marks=pytest.mark.slow if p.name in LONG else (), id=p.name)
    for p in PAGES
    if examples(p)
]


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_examples_run_and_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.get(page.name, {}).items():
        Path(name).write_bytes(content())
    names: dict[str, object] = {"__name__": "__main__"}
    for code, expected in examples(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        if expected is not None:
            same = doctest.OutputChecker().check_output(
                expected, printed.getvalue(), doctest.ELLIPSIS
            )
            assert same, f"{page.name} says\n{expected}\nbut prints\n{printed.getvalue()}"


def test_the_operator_page_is_up_to_date() -> None:
    from operator_page import operator_page

    page = (ROOT / "docs" / "ops.md").read_text()
    assert page == operator_page(), "run: python tools/operator_page.py"


def test_the_picture_of_memory_shows_the_results() -> None:
    from memory_picture import PICTURE, picture

    assert PICTURE.read_text() == picture(), "run: python tools/memory_picture.py"


MODEL = """
from torch import nn
def make():
    layers = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 3)).eval()
"""


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "boards").glob("*.md")), ids=lambda p: p.name
)
def test_commands_for_boards_write_what_the_page_builds(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library lies in one folder; other folders have a CMakeLists.txt for the project's."""
    (command,) = re.findall(r"^whet (compile (?:.*\\\n)*.*)$", page.read_text(), re.MULTILINE)
    words = command.replace("\\\n", " ").replace("~", str(tmp_path)).split()
    size = [int(n) for n in words[words.index("-i") + 1].split(",")]
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    np.save("shown.npy", np.random.default_rng(0).normal(size=[4, *size[1:]]).astype(np.float32))
    app(words, standalone_mode=False)
    folder = Path(words[words.index("-o") + 1])
    names = {path.name for path in folder.iterdir()}
    assert "model.h" in names
    assert ("CMakeLists.txt" in names) != ("--library" in words)
    assert ("whet_kernels_i8.h" in names) == ("--library" in words)
