"""Compile a fixed set of programs and compare them with those of another commit.

    python tools/replay.py main           every case: this working tree against a commit
    python tools/replay.py main -k int8   the cases whose name contains a word
    python tools/replay.py main --code    the same without the comments of generated files
    python tools/replay.py --dump DIR     write what this working tree makes

A dump holds, for each case, the graph and the plan of every entry point and every generated file.
An empty difference proves that a change moves code without changing what is compiled.
"""

from __future__ import annotations

import argparse
import difflib
import filecmp
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 20  # lines shown of each difference


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    parser.add_argument("-k", default="", metavar="WORD", help="only cases named so")
    parser.add_argument("--code", action="store_true", help="ignore comments and line breaks in C")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write files, compare nothing")
    asked = parser.parse_args()
    if asked.dump is not None:
        dump(asked.dump, asked.k, asked.code)
        return 0
    if asked.base is None:
        parser.error("specify a commit to compare with, such as main")
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        return compare(asked.base, asked.k, asked.code, Path(name))


def compare(base: str, word: str, code: bool, folder: Path) -> int:
    """Dump both sides, each in its own process; the number of differing files decides."""
    tree, sides = folder / "tree", {"before": folder / "before", "after": folder / "after"}
    git = ["git", "-C", str(ROOT)]
    subprocess.run([*git, "worktree", "add", "-q", "--detach", str(tree), base], check=True)
    try:
        sources = {"before": tree / "src", "after": ROOT / "src"}

        def dumped(side: str) -> None:
            command = [sys.executable, __file__, "--dump", str(sides[side]), "-k", word]
            command += ["--code"] if code else []
            environment = {**os.environ, "PYTHONPATH": str(sources[side]), "WHET_UNTUNED": "1"}
            subprocess.run(command, check=True, env=environment)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(dumped, sides))
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)
    return report(sides["before"], sides["after"])


def report(before: Path, after: Path) -> int:
    files = sorted({str(p.relative_to(side)) for side in (before, after)
                    for p in side.rglob("*") if p.is_file()})  # fmt: skip
    cases = {Path(name).parts[0] for name in files}
    differing = [
        name for name in files
        if not (before / name).exists() or not (after / name).exists()
        or not filecmp.cmp(before / name, after / name, shallow=False)
    ]  # fmt: skip
    for name in differing:
        print(f"--- {name}")
        for line in difference(before / name, after / name)[:SHOWN]:
            print(line)
    print(f"{len(cases)} cases, {len(files):,} files, {len(differing)} differ")
    return 1 if differing else 0


def difference(before: Path, after: Path) -> list[str]:
    """A unified diff of two texts, or a note for what cannot be shown as one."""
    for path, side in ((before, "before"), (after, "after")):
        if not path.exists():
            return [f"missing {side}"]
    try:
        texts = [path.read_text().splitlines() for path in (before, after)]
    except UnicodeDecodeError:
        return ["the bytes differ"]
    return [line for line in difflib.unified_diff(*texts, lineterm="", n=1)][2:]


def dump(folder: Path, word: str, code: bool) -> None:
    import replay_cases

    for name, program in replay_cases.programs(word):
        for path, content in contents(program).items():
            target = folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(without_comments(path, content) if code else content)


def without_comments(path: str, content: bytes) -> bytes:
    """The statements of a C, linker or build file, one a line; other files as they are."""
    if path.endswith((".c", ".h", ".ld")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", content.decode(), flags=re.DOTALL)
        text = re.sub(r"\s+", " ", re.sub(r"(?m)^(#.*)$", r";\1;", text))
        return text.replace(";", ";\n").encode()
    if Path(path).name in ("Makefile", "CMakeLists.txt"):
        return re.sub(rb"(?m)^\s*#.*\n", b"", content)
    return content


def contents(program: Any) -> dict[str, bytes]:
    """Every decision about a program, by path."""
    found = {f"{name}.ir": f"{graph}\n" for name, graph in program.entries.items()}
    for name, plan in program.plans.items():
        found[f"{name}.plan"] = plan_text(plan)
    found["memory"] = "".join(f"{key} {value}\n" for key, value in program.memory.items())
    return {path: text.encode() for path, text in found.items()} | program.files


def plan_text(plan: Any) -> str:
    lines = [f"arena {plan.arena}, at least {plan.lower_bound}, peak at {plan.peak}"]
    for b in plan.buffers:
        names = ", ".join(v.name for v in b.values)
        lines.append(f"{b.offset:>10} {b.bytes:>10} {b.first:>5} {b.last:>5}  {names}")
    lines += [f"copy {to.name} <- {source.name}" for to, source in plan.copies]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
