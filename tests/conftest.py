"""Options and settings that all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("whet", deadline=None)  # the first example pays for imports
settings.load_profile("whet")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="rewrite tests/golden instead of failing"
    )
