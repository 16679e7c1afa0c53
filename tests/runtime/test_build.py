"""The cache of compiled kernels: what is the same is compiled once, what changed again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import whet
from whet.runtime.build import with_headers


def test_programs_share_the_kernels_that_are_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two more kernels, with headers of their own, and nothing else is compiled again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)]

    def objects(*more: nn.Module) -> set[str]:
        model = nn.Sequential(*layers[:2], *more, *layers[2:]).train()
        whet.compile(model, (torch.randn(2, 4),)).load()
        return {path.name for path in (tmp_path / "whet").glob("*.kept")}

    first = objects()
    added = objects(nn.Dropout(0.5)) - first
    assert {name.rpartition("-")[0] for name in added} == {"dropout", "bits"}


def test_a_kernel_is_compiled_again_if_a_header_of_its_headers_is_another(tmp_path: Path) -> None:
    (tmp_path / "kernels" / "vec").mkdir(parents=True)
    inner = tmp_path / "kernels" / "whet_inner.h"
    inner.write_text("#define SIZE 1\n")
    (tmp_path / "kernels" / "whet_outer.h").write_text('#include "whet_inner.h"\n')
    source = tmp_path / "kernels" / "vec" / "kernel.c"
    source.write_text('#include "whet_outer.h"\n')
    first = with_headers(source, tmp_path)
    assert b"SIZE 1" in first
    inner.write_text("#define SIZE 2\n")
    assert with_headers(source, tmp_path) != first
