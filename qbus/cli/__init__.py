"""The `qbus` command: a broker, its administration, and a producer and a consumer of lines.

Modules import what they use when they run: `qbus --help` and `qbus broker` start fast.
"""

from qbus.cli.root import main

__all__ = ["main"]
