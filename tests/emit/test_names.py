"""Names come from strangers: whatever a module is called, it stays a name and does nothing."""

from __future__ import annotations

import dataclasses
import keyword
import os
import random
import re
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import whet
from pages import Page
from tiny import convnet, images, mlp
from whet.emit.c_text import comment
from whet.emit.program import Program
from whet.errors import FrontendError, WhetError
from whet.ir import Graph, Value
from whet.ir.printing import print_graph
from whet.ir.text import parse_graph
from whet.names import for_comment, printable, quoted, unquoted
from whet.pipeline import place
from whet.report import arena_svg, layer_table, layers_svg
from whet.report.page import Extras, html_page
from whet.scheme import parameters_of
from whet.settings import check_name

MARK = "touched"  # a file that appears if some name was run
COMMAND = ",".join(str(ord(c)) for c in f"touch {MARK}")
PIECES = [
    "*/", "/*", "//", "*", "/", "\\", "\\\n", "\n", "\r", "\r\n", "\t", "\0", " ", "??/", "??/\n",
    "?", "??", '"', "'", "`", ";", ",", "#", "%", "%s", "%n", "$", "$$", "&", "|", "(", ")", "{",
    "}", "<", ">", "[", "]", "<:", ":>", "<%", "%>", "%:", "~", "=", "!", "@", "^", "\x1b[2J",
    "\x7f", "\x85", "\u2028", "\u202e", "é", "漢", "\U0001f600", "weight", "x", "0", "_", "-",
    "@name@", "@kernels@", "NET_", "net_", "AT(", f"$(touch {MARK})", f"`touch {MARK}`",
    f"$(shell touch {MARK})", f"; touch {MARK};", f"\n\ttouch {MARK}\n",
    f"*/int/**/system(const/**/char*);system((const/**/char<::>){{{COMMAND},0}});/*",
    f'*/\nint system(const char *);\nstatic int a = system("touch {MARK}");\n/*',
    '\n#include <stdlib.h>\n__attribute__((constructor)) void f(void) { system("ls"); }\n',
    '_Pragma("GCC error \\"x\\"")', "\n#error x\n", "</script><script>", "]]>", "<!--", "-->",
    "&lt;",
]  # fmt: skip
SCRIPT = '</title></script><script>alert(1)</script><img src=x onerror="alert(2)">'
HOSTILE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)


@given(st.text(), st.text())
def test_a_quoted_name_is_one_plain_word_and_comes_back(name: str, other: str) -> None:
    assert re.fullmatch(r"[!-~]*", quoted(name)) and "," not in quoted(name)
    assert unquoted(quoted(name)) == name
    assert (quoted(name) == quoted(other)) == (name == other)
    assert quoted("features.0.conv-1[2]_x") == "features.0.conv-1[2]_x"


@given(HOSTILE)
def test_text_for_a_terminal_has_no_control_characters(text: str) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in printable(text))
    assert printable("plain words\n\tof any sort: é 漢") == "plain words\n\tof any sort: é 漢"
    assert "\x1b" not in str(WhetError(f"no {text}", at=text, why=[text], try_=text))


def without_comments(code: str) -> str:
    """What the compiler sees: lines joined, then comments gone, as C says."""
    done = subprocess.run(
        ["gcc", "-std=c11", "-Wcomment", "-Wtrigraphs", "-fpreprocessed", "-E", "-P", "-xc", "-"],
        input=code, capture_output=True, text=True,
    )  # fmt: skip
    assert "comment" not in done.stderr and "trigraph" not in done.stderr
    return done.stdout


def test_hostile_text_stays_in_its_comment() -> None:
    """All pairs of pieces, each between two declarations of its own."""
    pairs = [f"{a}{b}" for a in PIECES for b in PIECES]
    long = [" ".join([text] * 40) for text in PIECES]
    texts = [*pairs, *long, *(f"{text} " * 3 for text in PIECES)]
    lines = []
    for i, text in enumerate(texts):
        lines += [*comment(f"%{text}"), f"int a{i};"]
        assert all(" " <= c <= "~" for c in for_comment(text))
    seen = without_comments("\n".join(lines)).split()
    assert seen == " ".join(f"int a{i};" for i in range(len(texts))).split()


