"""Read the imports of src/whet: which module imports which, at import time and later.

Imports under TYPE_CHECKING never run and are not counted. Neither are the names that
`whet/__init__.py` loads through importlib when they are first used.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "whet"
Uses = Mapping[str, set[str]]  # the modules that each module imports


@dataclass(frozen=True)
class Import:
    root: Path  # of the package that the file belongs to
    file: Path
    line: int
    target: str  # the module, dotted and absolute
    late: bool  # inside a function

    @property
    def module(self) -> str:
        return module_name(self.file, self.root)

    @property
    def package(self) -> str:
        return package_of(self.file, self.root)

    @property
    def target_package(self) -> str:
        parts = self.target.split(".")
        return parts[1] if len(parts) > 1 else "__init__"

    def __str__(self) -> str:
        return f"{self.file.relative_to(self.root)}:{self.line} imports {self.target}"


def package_of(file: Path, root: Path = ROOT) -> str:
    """The package directly under whet, or the module if it lies there itself."""
    return file.relative_to(root).with_suffix("").parts[0]


def module_name(file: Path, root: Path = ROOT) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(("whet", *(p for p in parts if p != "__init__")))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports_in(file: Path, root: Path = ROOT) -> Iterator[Import]:
    """Every import of a file that can run, in the order of the lines."""
    package = ("whet", *file.relative_to(root).parts[:-1])

    def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = package[: len(package) - node.level + 1] if node.level else ()
        whole = ".".join((*base, *([node.module] if node.module else [])))
        for alias in node.names:
            below = root.joinpath(*whole.split(".")[1:], alias.name)
            is_module = below.is_dir() or below.with_suffix(".py").exists()
            yield f"{whole}.{alias.name}" if whole.startswith("whet") and is_module else whole

    def walk(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                yield from (Import(root, file, child.lineno, t, late) for t in targets(child))
            elif not is_type_checking(child):
                inside = isinstance(child, (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef))
                yield from walk(child, late or inside)

    yield from walk(ast.parse(file.read_text()), False)


def files_of(root: Path = ROOT) -> list[Path]:
    return sorted(root.rglob("*.py"))


@functools.cache
def read_imports(root: Path = ROOT) -> tuple[Import, ...]:
    return tuple(i for file in files_of(root) for i in imports_in(file, root))


def own(imports: Iterable[Import]) -> list[Import]:
    """Imports of whet itself."""
    return [i for i in imports if i.target.split(".")[0] == "whet"]


def module_graph(late: bool, root: Path = ROOT) -> dict[str, set[str]]:
    """Which modules each module imports; `late` counts imports inside functions as well."""
    uses: dict[str, set[str]] = {module_name(f, root): set() for f in files_of(root)}
    for i in own(read_imports(root)):
        target = i.target if i.target in uses else i.target.rpartition(".")[0]
        if target != i.module and (late or not i.late):
            uses[i.module].add(target)
    return uses


def cycles(uses: Uses) -> list[list[str]]:
    """Strongly connected components of more than one module, the largest first."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:  # Tarjan's algorithm
        number[module] = low[module] = len(number)
        stack.append(module)
        for target in sorted(uses[module]):
            if target not in number:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], number[target])
        if low[module] == number[module]:
            at = stack.index(module)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(uses):
        if module not in number:
            visit(module)
    return sorted((c for c in found if len(c) > 1), key=lambda c: (-len(c), c))
