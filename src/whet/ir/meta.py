"""Arrays of a model on PyTorch's meta device: shapes and types without values."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import FrontendError
from ..names import quoted

Array = npt.NDArray[Any]


class Meta(np.ndarray[Any, Any]):
    """An array that takes no memory: every element is the same zero.

    Views, indexing and arithmetic give arrays like it. Whoever asks for its values is refused.
    """

    origin: str  # what it was made from; arrays of one origin, shape and type are the same

    def __array_finalize__(self, other: Any) -> None:
        self.origin = getattr(other, "origin", "")

    def __array_ufunc__(self, ufunc: Any, method: str, *ins: Any, **kwargs: Any) -> Any:
        if method != "__call__" or ufunc.nout != 1 or kwargs:
            refuse(self.origin)
        arrays = [np.asarray(x) for x in ins]
        kind = ufunc(*(np.zeros((), x.dtype) for x in arrays)).dtype
        origins = [x.origin for x in ins if isinstance(x, Meta)]
        name = f"{ufunc.__name__}({', '.join(origins)})"
        return meta_array(np.broadcast_shapes(*(x.shape for x in arrays)), kind, name)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return meta_array(found.shape, self.dtype, self.origin)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Every element stays what it is: unknown."""

    def copy(self, order: Any = "C") -> Any:
        return self

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        return meta_array(self.shape, dtype, self.origin)

    def tobytes(self, *args: Any) -> NoReturn:
        refuse(self.origin)

    def __reduce__(self) -> Any:
        return meta_array, (self.shape, self.dtype, self.origin)


def meta_array(shape: tuple[int, ...], dtype: Any, origin: str) -> Array:
    found = np.broadcast_to(np.zeros((), dtype), shape).view(Meta)
    found.origin = origin
    return found


def is_meta(array: Any) -> bool:
    return isinstance(array, Meta)


def origin_of(array: Array) -> str:
    assert isinstance(array, Meta)
    return array.origin


def refuse(name: str) -> NoReturn:
    raise FrontendError(
        f"{quoted(name)} has no values, which are needed here",
        why="the model is on the meta device, so that it can only be planned",
        try_="make the model without torch.device('meta')",
    )
