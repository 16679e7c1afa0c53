"""The page about updates on a microcontroller says what was measured."""

from __future__ import annotations

from benchmarks.federated.device import CLIP, HERE, SCHEMES, SENDS, kept, page


def test_the_page_is_made_from_what_is_kept() -> None:
    results = kept(HERE / "device.jsonl")
    assert {(r["scheme"], r["send"]) for r in results} == {(s, n) for s in SCHEMES for n in SENDS}
    assert (HERE / "device.md").read_text() == page(results), "python -m ...device page"
    assert all(r["equal"] for r in results if r["send"] != "no update")
    clipped = [r["norm"] for r in results if r["send"] == "clipped"]
    assert all(0.999 * CLIP < norm <= CLIP for norm in clipped), "the clip was reached"
