"""Arrays whose bits are the same."""

from __future__ import annotations

import numpy as np

from whet.ir import Array


def assert_same_bits(given: Array, right: Array, message: str = "") -> None:
    """A NaN is any NaN: processors disagree about its sign."""
    assert given.dtype == right.dtype and given.shape == right.shape, message
    if given.dtype == np.float32:
        number = ~(np.isnan(given) & np.isnan(right))
        given, right = given[number].view(np.uint32), right[number].view(np.uint32)
    np.testing.assert_array_equal(given, right, err_msg=message)
