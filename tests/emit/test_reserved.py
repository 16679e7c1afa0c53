"""Names that C, its headers, compilers or whet own: a parameter may be called any of them."""

from __future__ import annotations

import functools
import random
import re
import shutil
import subprocess
from keyword import iskeyword  # which torch.export does not take
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from whet.emit.reserved import KEYWORDS
from whet.emit.tensors import identifiers

HEADERS = (
    "assert complex ctype errno fcntl fenv float inttypes iso646 limits locale malloc math pthread "
    "sched setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn "
    "string strings sys/stat sys/types time uchar unistd wchar wctype".split()
)
COMPILERS = {
    "gcc": ["gcc"],
    "clang": ["clang"],
    "arm": ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb"],
    "aarch64": ["aarch64-linux-gnu-gcc"],
}
STANDARDS = ("-std=c11", "-std=gnu11", "-std=gnu11 -D_GNU_SOURCE -include immintrin.h", "-std=c2x")
OTHERS = (  # that -dM does not show: keywords, functions, types, what whet declares
    "_Alignas _Alignof _Atomic _Bool _Complex _Decimal32 _Generic _Imaginary _Noreturn _Pragma "
    "_Static_assert _Thread_local __LINE__ __FILE__ __func__ __asm__ __attribute__ __COUNTER__ "
    "I NAN INFINITY M_PI EOF AT TEXT TENSOR READ_ONLY WHET_GRAIN NET_OK NET_ALIGNED whet_linear "
    "memcpy memset malloc main int32_t uint8_t size_t net net_t params state arena samples "
    "sample_t input_1 input_1_t label lr loss".split()
)


@functools.cache
def macros(compiler: str, standard: str) -> frozenset[str]:
    """All that are defined once every header was included that the compiler has."""
    lines = [f"#if __has_include(<{h}.h>)\n#include <{h}.h>\n#endif\n" for h in HEADERS]
    options = standard.split()
    if compiler not in ("gcc", "clang"):
        options = [o for o in options if "immintrin" not in o and o != "-include"]
    done = subprocess.run(
        [*COMPILERS[compiler], *options, "-dM", "-E", "-xc", "-"],
        input="".join(lines), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return frozenset(re.findall(r"^#define (\w+)", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_identifier_is_a_macro(compiler: str, standard: str) -> None:
    if not shutil.which(COMPILERS[compiler][0]):
        pytest.skip(f"{compiler} is not installed")
    found = macros(compiler, standard)
    assert len(found) > 1000 and {"INT32_MAX", "errno", "assert"} <= found
    names = sorted(found | KEYWORDS | {*OTHERS})
    words = identifiers(names)
    assert found.isdisjoint(words.values())
    assert KEYWORDS.isdisjoint(words.values())
    assert len(set(words.values())) == len(names)


def test_ordinary_names_stay() -> None:
    names = "weight layer1.0.conv1.weight 0.weight lstm.weight_ih_l0 cls_token LN.b stride token "
    names += "memory Mixed_5b.conv M.weight input_proj is_first string.bias"
    words = identifiers(names.split())
    assert words.pop("0.weight") == "_0_weight"
    assert words == {name: name.replace(".", "_") for name in words}


class Owned(nn.Module):
    """A parameter of each of these names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.called = names
        for i, name in enumerate(names):
            self.register_parameter(name, nn.Parameter(torch.full((2,), 0.001 * i)))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.stack([self._parameters[name] for name in self.called]).sum(0)


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++"])
def test_a_program_of_such_names_builds_and_trains(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", "gcc" if compiler == "g++" else compiler)
    found = sorted(macros("gcc", STANDARDS[1]))
    low = [name for name in found if re.match("[a-z]", name)]
    names = [*random.Random(0).sample(found, 160), *low, *KEYWORDS, *OTHERS]
    names = [n for n in dict.fromkeys(names) if not hasattr(nn.Module(), n) and not iskeyword(n)]
    assert len(names) > 300
    model, x, y = Owned(names), torch.randn(3, 2), torch.tensor([0, 1, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    program = whet.compile(model, (x,), optimizer=optimizer)
    if compiler == "g++":  # a user's file, with all headers before ours
        include = "".join(
            f"#include <{h}.h>\n" for h in HEADERS if h not in ("stdatomic", "complex")
        )
        folder = program.write(tmp_path / "out")
        (folder / "user.cc").write_text(f'{include}#include "model.h"\n#include "weights.h"\n')
        command = ["g++", "-std=gnu++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "user.cc"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:2000]
        return
    trainer = program.load()
    trainer.step(x, y)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    arrays = trainer.arrays()
    assert arrays.keys() == {*names}
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(arrays[name], parameter.detach().numpy(), atol=1e-6)
