"""Run a command and draw what it prints as a terminal, as SVG.

python tools/terminal_picture.py docs/images/demo.svg whet demo mcu
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

FONTS = re.compile(r" *@font-face \{\{.*?\}\}\n", re.DOTALL)  # of another server


def picture(title: str, printed: str, width: int) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    console.print(printed.rstrip(), markup=False, soft_wrap=True)
    svg = console.export_svg(title=title, code_format=FONTS.sub("", CONSOLE_SVG_FORMAT))
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.add_argument("--width", type=int, default=100, help="columns")
    words = parser.parse_args()
    done = subprocess.run(words.command, stdout=subprocess.PIPE, text=True, check=True)
    words.picture.write_text(picture(" ".join(words.command), done.stdout, words.width))


if __name__ == "__main__":
    main()
