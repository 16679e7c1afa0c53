"""The study of gradient compression: bytes are counted as they arrive, and the page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.federated import dgc


def test_a_wire_counts_every_byte_of_what_arrives() -> None:
    wire = dgc.Wire()
    for blob in (b"", b"x", bytes(range(256)) * 12_000):  # more than the buffers of a socket
        before = wire.carried
        assert wire(blob) == blob and wire.carried - before == 4 + len(blob)
    wire.close()


def records() -> list[dict[str, object]]:
    of = {"dense": (0.91, 4_000_000, 400_000), "dgc": (0.908, 10_000, 400)}
    return [
        {"method": method, "seed": seed, "epochs": 4, "batch": 8, "rate": 0.01, "rounds": 7_500,
         "network": "lenet", "parameters": 431_080, "accuracy": right + seed / 100, "loss": 0.1,
         "up": up, "down": 2 * up, "late_up": late, "late_down": late}
        for method, (right, up, late) in of.items() for seed in (0, 1)
    ]  # fmt: skip


def test_the_page_gives_means_and_ratios() -> None:
    text = dgc.page(records())
    assert "| dense momentum SGD | 91.50 ± 0.71 |  | 1.0 |" in text
    assert "| DGC, 99.9 % | 91.30 ± 0.71 | -0.20 | 0.0 | 400 | 1,000 | 400 |" in text
    assert "431,080 parameters" in text and "4 epochs" in text


def test_the_page_is_what_the_kept_results_give() -> None:
    folder = Path(dgc.__file__).parent
    assert (folder / "dgc.md").read_text() == dgc.page(dgc.kept(folder / "dgc.jsonl"))


def test_cells_that_are_kept_are_not_run_again(tmp_path: Path) -> None:
    cells = [dgc.Cell(method, seed) for method in ("dense", "dgc") for seed in (0, 1, 2)]
    assert dgc.missing(cells, records()) == [dgc.Cell("dense", 2), dgc.Cell("dgc", 2)]
    assert dgc.kept(tmp_path / "nothing") == [] and dgc.missing(cells, []) == cells


def test_settings_of_a_cell() -> None:
    cell = dgc.Cell("dgc", 0)
    assert cell.rounds * dgc.NODES * cell.batch == cell.epochs * dgc.PICTURES
    settings = cell.compression
    assert settings.count(431_080, cell.rounds) == 432
    assert settings.warm_up * 100 == cell.rounds
    assert cell.rate_at(0) == cell.rate and cell.rate_at(cell.rounds) == pytest.approx(0)
