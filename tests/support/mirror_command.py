"""``qbus mirror run`` as a real process."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from urllib.request import urlopen

from .server_process import ServerProcess


class MirrorCommand(ServerProcess):
    """A mirror; ``port`` serves its metrics, ``arguments`` are those of the command."""

    name = "mirror"

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        ours = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
        super().__init__(None, {**ours, **(env or {})})
        self.arguments = arguments

    def command(self) -> list[str]:
        """Return the command line of the mirror."""
        command = [sys.executable, "-m", "qbus", "mirror", "run", *self.arguments]
        return [*command, "--metrics-listen", self.bootstrap]

    def serves(self) -> bool:
        """Whether it serves metrics."""
        return bool(self.metrics())

    def metrics(self) -> dict[str, float]:
        """Return its metrics by name and labels in Prometheus' form; empty before the start."""
        with suppress(OSError), urlopen(f"http://{self.bootstrap}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
            return {
                line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
                for line in lines
                if line.startswith("qbus_mirror_")
            }
        return {}

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with this name and these labels; 0 if there are none."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics().items()
            if sample.partition("{")[0] == f"qbus_mirror_{name}"
            and all(one in sample for one in wanted)
        )
