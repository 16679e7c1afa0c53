"""How an int8 program is made: `whet.compile(..., dtype=whet.Int8(...))`."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import FrontendError

CHOICES = {
    "method": ("minmax", "percentile", "mse"),
    "head": ("fp32", "int8"),
    "rounding": ("nearest", "stochastic", "truncate", "carry8", "carry16", "master"),
    "gradients": ("float32", "int16", "int8"),
}


@dataclass(frozen=True)
class Int8:
    """Integers everywhere but, unless asked otherwise, in the gradients and the head.

    `method` finds the range of activations: all that was seen, all but one value in 10,000, or the
    range with the least squared error. `head` is the last layer. `rounding` says how a trained
    integer moves by a fraction: to the nearest, by chance in proportion (`seed`), cut off, with
    what was dropped kept in a carry of 8 or 16 bits, or with an f32 master beside it. `qas` scales
    gradients so that integers move as the floats that they stand for would. `gradients` is what
    integer layers multiply in the backward pass: floats, or those rounded to 16 or 8 bits.
    """

    method: str = "minmax"
    head: str = "fp32"
    rounding: str = "nearest"
    qas: bool = True
    seed: int = 0
    gradients: str = "float32"

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if (given := getattr(self, name)) not in allowed:
                raise FrontendError(f"Int8: there is no {name} {given!r}", try_=", ".join(allowed))
        if type(self.qas) is not bool:
            raise FrontendError(f"Int8: qas={self.qas!r} is neither True nor False")
        if type(self.seed) is not int or not 0 <= self.seed < 2**31:
            raise FrontendError(f"Int8: seed={self.seed!r} is not an integer from 0 to 2^31 - 1")


def int8_of(dtype: str | Int8 | None) -> Int8 | None:
    """What `dtype` asks for: None for a float program."""
    if dtype is None or isinstance(dtype, Int8):
        return dtype
    known = {"float32": None, "fp32": None, "int8": Int8()}
    if dtype not in known:
        raise FrontendError(
            f"dtype={dtype!r} is unknown", try_='"float32", "int8", or whet.Int8(...)'
        )
    return known[dtype]
