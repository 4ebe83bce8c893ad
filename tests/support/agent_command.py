"""``qbus agent run`` as a real process."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .server_process import ServerProcess


class AgentCommand(ServerProcess):
    """An agent with a data directory of its own; ``arguments`` are those of the command."""

    name = "agent"

    def __init__(
        self, data_dir: Path, *arguments: str, env: Mapping[str, str] | None = None
    ) -> None:
        ours = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
        super().__init__(1, {**ours, **(env or {})})
        self.data_dir = data_dir
        self.arguments = arguments

    def command(self) -> list[str]:
        """Return the command line of the agent."""
        command = [sys.executable, "-m", "qbus", "agent", "run", "--data-dir", str(self.data_dir)]
        return [*command, *self.arguments]

    def serves(self) -> bool:
        """Whether it has written its status."""
        return self.status().get("pid") == self.pid

    def status(self) -> dict[str, Any]:
        """Return the status in its data directory; empty before the first one."""
        try:
            status: dict[str, Any] = json.loads((self.data_dir / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return status

    def memory_bytes(self) -> int:
        """Its peak memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (peak,) = (line for line in lines if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024
