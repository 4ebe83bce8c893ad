"""`python -m qbus`: the same as the `qbus` command."""

from qbus.cli import main

main()
