"""Random integer layers for hypothesis, and what they are compared by."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import c_kernels
from kernel_checks import check, runs
from kernel_samples import Numbers, Sample
from whet.ir import Array, Op

EXAMPLES = 60


def agrees(op: str, *ins: Array, **attrs: Any) -> None:
    sample = Sample(Op.registry[op], ins, attrs, "fuzz")
    for isa in c_kernels.ISAS:
        wanted = runs(sample, isa)
        check(wanted, [c_kernels.execute(*run, isa) for run in wanted])


zeros = st.integers(-128, 127)


seeds = st.integers(0, 2**31).map(lambda seed: Numbers(str(seed)))


@st.composite
def windows(draw: Any) -> tuple[tuple[int, int, int], tuple[int, int], dict[str, Any]]:
    """Image [n, h, w], kernel, and how it moves; at least one window fits."""
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (1, 1), (2, 1), (5, 5), (3, 4), (7, 7)]))
    stride, dilation = draw(pair), draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    pad = draw(st.tuples(*[st.integers(0, 3)] * 4))
    sizes = []
    for axis in (0, 1):
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        least = max(1, reach - pad[axis] - pad[axis + 2])
        sizes.append(draw(st.integers(least, least + 9)))
    n = draw(st.integers(1, 2))
    return (n, sizes[0], sizes[1]), kernel, dict(stride=stride, pad=pad, dilation=dilation)


sizes = st.floats(-14, 33).map(lambda e: 2.0**e)
