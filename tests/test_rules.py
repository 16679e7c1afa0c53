"""Taste, enforced: which way imports point, where C is written, how large files are."""

from __future__ import annotations

import ast
import re
import sys
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
    ("training",), ("scheme",), ("frontend",), ("quantize",), ("targets",), ("report",), ("emit",),
    ("runtime",), ("tune",), ("settings",), ("debug",), ("pipeline",), ("budget",),
    ("verify",), ("source",), ("api",),
    ("__init__",), ("labs",), ("cli", "demo"), ("__main__",),
)  # fmt: skip
ROW = {room: i for i, rooms in enumerate(ROWS) for room in rooms}

# Convenience that reaches outwards, on purpose and only when it is called.
OUTWARD = {
    ("ir", "text"),  # str(graph)
    ("emit", "report"),  # program.report()
    ("emit", "runtime"),  # program.load()
    ("emit", "verify"),  # program.check()
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
    assert {("ops", "ir", False), ("emit", "memory", False), ("emit", "runtime", True)} <= pairs
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
    allowed = {"whet", "numpy", "__future__", *sys.stdlib_module_names}
    core = [i for i in IMPORTS if ROW[i.room] <= ROW["runtime"] and i.room not in WITH_TORCH]
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


# Tables of operators that are left, and why they are no traits.
TABLES = {
    "frontend.identity.MOVES",  # what the checksum of a model leaves out, a rule of that alone
    "frontend.torch.aten.elementwise.INTEGER",  # operators that PyTorch has for integers as well
    "passes.fuse_updates.FUSED_UPDATES",  # of optimizers, like the next; the first is from ops/
    "training.steps.STEPS",
}


def operators_in(value: object) -> int:
    """How many operators a collection holds, or has as keys."""
    if not isinstance(value, (dict, tuple, list, set, frozenset)):
        return 0
    return sum(isinstance(item, type) and issubclass(item, Op) for item in value)


def test_facts_about_operators_are_traits_and_not_tables() -> None:
    """See ir/traits.py: a new operator needs no entry in any other room."""
    found = set()
    for name, module in list(sys.modules.items()):
        room, _, _ = name.removeprefix("whet.").partition(".")
        if name.startswith("whet.") and room not in ("ops", "labs", "demo"):
            tables = [key for key, value in vars(module).items() if operators_in(value) > 1]
            found |= {f"{name.removeprefix('whet.')}.{key}" for key in tables}
    assert found <= TABLES, "say it on the class of each operator instead: see ir/traits.py"
    assert operators_in((Op, Op)) == operators_in({Op: 1, type("A", (Op,), {}): 2}) == 2


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
