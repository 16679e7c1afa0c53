"""The rows of the table, by kind of operator. Importing this package registers all of them."""

from . import elementwise, layers, moving, pooling

__all__ = ["elementwise", "layers", "moving", "pooling"]
