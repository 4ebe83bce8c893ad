"""The process that runs the workloads, for tests."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The counts of a workload: the values 0 to ``sent`` - 1 were sent."""

    name: str
    sent: int
    delivered: int
    seen: int
    errors: list[str]


class WorkloadProcess:
    """Runs all workloads, each on the topic that ``topics`` has for its library."""

    def __init__(self, bootstrap: str, topics: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.cluster.workloads", bootstrap, json.dumps(topics)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def progress(self) -> list[Progress]:
        """The counts of all workloads."""
        return self._say("")

    def stop_sending(self) -> list[Progress]:
        """Stop sending, and wait for the records in flight."""
        return self._say("stop sending")

    def stop(self) -> list[Progress]:
        """Stop all, and wait for the end of the process."""
        progress = self._say("stop")
        self._process.communicate(timeout=60)
        return progress

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _say(self, word: str) -> list[Progress]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return [Progress(**counts) for counts in json.loads(self._process.stdout.readline())]
