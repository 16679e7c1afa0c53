"""Map the weights of a program that does not link them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from ..emit.c import STATUSES
from ..errors import BuildError

WRONG = {
    "UNMAPPED": "it cannot be opened or mapped",
    "TRUNCATED": "it is too short",
    "FOREIGN": "it belongs to another program",
}


def map_weights(function: Any, path: Path) -> None:
    """Call the program's own function; all of its trainers share the pages."""
    status, _ = STATUSES[function(ctypes.c_char_p(os.fsencode(path)))]
    if status != "OK":
        raise BuildError(
            f"{path} does not hold the weights of this program",
            why=WRONG[status],
            try_="leave the files of a built program as they are, and compile it again",
        )
