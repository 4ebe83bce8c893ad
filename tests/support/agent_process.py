"""The core of an agent as a real process, to be killed at any moment."""

import sys
from pathlib import Path
from typing import Any

from qbus.agent.config import read, to_toml

from .server_process import ServerProcess


class AgentProcess(ServerProcess):
    """A process with a configuration (a document of TOML's types) and a directory of positions."""

    name = "agent core"

    def __init__(self, directory: Path, document: dict[str, Any]) -> None:
        super().__init__(port=1)
        self._data_dir = directory / "data"
        self._config = directory / "agent.toml"
        self._config.write_text(to_toml(read(document)))

    def command(self) -> list[str]:
        """Return the command line of the process."""
        module = "tests.support.agent_main"
        return [sys.executable, "-m", module, str(self._config), str(self._data_dir)]

    def serves(self) -> bool:
        """Whether it runs: it serves nobody."""
        return self.alive
