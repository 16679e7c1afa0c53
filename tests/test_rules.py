"""Taste, enforced: which way imports point, where C is written, how large files are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import whet
from whet.ir import Op

ROOT = Path(whet.__file__).parent
REPOSITORY = ROOT.parents[1]
FILES = sorted(ROOT.rglob("*.py"))

# Each room may use those above it, never those below.
ROWS = (
    ("names",), ("errors",), ("ir",), ("ops",), ("models",), ("memory",), ("passes",),
    ("training",), ("scheme",), ("frontend",), ("quantize",), ("report",), ("emit",),
    ("runtime",), ("targets",), ("tune",), ("settings",), ("debug",), ("pipeline",), ("budget",),
    ("verify",), ("source",), ("api",),
    ("__init__",), ("labs",), ("cli", "demo"), ("__main__",),
)  # fmt: skip
ROW = {room: i for i, rooms in enumerate(ROWS) for room in rooms}

# Convenience that reaches outwards, on purpose and only when it is called.
OUTWARD = {
    ("ir", "text"),  # str(graph)
    ("scheme", "labs"),  # scheme.contribution.analyse()
    ("api", "labs"),  # update="auto"
}
WITH_TORCH = {"frontend", "models", "verify", "demo", "labs"}
LATE_TORCH = {"api", "cli", "runtime"}  # inside functions that need it anyway


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    target: str  # the module, dotted and absolute
    late: bool  # inside a function

    @property
    def room(self) -> str:
        return room(self.file)

    @property
    def target_room(self) -> str:
        parts = self.target.split(".")
        return parts[1] if len(parts) > 1 else "__init__"

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.target}"


def room(file: Path) -> str:
    return file.relative_to(ROOT).with_suffix("").parts[0]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports_in(file: Path) -> Iterator[Import]:
    """What a file imports when it runs; imports for the type checker do not count."""
    package = ("whet", *file.relative_to(ROOT).parts[:-1])

    def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = package[: len(package) - node.level + 1] if node.level else ()
        whole = ".".join((*base, *([node.module] if node.module else [])))
        for alias in node.names:
            below = ROOT.joinpath(*whole.split(".")[1:], alias.name)
            is_module = below.is_dir() or below.with_suffix(".py").exists()
            yield f"{whole}.{alias.name}" if whole.startswith("whet") and is_module else whole

    def walk(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                yield from (Import(file, child.lineno, t, late) for t in targets(child))
            elif not is_type_checking(child):
                inside = isinstance(child, (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef))
                yield from walk(child, late or inside)

    yield from walk(ast.parse(file.read_text()), False)


IMPORTS = [i for file in FILES for i in imports_in(file)]
OWN = [i for i in IMPORTS if i.target.split(".")[0] == "whet"]


def test_the_reader_of_imports_sees_what_there_is() -> None:
    """Every rule below would hold if this found nothing."""
    pairs = {(i.room, i.target_room, i.late) for i in OWN}
    assert {("ops", "ir", False), ("emit", "memory", False), ("api", "labs", True)} <= pairs
    assert {
        ("training", "ops", False),
        ("runtime", "emit", False),
        ("api", "frontend", False),
    } <= pairs
    assert ("emit", "runtime", False) not in pairs, "imports for the type checker do not count"


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room(file) for file in FILES} <= ROW.keys(), "a new room: say in ROWS where it belongs"


def test_imports_point_one_way() -> None:
    wrong = [
        str(i) for i in OWN
        if ROW[i.target_room] > ROW[i.room] and not (i.late and (i.room, i.target_room) in OUTWARD)
    ]  # fmt: skip
    assert wrong == []


def test_only_targets_ask_which_target_it_is() -> None:
    """Others call its methods or read its data, so that a new target touches targets/ alone."""
    asks = re.compile(
        r"\.chip\b|\bisa\[|\.target\.name (==|!=|in)\s|\b(==|is) (HOST|PORTABLE)\b"
        r"|isinstance\([^)]*\b(Host|Portable|CortexM|Chip|Board)\b"
    )
    assert asks.search("if program.target.chip is None") and asks.search('isa[0] == "vec"')
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in FILES
        if room(file) != "targets"
        for line in file.read_text().splitlines()
        if asks.search(line)
    ]
    assert found == []


def test_there_are_no_circles() -> None:
    """Between modules, not just rooms, and counting only what happens on import."""
    modules = {}
    for file in FILES:
        parts = file.relative_to(ROOT).with_suffix("").parts
        modules[file] = ".".join(("whet", *(p for p in parts if p != "__init__")))
    known = set(modules.values())
    uses: dict[str, set[str]] = {name: set() for name in known}
    for i in OWN:
        if not i.late and i.target != modules[i.file]:
            target = i.target if i.target in known else i.target.rpartition(".")[0]
            uses[modules[i.file]].add(target)
    while uses:
        free = {name for name, used in uses.items() if not used & uses.keys()}
        assert free, f"a circle among {sorted(uses)}"
        uses = {name: used for name, used in uses.items() if name not in free}


def test_the_core_does_not_know_pytorch() -> None:
    of_torch = [i for i in IMPORTS if i.target.split(".")[0] in ("torch", "torchvision", "timm")]
    assert any(i.room == "frontend" for i in of_torch)
    allowed = [i for i in of_torch if i.room in WITH_TORCH or (i.late and i.room in LATE_TORCH)]
    assert [str(i) for i in of_torch if i not in allowed] == []


def test_the_core_needs_numpy_and_the_standard_library_only() -> None:
    import sys

    allowed = {"whet", "numpy", "__future__", *sys.stdlib_module_names}
    core = [i for i in IMPORTS if ROW[i.room] <= ROW["targets"] and i.room not in WITH_TORCH]
    foreign = {i.target.split(".")[0] for i in core if not i.late} - allowed
    assert foreign == set()


C_TEXT = re.compile(
    r"#(include|define|if|endif)\b"
    r"|\b(static|const|void|float|double|int|int32_t|uint8_t|size_t)\s+\**\w+\s*[\[(;=]"
    r"|\breturn\b.*;"
)


def strings(file: Path) -> Iterator[tuple[int, str]]:
    """Every string of a file that is not a docstring, the pieces of f-strings joined by a mark."""
    tree = ast.parse(file.read_text())
    docs = {
        id(body[0].value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        and body and isinstance(body[0], ast.Expr)
    }  # fmt: skip
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(v) for v in node.values}
            parts = (v.value if isinstance(v, ast.Constant) else "x" for v in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docs and id(node) not in inside:
                yield node.lineno, node.value


def test_c_is_written_in_one_place() -> None:
    def c_lines(file: Path) -> list[str]:
        return [f"{line}: {text}" for line, text in strings(file) if C_TEXT.search(text)]

    found = {str(file.relative_to(ROOT)): c_lines(file) for file in FILES}
    assert len(found.pop("emit/c.py")) > 20, "the pattern knows C when it sees it"
    assert found.pop("emit/c_weights.py") and found.pop("emit/c_main.py")
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_files_are_short_enough_to_read(folder: str) -> None:
    """A file near 400 lines is worth a second look; at 600 two things share a room."""
    paths = [
        p for p in (REPOSITORY / folder).rglob("*")
        if p.suffix in (".py", ".c", ".h") and "golden" not in p.parts
    ]  # fmt: skip
    assert len(paths) > 10
    sizes = {str(p.relative_to(REPOSITORY)): len(p.read_text().splitlines()) for p in paths}
    assert {name: n for name, n in sizes.items() if n > 600} == {}


def test_the_public_names_are_these() -> None:
    names = "Int8 Lesson Program Rule Scheme Search Trainer WhetError compare compile "
    names += "contributions errors search"
    assert whet.__all__ == names.split()
    for name in whet.__all__:
        assert getattr(whet, name) is not None
    assert re.fullmatch(r"\d+\.\d+\.\d+", whet.__version__)


def test_every_operator_states_its_formula_and_can_run() -> None:
    assert len(Op.registry) > 80
    for name, op in Op.registry.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert op.__doc__ and op.__doc__ != Op.__doc__, f"{name} has no formula"
        assert op.view or op.call is not Op.call, f"{name} has no kernel"
        assert callable(op.infer) and callable(op.ref), name


def test_nothing_is_left_for_later() -> None:
    for file in FILES:
        text = file.read_text()
        assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), file
        assert "raise NotImplementedError" not in text, file


def test_tests_lie_in_the_folder_of_the_room_they_test() -> None:
    """And what they share in tests/support; docs/ and golden/ are no rooms of the package."""
    tests = REPOSITORY / "tests"
    folders = {p.name for p in tests.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders - {"support", "golden", "docs"} <= {p.name for p in ROOT.iterdir() if p.is_dir()}
    shared = [p for p in tests.rglob("*.py") if not p.name.startswith("test_")]
    assert [p for p in shared if "support" not in p.parts] == [tests / "conftest.py"]


def test_every_study_has_a_page_and_a_line_in_the_list() -> None:
    studies = sorted(p.parent for p in (REPOSITORY / "benchmarks").glob("*/__main__.py"))
    listed = (REPOSITORY / "benchmarks" / "README.md").read_text()
    assert len(studies) >= 8
    for study in studies:
        assert (study / "README.md").exists(), study.name
        assert f"`python -m benchmarks.{study.name}`" in listed, study.name
