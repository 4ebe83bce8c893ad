"""A load in a separate process: ``python -m tests.history.process JSON``.

The options are those of :class:`~tests.history.load.Load`. The process runs until its input ends,
then prints its history. Separate clients do not compete with the test for the interpreter, may run
in a network namespace, and may be killed.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .history import History
from .load import Load

_ENDS = 200.0
_BUSY = "busy\n"


class LoadProcess:
    """Like :class:`~tests.history.load.Load`; ``prefix`` precedes the command."""

    def __init__(self, *arguments: Any, prefix: Sequence[str] = (), **options: Any) -> None:
        text = json.dumps({"arguments": arguments, "options": options})
        self._command = [*prefix, sys.executable, "-m", "tests.history.process", text]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait_busy(self) -> None:
        """Wait until every producer has an acknowledgement and every consumer a record."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == _BUSY, "the load did not start"

    def finish(self) -> History:
        """Stop the clients and return their history."""
        assert self._process is not None
        output, _ = self._process.communicate(timeout=_ENDS)
        output = output.removeprefix(_BUSY)  # unless wait_busy read it
        assert self._process.returncode == 0, f"the load exited with {self._process.returncode}"
        return History.from_json(output)

    def kill(self) -> None:
        """Kill the process, if it runs; its history is lost."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            with suppress(ValueError):  # its pipes may be closed already
                self._process.communicate()


def main() -> None:
    """Run a load until standard input ends."""
    given = json.loads(sys.argv[1])
    load = Load(*given["arguments"], **given["options"])
    load.start()
    load.wait_busy()
    print(_BUSY, end="", flush=True)
    sys.stdin.read()
    print(load.finish().to_json())


if __name__ == "__main__":
    main()
