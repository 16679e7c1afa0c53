"""The hook of mkdocs.yml: which files the site has.

Pages are the Markdown files of the repository at the paths they have there, with every file that
one of them links to. Reference pages are generated: the API, the options of commands, and the
errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "benchmarks", "examples", "notebooks")
LABS = "models compress llm tinytl federated privacy callbacks"
MODULES = ("whet", *(f"whet.{name}" for name in LABS.split()))
ERRORS = "reference/errors"
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()[^)\s#:]+(?=[)#])")


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).rglob("*.md"))]
    return sorted(path.relative_to(ROOT) for path in found)


def linked(page: Path) -> Iterator[Path]:
    """What a page links to in the repository."""
    for target in LINK.findall(FENCED.sub("", (ROOT / page).read_text())):
        path = (ROOT / page.parent / target).resolve()
        if path.exists() and path.is_relative_to(ROOT):
            yield path.relative_to(ROOT)


def listing(folder: Path) -> list[Path]:
    return sorted(p for p in (ROOT / folder).iterdir() if p.suffix in (".md", ".py"))


def index_of(folder: Path) -> str:
    """A page for a folder that has none: links to what is in it."""
    words = {p.name: title_of(p) if p.suffix == ".md" else p.name for p in listing(folder)}
    lines = [f"- [{word}]({name})" for name, word in words.items()]
    return "\n".join([f"# {folder.name.capitalize()}", "", *lines, ""])


def title_of(path: Path) -> str:
    return next(line for line in path.read_text().splitlines() if line.startswith("# "))[2:]


def indexes() -> dict[str, str]:
    """A page for each folder that another page links to and that has none."""
    sources = pages()
    folders = {path for page in sources for path in linked(page) if (ROOT / path).is_dir()}
    return {
        f"{folder.as_posix()}/README.md": index_of(folder)
        for folder in sorted(folders)
        if folder / "README.md" not in sources
    }


def generated() -> dict[str, str]:
    """The pages that are no files of the repository, by path."""
    import typer.main
    from typer.cli import get_docs_for_click

    from whet.cli import app
    from whet.cli.explain import pages as errors

    command = typer.main.get_command(app)
    with command.make_context("whet", ["ops"], resilient_parsing=True) as context:
        made = {"reference/options.md": get_docs_for_click(obj=command, ctx=context, name="whet")}
    rows = [f"| [{e.code}]({e.code}.md) | `{e.name}` | {e.title} |" for e in errors()]
    table = ["# Errors", "", "| code | class | meaning |", "|---|---|---|", *rows, ""]
    made[f"{ERRORS}/README.md"] = "\n".join(table)
    made |= {f"{ERRORS}/{e.code}.md": e.text for e in errors()}
    return made | indexes() | {f"reference/{module}.md": api_of(module) for module in MODULES}


def api_of(module: str) -> str:
    """What a module makes public, for mkdocstrings.

    It takes a function of a lab for the file of the same name: such functions are named again.
    """
    lab = ROOT / "src" / "whet" / "labs" / module.rpartition(".")[2] / "__init__.py"
    text = lab.read_text() if lab.exists() else ""
    again = re.findall(r"^from \.(\w+) import (?:.*\W)?\1\b", text, re.MULTILINE)
    options = "\n    options: {show_root_heading: true, heading_level: 2}"
    named = [f"::: whet.labs.{lab.parent.name}.{name}.{name}{options}" for name in again]
    return "\n\n".join([f"# {module}", f"::: {module}", *named, ""])


# What mkdocs calls ----------------------------------------------------------------------------


def on_files(files: Files, config: Any) -> Files:
    theme = [file for file in files if file.src_dir != config.docs_dir]
    sources, texts = pages(), generated()
    reached = {path for page in sources for path in linked(page)}
    reached |= {Path(uri).parent / p.name for uri in indexes() for p in listing(Path(uri).parent)}
    own = sorted(path for path in {*sources, *reached} if (ROOT / path).is_file())
    where = (str(ROOT), config.site_dir, config.use_directory_urls)
    found = [File(path.as_posix(), *where) for path in own]
    found += [File.generated(config, uri, content=text) for uri, text in texts.items()]
    return Files([*theme, *found])


def on_config(config: Any) -> Any:
    known = {*(path.as_posix() for path in pages()), *generated()}
    config.nav = expanded(config.nav, sorted(known))
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to folders lead to their pages."""
    folder = ROOT / PurePosixPath(page.file.src_uri).parent

    def to_page(link: re.Match[str]) -> str:
        target = link[0].rstrip("/")
        return f"{target}/README.md" if (folder / target).is_dir() else link[0]

    return LINK.sub(to_page, markdown)


def expanded(entry: Any, known: list[str]) -> Any:
    """Navigation in which a folder, as `docs/design/`, is the list of its pages."""
    if isinstance(entry, dict):
        return {title: expanded(below, known) for title, below in entry.items()}
    if isinstance(entry, list):
        return [found for one in entry for found in listed(expanded(one, known))]
    if not entry.endswith("/"):
        return entry
    inside = [uri.removeprefix(entry) for uri in known if uri.startswith(entry)]
    own = [name for name in inside if "/" not in name]
    own.sort(key=lambda name: (name != "README.md", name))
    below = sorted({name.split("/")[0] for name in inside} - set(own))
    return [f"{entry}{name}" for name in own] + [
        {name: expanded(f"{entry}{name}/", known)} for name in below
    ]


def listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]
