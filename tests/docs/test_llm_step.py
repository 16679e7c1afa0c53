"""The step study itself, on three blocks: every peer trains the same, and is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.common.lines import kept
from benchmarks.llm import step
from benchmarks.llm.peers import PEERS


@pytest.mark.slow
def test_peers_train_the_same_and_take_turns(tmp_path: Path) -> None:
    results = tmp_path / "step.jsonl"
    words = "trial --random --no-compile --threads 1 --turns 2 --jobs 1 --results".split()
    step.main([*words, str(results)])
    found = {r["peer"]: r for r in kept(results)}
    assert found.keys() == {name for name, p in PEERS.items() if not p.options.get("compile")}
    for peer, r in found.items():
        assert "why" not in r, (peer, r.get("why"))
        assert len(r["times"]) >= 2 and min(wall for wall, _ in r["times"]) > 0
    for group, theirs in (("full", "torch"), ("lora", "torch-lora"), ("blocks", "torch-blocks")):
        first = [r["losses"][0] for p, r in found.items() if PEERS[p].group == group]
        assert first == pytest.approx([found[theirs]["losses"][0]] * len(first), rel=1e-4)
    assert found["whet-sparse-gguf"]["peak"] < found["whet-sparse"]["peak"]
    assert found["whet"]["peak"] < 0.5 * found["torch"]["peak"]
    step.main([*words, str(results), "--only", "whet-sparse"])
    assert len(kept(results)) == len(found), "measured again, in place of what was there"


def test_a_peer_with_other_losses_is_refused() -> None:
    record = {"peer": "whet", "losses": [2.0, 1.9, 1.8]}
    step.agree(record, {"full": [2.0, 1.9, 1.8005]})
    with pytest.raises(step.Failed, match="refused: its losses are"):
        step.agree(record, {"full": [2.0, 1.92, 1.81]})
    with pytest.raises(step.Failed, match="refused"):
        step.agree(record | {"peer": "whet-lora"}, {"lora": [2.1]})
    step.agree(record | {"peer": "whet-lora"}, {"lora": [2.0, 0.0, 0.0]})
