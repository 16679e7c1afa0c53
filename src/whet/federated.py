"""Federated learning under its public name; see labs/federated."""

from .labs.federated import *  # noqa: F403
from .labs.federated import __all__ as __all__
