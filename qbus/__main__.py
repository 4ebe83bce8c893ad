"""`python -m qbus` is the `qbus` command."""

from qbus.cli import main

main()
