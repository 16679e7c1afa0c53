"""TinyTL under its public name; see labs/tinytl."""

from .labs.tinytl import *  # noqa: F403
from .labs.tinytl import __all__ as __all__
