"""A Qbus broker as a real process of its own."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .ports import free_port
from .server_process import ServerProcess, ServerProcessError

__all__ = ["BrokerProcess", "ServerProcessError", "free_port"]


class BrokerProcess(ServerProcess):
    """``qbus broker`` on 127.0.0.1 over ``data_dir``; ``options`` are further arguments.

    ``program``: what Python runs.
    """

    name = "qbus"
    program: Sequence[str] = ("-m", "qbus")

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        # As installed, so with compiled bytecode, whatever the tests run under.
        ours = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
        super().__init__(port, {**ours, **(env or {})})
        self.data_dir = data_dir
        self.options = options

    def command(self) -> list[str]:
        """Return the command line of the broker."""
        command = [sys.executable, *self.program, "broker", "--data-dir", str(self.data_dir)]
        # In a network of its own others reach it: the faults are what is tested there.
        is_open = [] if self.host == "127.0.0.1" else ["--option", "allow.insecure=true"]
        return [*command, "--listen", self.bootstrap, *is_open, *self.options]
