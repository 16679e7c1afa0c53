"""No kernel and no program does what C leaves undefined, reads astray or races."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import c_batch
import c_kernels
import tiny
import whet
from built import losses, make, run
from kernel_checks import SAMPLES
from kernel_samples import Sample
from whet.models import mcunet_5fps

ADDRESS = "-g -march=native -fsanitize=address,undefined -fno-sanitize-recover=all"
THREAD = "-g -march=native -fsanitize=thread -DWHET_GRAIN=1"  # the least work is shared
VECTORS = {path.stem for path in (c_kernels.KERNELS / "vec").glob("*.c")}


def replaced(sample: Sample) -> bool:
    """Some kernel of this sample has another file for vectors."""
    calls = [node.op.call(node) for node, _ in sample.nodes()]
    return any(call and call.source in VECTORS for call in calls)


@pytest.mark.parametrize(
    ("isa", "wanted"),
    [
        pytest.param("vec", lambda _: True, id="vec"),  # and all files that have no other
        pytest.param("ref", replaced, id="ref, replaced"),
        pytest.param("ref", lambda _: True, id="ref", marks=pytest.mark.slow),
    ],
)
def test_every_kernel_keeps_to_its_arrays(
    isa: str, wanted: Callable[[Sample], bool], tmp_path: Path
) -> None:
    samples = [sample for sample in SAMPLES if wanted(sample)]
    c_batch.check_samples(tmp_path, "gcc", isa, "-O0", *ADDRESS.split(), samples=samples)


@pytest.mark.slow  # whole programs are looked at for races below
def test_no_kernel_races_with_itself(tmp_path: Path) -> None:
    c_batch.check_samples(tmp_path, "gcc", "vec", "-O1", *THREAD.split(), "-DTHREADS=2")


def convnet(portable: bool) -> whet.Program:
    """Every kind of convolution, batch norm, max pooling, linear; Adam."""
    model, (x, _) = tiny.convnet(dropout=0.2).train(), next(tiny.images())
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    return whet.compile(model, (x,), optimizer=adam, clip_norm=1.0, portable=portable)


def sparse(portable: bool) -> whet.Program:
    """Streams, masks of bits, and weights that train in some of their channels."""
    torch.manual_seed(0)
    model = mcunet_5fps(10, folded=True).eval()
    x = torch.zeros(1, 3, 32, 32)
    return whet.compile(model, (x,), update="mcunet-5fps-49kb", portable=portable)


Maker = Callable[[bool], whet.Program]


@functools.cache
def compiled(maker: Maker, portable: bool) -> whet.Program:
    return maker(portable)


# test_emit.py has programs like the first under the address sanitizer.
@pytest.mark.parametrize(
    ("maker", "sanitizer", "portable"),
    [
        (convnet, THREAD, False),
        pytest.param(sparse, THREAD, False, marks=pytest.mark.slow),
        pytest.param(sparse, ADDRESS, False, marks=pytest.mark.slow),
        (sparse, ADDRESS, True),
    ],
    ids=["convnet-threads", "sparse-threads", "sparse", "sparse-portable"],
)
def test_a_program_runs_clean(sanitizer: str, maker: Maker, portable: bool, tmp_path: Path) -> None:
    program = compiled(maker, portable)
    example = make(program, tmp_path, CC="gcc", CFLAGS=f"-O0 -ffp-contract=fast {sanitizer}")
    printed = losses(run(example, WHET_THREADS="2" if sanitizer is THREAD else "1"))
    assert len(printed) == 5 and printed[-1] < printed[0]


def test_the_programs_are_made_of_what_they_should_be() -> None:
    graphs = [compiled(m, False).entries["train_step"] for m in (convnet, sparse)]
    nodes = [node for graph in graphs for node in graph.nodes]
    found = {node.op.name for node in nodes}
    assert any(getattr(node.attrs, "mask", False) for node in nodes)
    assert found >= {
        "conv2d", "conv2d_dw", "depthwise_dw", "batch_norm_train", "max_pool2d", "linear_dw",
        "adam", "stream", "bits_dx", "slice_add", "dw_sgd", "conv2d_fused",
    }  # fmt: skip
