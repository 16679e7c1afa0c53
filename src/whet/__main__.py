"""`python -m whet` is the command `whet`."""

from .cli import main

main()