# A whole program whose every value has such a name ---------------------------------------------


def renamed(program: Program, names: list[str]) -> tuple[Program, dict[str, str]]:
    """The program with its values called otherwise; inputs, labels and scalars keep their names."""
    new: dict[str, str] = {}

    def name_of(old: str) -> str:
        if old not in new:
            new[old] = f"{names[len(new) % len(names)]}{len(new)}"
        return new[old]

    kept = {v.name for v in program.entries["train_step"].leaves if v.role.value in KEPT}
    new.update({name: name for name in kept})

    def again(graph: Graph) -> Graph:
        values: dict[Value, Value] = {}

        def value(v: Value) -> Value:
            return values.setdefault(v, dataclasses.replace(v, name=name_of(v.name)))

        nodes = tuple(
            dataclasses.replace(
                node,
                ins=tuple(map(value, node.ins)),
                outs=tuple(map(value, node.outs)),
                loc=dataclasses.replace(node.loc, module=name_of(node.loc.module)),
            )
            for node in graph.nodes
        )
        return Graph(
            graph.name,
            tuple(map(value, graph.leaves)),
            nodes,
            tuple(map(value, graph.outputs)),
            tuple((value(a), value(b)) for a, b in graph.state),
            {name_of(name): array for name, array in graph.data.items()},
        )

    entries = {name: again(graph) for name, graph in program.entries.items()}
    tensors = {new.get(name, name): info for name, info in program.tensors.items()}
    plans = place(entries, program.options)
    return dataclasses.replace(program, entries=entries, plans=plans, tensors=tensors), new


KEPT = ("input", "label", "scalar")


@pytest.fixture(scope="module")
def plain() -> Program:
    torch.manual_seed(0)
    return whet.compile(convnet().train(), next(images())[:1])


