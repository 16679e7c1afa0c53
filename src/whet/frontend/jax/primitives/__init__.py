"""Importing this package fills the table."""

from . import arithmetic as _arithmetic  # noqa: F401
from . import indexing as _indexing  # noqa: F401
from . import moving as _moving  # noqa: F401
from . import products as _products  # noqa: F401
from . import reducing as _reducing  # noqa: F401
