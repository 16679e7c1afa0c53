"""Attacks on updates, defences and audits under their public name; see labs/privacy."""

from .labs.privacy import *  # noqa: F403
from .labs.privacy import __all__ as __all__
