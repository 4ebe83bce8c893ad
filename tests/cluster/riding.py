"""The riders' process, as a test has it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a rider is: the values 0 to ``sent`` - 1 are on their way, or there."""

    name: str
    sent: int
    delivered: int
    seen: int
    errors: list[str]


class Riding:
    """All riders at once, each on the topic that ``topics`` has for its name."""

    def __init__(self, bootstrap: str, topics: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.cluster.riders", bootstrap, json.dumps(topics)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def progress(self) -> list[Progress]:
        """How far they are."""
        return self._say("")

    def stop_sending(self) -> list[Progress]:
        """Have them send no more, and wait for what is under way."""
        return self._say("stop sending")

    def stop(self) -> list[Progress]:
        """Have them end, and wait for that."""
        progress = self._say("stop")
        self._process.communicate(timeout=60)
        return progress

    def kill(self) -> None:
        """End them at once, if they run."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _say(self, word: str) -> list[Progress]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return [Progress(**one) for one in json.loads(self._process.stdout.readline())]
