"""Studies of whet, listed in README.md. Run one from the checkout: `python -m benchmarks.memory`"""