@pytest.mark.parametrize("seed", range(8))
def test_a_program_of_hostile_names_does_what_the_plain_one_does(
    plain: Program, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    names = ["".join(rng.choices(PIECES, k=rng.randint(1, 5))) for _ in range(100)]
    program, new = renamed(plain, names)
    assert len(new) > 50, "all of them in some comment or report"
    for name, graph in program.entries.items():
        data = {leaf: array for leaf, array in graph.data.items()}
        assert print_graph(parse_graph(print_graph(graph), data)) == print_graph(graph), name
    folder = program.write(tmp_path / "out")
    for file in ("model.c", "model.h", "weights.h", "weights.c", "report.txt"):
        ours = (folder / file).read_text()
        assert all(" " <= c <= "~" or c == "\n" for c in ours), file
        if file.endswith((".c", ".h")):
            theirs = plain.files[file].decode()
            assert shape(without_comments(ours)) == shape(without_comments(theirs))
    assert all(" " <= c <= "~" or c == "\n" for c in layer_table(program))

    ours, theirs = program.load(), plain.load()
    for (x,), y in [((batch[0],), batch[1]) for batch, _ in zip(images(), range(2), strict=False)]:
        assert ours.step(x, y) == theirs.step(x, y)
    for name, array in theirs.arrays().items():
        assert np.array_equal(ours.arrays()[new.get(name, name)], array)
    assert not list(tmp_path.rglob(MARK))


FOLDERS = ["out", "a b", f"$(touch {MARK})", f"`touch {MARK}`", f"; touch {MARK} ;", "%s\\", "é"]


@pytest.mark.parametrize("name", FOLDERS)
def test_it_builds_with_its_own_makefile(plain: Program, name: str, tmp_path: Path) -> None:
    program, _ = renamed(plain, PIECES)
    folder = program.write(tmp_path / name)
    subprocess.run(["make", "-s", "CFLAGS=-O0"], cwd=folder, check=True)
    subprocess.run([folder / "net"], cwd=folder, check=True, capture_output=True)
    assert not list(tmp_path.rglob(MARK))


def test_firmware_of_hostile_names_runs_where_paths_are_hostile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TMPDIR", "XDG_CACHE_HOME"):
        folder = tmp_path / f"{variable}, $(touch {MARK}) '"
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    base = whet.compile(mlp(), (torch.randn(1, 5),), target="cortex-m7")
    program, _ = renamed(base, PIECES)
    folder = program.write(tmp_path / "out", samples=(torch.randn(2, 5), torch.tensor([0, 1])))
    subprocess.run(["cmake", "-S", folder, "-B", folder / "b"], check=True, capture_output=True)
    with program.load() as board:
        loss = board.step(torch.ones(1, 5), torch.tensor([1]))
    assert board.watched is not None and board.watched.outside == 0
    host = whet.compile(mlp(), (torch.randn(1, 5),), target="portable").load()
    assert loss == pytest.approx(host.step(torch.ones(1, 5), torch.tensor([1])), rel=1e-6)
    assert not list(tmp_path.rglob(MARK))


BUILT = ["net", "_", "__x", "main", "model", "int", "std", "memcpy", "weights", "x" * 64]
REFUSED = (
    "whet_net whet_checkpoint kernels lib size clean run all test help Makefile makefile".split()
)


@pytest.mark.parametrize("name", BUILT)
def test_a_program_of_this_name_builds(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = whet.compile(mlp(), (torch.randn(1, 5),), target="portable", name=name)
    folder = program.write(tmp_path)
    make = ["make", "-s", "CFLAGS=-O0"]
    subprocess.run([*make, name, "lib"], cwd=folder, check=True, capture_output=True)
    assert (folder / name).is_file() and (folder / f"lib{name}.so").is_file()


REFUSED += [piece for piece in PIECES if not re.fullmatch(r"[A-Za-z_]+", piece)]


@pytest.mark.parametrize("name", [*REFUSED, "", "x" * 65], ids=ascii)
def test_a_program_of_this_name_is_refused(name: str) -> None:
    with pytest.raises(FrontendError, match="the program"):
        check_name(name)


def test_pictures_of_hostile_names_are_xml_that_draws_only(plain: Program) -> None:
    program, _ = renamed(plain, PIECES)
    for title in PIECES:
        drawn = arena_svg(program.plans["train_step"], title), layers_svg(program, title)
        for svg in drawn if title == PIECES[0] else drawn[:1]:
            kinds = {
                element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()
            }
            assert kinds <= {
                "svg",
                "g",
                "rect",
                "text",
                "title",
                "line",
                "path",
                "polyline",
                "circle",
            }


def test_a_page_of_hostile_names_has_no_element_of_theirs(plain: Program) -> None:
    """The script reads names as JSON and makes text of them; everything else is escaped."""
    program, _ = renamed(plain, PIECES)
    pages = [Page(html_page(p, Extras(title=t))) for p, t in ((plain, "x"), (program, SCRIPT))]
    ours, theirs = (page.tags for page in pages)
    assert ours.keys() == theirs.keys() and ours["script"] == theirs["script"] == 2
    assert [v for _, key, v in pages[1].attributes if key.startswith("on") or "//" in v] == []
    shown = pages[1].data["plans"][0]
    buffers = program.plans["train_step"].buffers
    assert [b["name"] for b in shown["blocks"]] == [quoted(b.values[0].name) for b in buffers]


def shape(code: str) -> list[str]:
    """The tokens of a C file, with one word for all identifiers that a name may be part of, and
    for the checksum of all names."""
    tokens = re.findall(r"[A-Za-z_]\w*|\d[\w.]*|\S", code)
    ours = re.compile(r"(?!whet_)[A-Za-z_]|0x[0-9a-f]{8}u")
    return ["name" if ours.match(token) else token for token in tokens]


# Through PyTorch ------------------------------------------------------------------------------

MODULES = [
    "x*/int/**/system(const/**/char*);system((const/**/char<::>){" + COMMAND + ",0});/*",
    "a b", "??/", "é", "漢", "\x1b[31m", "\u202e", "a'b", "a,b", "a;b", "<script>",
    f"$(touch {MARK})", f"`touch {MARK}`", "%s%n", "{x}", "a[0]", "#", "x=1", "self", "weight",
    "input", "label", "lr", "loss", "net", "*", "?", "[!a]", "-", "0",
]  # fmt: skip
NOT_TRACED = [
    "a\nb",
    "a\rb",
    "a\0b",
    "a\\",
    "\\x",
    'a"b',
    "a\ud800",
    *keyword.kwlist,
]  # by torch.export


class Named(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(4, 4))
        self.called = names

    def forward(self, x: Tensor) -> Tensor:
        for name in self.called:
            x = x + torch.tanh(getattr(self, name)(x))
        return x


def test_modules_of_such_names_train_as_in_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model, x, y = Named(*MODULES), torch.randn(2, 4), torch.tensor([0, 2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    program = whet.compile(model, (x,), optimizer=optimizer)
    trainer = program.load()
    trainer.step(x, y)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    ours = trainer.state_dict()
    assert list(ours) == [name for name, _ in model.named_parameters()]
    for name, value in model.state_dict().items():
        assert torch.allclose(ours[name], value, atol=1e-6)
    parameters = parameters_of(program.source.imported().training.graph)
    assert program.scheme is not None
    again = whet.Scheme.from_toml(program.scheme.to_toml())
    assert set(again.resolve(parameters)) == set(ours)
    assert not os.path.exists(MARK)


def test_names_that_cannot_be_traced_are_refused_by_name() -> None:
    others = []
    for name in NOT_TRACED:
        with pytest.raises(FrontendError) as raised:
            whet.compile(Named("fine", name), (torch.randn(2, 4),))
        text = str(raised.value)
        assert f"a module is called {name!r}, which torch.export cannot trace" in text
        assert f"at    {printable(name)}.weight" in text
        suggested = re.search("rename it, to '(.*)' for example", text)
        assert suggested
        others.append(suggested[1])
    whet.compile(Named(*dict.fromkeys(others)), (torch.randn(2, 4),))


@pytest.mark.parametrize("name", NOT_TRACED[:8], ids=ascii)
def test_torch_export_does_not_trace_them(name: str) -> None:
    """If it does one day, they need not be refused."""
    with pytest.raises((SyntaxError, UnicodeEncodeError)):
        torch.export.export(Named(name), (torch.randn(2, 4),)).run_decompositions({})


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_so_are_those_of_tensors(kind: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    if kind == "parameter":
        model[0].register_parameter("if", nn.Parameter(torch.zeros(4)))
    else:
        model[0].register_buffer("if", torch.zeros(4))
    with pytest.raises(
        FrontendError, match=f"a {kind} is called 'if', which torch.export"
    ) as error:
        whet.compile(model, (torch.randn(2, 4),))
    assert "at    0.if" in str(error.value) and "rename it, to 'if_'" in str(error.value)


def test_what_a_name_would_have_torch_run_is_not_run(tmp_path: Path) -> None:
    """torch.export evaluates what it writes: a name that is code would be run."""
    name = f'a"); open("{tmp_path}/{MARK}", "w") #'.replace(".", "_")
    with pytest.raises(FrontendError, match="cannot trace"):
        whet.compile(Named(name), (torch.randn(2, 4),))
    assert not list(tmp_path.iterdir())


def test_the_name_of_a_scheme_stays_on_its_line(plain: Program) -> None:
    for name in PIECES:
        scheme = whet.Scheme.from_toml(whet.Scheme([whet.Rule("*")], name=name).to_toml())
        assert scheme.name == name
        program = dataclasses.replace(plain, scheme=scheme)
        lines = program.report().splitlines()
        assert len(lines) == len(plain.report().splitlines())
        assert all(line.isprintable() for line in lines)
