"""Taste, enforced: which way imports point, where C is written, how large files are."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import whet
from imports import ROOT, cycles, files_of, module_graph, module_name, own, package_of, read_imports
from whet.ir import Op

REPOSITORY = ROOT.parents[1]
FILES = files_of()

# Each package may use those above it, never those below.
ROWS = (
    ("names", "writing"), ("errors",), ("ir",), ("ops",), ("memory",), ("passes",),
    ("training",), ("scheme",), ("frontend",), ("models",), ("quantize",), ("report",), ("emit",),
    ("runtime",), ("fit",), ("targets",), ("tune",), ("settings",), ("debug",), ("pipeline",),
    ("saved",), ("budget",), ("verify",), ("source",), ("workbench",), ("api",),
    ("__init__",), ("labs",), ("callbacks", "tinytl", "federated", "privacy", "compress", "llm"),
    ("cli", "demo"), ("__main__",),
)  # fmt: skip
ROW = {room: i for i, rooms in enumerate(ROWS) for room in rooms}

# Convenience that reaches outwards, on purpose and only when it is called.
OUTWARD = {("runtime", "fit")}  # `Trainer.fit` and its like
WITH_TORCH = {"frontend", "models", "verify", "demo", "labs"}
LATE_TORCH = {"api", "cli", "runtime"}  # inside functions that need it anyway

IMPORTS = read_imports()
OWN = own(IMPORTS)


def test_the_reader_of_imports_sees_what_there_is() -> None:
    """Every rule below would hold if this found nothing."""
    pairs = {(i.package, i.target_package, i.late) for i in OWN}
    assert {("ops", "ir", False), ("emit", "memory", False), ("cli", "report", False)} <= pairs
    assert {
        ("training", "ops", False),
        ("runtime", "emit", False),
        ("api", "frontend", False),
    } <= pairs
    assert ("emit", "runtime", False) not in pairs, "imports for the type checker do not count"


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {package_of(file) for file in FILES}
    assert packages <= ROW.keys(), "a new package: say in ROWS where it belongs"


def test_imports_point_one_way() -> None:
    outward = [i for i in OWN if ROW[i.target_package] > ROW[i.package]]
    agreed = [i for i in outward if i.late and (i.package, i.target_package) in OUTWARD]
    assert [str(i) for i in outward if i not in agreed] == []
    unused = OUTWARD - {(i.package, i.target_package) for i in agreed}
    assert unused == set(), "nothing imports these any more: remove them from OUTWARD"


# What labs may import: the modules that users have, too. docs/contributing/add-a-lab.md lists them.
PUBLIC = {
    "whet", "whet.api", "whet.errors", "whet.fit.metrics", "whet.models", "whet.report",
    "whet.report.curves", "whet.report.svg", "whet.runtime", "whet.runtime.steps",
    "whet.runtime.update", "whet.scheme", "whet.workbench", "whet.writing",
    "whet.frontend.torch.aten.largest",  # the PyTorch operator `whet.keep_largest`
    "whet.frontend.torch.masks",  # copies of pruned models
}  # fmt: skip


def test_labs_use_the_public_api_only() -> None:
    """And what labs share, in labs/common; never another lab."""
    of_labs = [i for i in OWN if i.package == "labs"]
    assert len(of_labs) > 20
    wrong = []
    for i in of_labs:
        lab = i.file.relative_to(ROOT / "labs").parts[0]
        inside = i.target.startswith(("whet.labs.common", f"whet.labs.{lab}"))
        if i.target not in PUBLIC and not inside:
            wrong.append(str(i))
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
        if package_of(file) != "targets"
        for line in file.read_text().splitlines()
        if asks.search(line)
    ]
    assert found == []


def test_no_modules_import_each_other_at_import_time() -> None:
    assert cycles(module_graph(late=False)) == []


# Modules of the largest cycle when imports inside functions count. Lower it, never raise it.
LARGEST_CYCLE = 0


def test_late_imports_tie_few_modules_together() -> None:
    found = cycles(module_graph(late=True))
    assert max(map(len, found), default=0) <= LARGEST_CYCLE, found[0]


def test_cycles_are_found() -> None:
    """The two tests above would hold if this found nothing."""
    uses = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a", "e"}}
    assert cycles(uses) == [["a", "b", "c"], ["d", "e"]]
    assert cycles({"a": {"b"}, "b": set()}) == []


def test_the_core_does_not_know_pytorch() -> None:
    of_torch = [i for i in IMPORTS if i.target.split(".")[0] in ("torch", "torchvision", "timm")]
    assert any(i.package == "frontend" for i in of_torch)
    late = [i for i in of_torch if i.late and i.package in LATE_TORCH]
    others = [i for i in of_torch if i.package not in WITH_TORCH and i not in late]
    assert [str(i) for i in others] == []


def test_the_core_can_be_imported_without_pytorch() -> None:
    """Whatever it imports, at any distance, in a process where `import torch` fails."""

    def importing(*modules: str) -> subprocess.CompletedProcess[str]:
        code = "import importlib, sys; sys.modules['torch'] = None\n"
        code += "for name in sys.argv[1:]: importlib.import_module(name)"
        command = [sys.executable, "-c", code, *modules]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    needs = WITH_TORCH - {"frontend"} | {
        "source",
        "workbench",
        "api",
        "tinytl",
        "privacy",
        "compress",
        "llm",
        "__main__",
    }
    modules = {module_name(file) for file in FILES if package_of(file) not in needs}
    formats = ("torch", "onnx", "keras", "jax", "tflite")  # whose models become torch modules
    torch_ones = tuple(f"whet.frontend.{name}" for name in formats)
    modules = {name for name in modules if not name.startswith(torch_ones)}
    assert {"whet.pipeline", "whet.frontend.model", "whet.quantize.model"} < modules
    done = importing(*sorted(modules))
    assert done.returncode == 0, done.stderr
    assert "import of torch halted" in importing("whet.frontend.torch.export").stderr


def test_the_core_needs_numpy_and_the_standard_library_only() -> None:
    allowed = {"whet", "numpy", "__future__", *sys.stdlib_module_names}
    core = [i for i in IMPORTS if ROW[i.package] <= ROW["targets"] and i.package not in WITH_TORCH]
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
    assert len(found.pop("emit/c.py")) > 10, "the pattern knows C when it sees it"
    names = ("header", "weights", "mapped", "main", "delta", "state", "threads", "trace")
    assert all(found.pop(f"emit/c_{name}.py") for name in names)
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_the_hook_before_a_commit_runs_make_lint() -> None:
    """The commands are in the Makefile only, and nothing is fetched."""
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    ((repo, hooks),) = ((group["repo"], group["hooks"]) for group in config["repos"])
    assert repo == "local"
    assert [(hook["entry"], hook["language"]) for hook in hooks] == [("make lint", "system")]
    recipe = (REPOSITORY / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    tools = "ruff check", "ruff format --check", "mypy", "clang-format --dry-run"
    assert all(f"$(BIN)/{tool}" in recipe for tool in tools)


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
    names = (
        "Int8 Outputs Program Rule SampleCache Scheme Search Send Trainer TrialSettings WhetError "
    )
    names += "Workbench compare compile contributions errors load lora plan search"
    assert whet.__all__ == names.split()
    for name in whet.__all__:
        assert getattr(whet, name) is not None
    assert re.fullmatch(r"\d+\.\d+\.\d+", whet.__version__)


# Tables of operators that are left, and why they are no traits.
TABLES = {
    "frontend.identity.MOVES",  # what the checksum of a model leaves out, a rule of that alone
    "frontend.torch.aten.elementwise.INTEGER",  # operators that PyTorch has for integers as well
    "passes.fuse_updates.FUSED",  # made from the records of ops/optimizers, as is the next one
    "passes.fuse_updates.FUSED_LIVE",
}


def operators_in(value: object) -> int:
    """How many operators a collection holds, or has as keys."""
    if not isinstance(value, (dict, tuple, list, set, frozenset)):
        return 0
    return sum(isinstance(item, type) and issubclass(item, Op) for item in value)


def test_facts_about_operators_are_traits_and_not_tables() -> None:
    """See ir/traits.py: a new operator needs no entry in any other package."""
    found = set()
    for file in FILES:
        if package_of(file) not in ("ops", "labs", "demo", "__main__"):
            name = module_name(file)
            module = importlib.import_module(name)
            tables = [key for key, value in vars(module).items() if operators_in(value) > 1]
            found |= {f"{name.removeprefix('whet.')}.{key}" for key in tables}
    assert found == TABLES, "say it on the class of each operator instead: see ir/traits.py"
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
