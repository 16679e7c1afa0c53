"""`python -m whet.demo` is `whet demo mcu`."""

from .watch import main

main()
