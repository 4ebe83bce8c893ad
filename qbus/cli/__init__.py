"""The `qbus` command; each subcommand has a package or a module of its own.

Commands import what they need when they run, so that `qbus --help` and `qbus broker` start fast.
"""

from qbus.cli.root import main

__all__ = ["main"]
