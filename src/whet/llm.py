"""Language models under their public name; see labs/llm."""

from .labs.llm import *  # noqa: F403
from .labs.llm import __all__ as __all__
