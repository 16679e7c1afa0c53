"""Turn planned graphs into C: c.py writes text, program.py is what `whet.compile` returns."""
