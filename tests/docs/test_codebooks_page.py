"""The page of codebooks on a microcontroller: its tables are those of the kept results."""

from benchmarks.compress.device import CELLS, HERE, kept, page


def test_the_page_is_made_from_what_is_kept() -> None:
    results = kept(HERE / "device.jsonl")
    assert [(r["net"], r["scheme"], r["frozen"]) for r in results] == CELLS
    assert (HERE / "device.md").read_text() == page(results)
    found = {(r["net"], r["scheme"], r["frozen"]): r for r in results}
    for net, scheme, form in CELLS:
        r, plain = found[net, scheme, form], found[net, scheme, None]
        if form is not None:
            assert r["flash"] < 0.8 * plain["flash"] and r["ram"] <= plain["ram"]
            assert r["step"] < 1.25 * plain["step"]
        assert r["equal"] or net == "LeNet-5"
    centroids, full = (found["LeNet-5", scheme, None] for scheme in ("centroids", "full"))
    assert centroids["trained"] == 4 * 16 * 5 and centroids["ram"] < 0.2 * full["ram"]
