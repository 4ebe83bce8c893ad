"""A group member in a process of its own, known by the events that it prints."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import wait_until

Partitions = frozenset[tuple[str, int]]


_ROOT = Path(__file__).parents[3]


class Event(NamedTuple):
    """An event that a member prints: a new assignment, or a consumed record."""

    assigned: Partitions | None = None
    consumed: tuple[int, int] | None = None


def parse_json(line: str) -> Event | None:
    """Read ``{"assigned": [[topic, partition], ...]}`` or ``{"consumed": [partition, offset]}``."""
    if line.startswith('{"assigned"'):
        places = json.loads(line)["assigned"]
        return Event(assigned=frozenset((topic, index) for topic, index in places))
    if line.startswith('{"consumed"'):
        partition, offset = json.loads(line)["consumed"]
        return Event(consumed=(partition, offset))
    return None


class Member:
    """A running member. Leaves its group on ``leave()``, dies without a word on ``kill()``."""

    def __init__(
        self,
        command: list[str],
        parse: Callable[[str], Event | None] = parse_json,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._assigned: Partitions = frozenset()
        self.consumed: list[tuple[int, int]] = []
        self._output: list[str] = []
        self._parse = parse
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
            cwd=_ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def assigned(self) -> Partitions:
        """What the member owns now."""
        return self._assigned

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal, such as SIGSTOP and SIGCONT."""
        self._process.send_signal(number)

    def leave(self) -> None:
        """Close the consumer, which leaves the group, and wait for the end of the process."""
        self._process.terminate()
        self._finish()

    def kill(self) -> None:
        """End the process at once: the group learns of it by the session time-out."""
        self._process.kill()
        self._finish()

    def wait_assigned(self, partitions: int, timeout: float = 40.0) -> None:
        """Wait until the member owns that many partitions."""
        wait_until(
            lambda: len(self.assigned) == partitions or self._ended(),
            f"an assignment of {partitions} partitions\n{self.output()}",
            timeout,
        )

    def wait_consumed(self, count: int, timeout: float = 40.0) -> None:
        """Wait until the member has consumed that many records."""
        wait_until(
            lambda: len(self.consumed) >= count or self._ended(),
            f"{count} consumed records",
            timeout,
        )

    def output(self) -> str:
        """Return all that the process has printed."""
        return "".join(self._output)

    def _ended(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"the member exited:\n{self.output()}")
        return False

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._output.append(line)
            event = self._parse(line)
            if event is None:
                continue
            if event.assigned is not None:
                self._assigned = event.assigned
            if event.consumed is not None:
                self.consumed.append(event.consumed)

    def _finish(self) -> None:
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the member did not leave:\n{self.output()}") from None
        finally:
            self._reader.join()
            if self._process.stdout is not None:
                self._process.stdout.close()
