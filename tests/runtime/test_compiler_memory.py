"""What compiling takes besides the model: one copy of its weights."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys, tempfile, torch, whet
from whet.llm import causal_lm_loss
from whet.models.llama import Llama, LlamaConfig

def status(word):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(word)) * 1024

def compiled(config):
    torch.manual_seed(0)
    model = Llama(config).eval()
    weights, before = sum(p.nbytes for p in model.parameters()), status("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # the peak is from here on
    ids = torch.zeros(1, 16, dtype=torch.long)
    program = whet.compile(model, (ids,), loss=causal_lm_loss, labels=ids, update=sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        program.write(folder)
    return weights, status("VmHWM") - before

sizes = dict(heads=8, kv_heads=8, context=16)
compiled(LlamaConfig(vocabulary=64, width=64, hidden=64, blocks=2, head=8, **sizes))
print(*compiled(LlamaConfig(vocabulary=8000, width=1024, hidden=2816, blocks=5, head=128, **sizes)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("update", ["sparse-2", "full"])
def test_compiling_takes_less_than_twice_the_weights(update: str) -> None:
    """A model of 300 MB; measured is 1.1 times its weights."""
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, update]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    weights, peak = map(int, done.stdout.split())
    assert weights > 300e6
    assert 0.9 * weights < peak < 1.4 * weights, f"{peak / weights:.2f} times the weights"
