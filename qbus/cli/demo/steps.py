"""The demo's frame: which file, in which directory, and how far it is."""

import tempfile
from pathlib import Path
from typing import Any

from qbus.cli.demo.logfile import find_log
from qbus.cli.demo.progress import shown
from qbus.cli.demo.run import run
from qbus.cli.demo.source import Source, choose_times
from qbus.cli.failures import Failure
from qbus.cli.output import note


async def ship(log: Path | None, keep: Path | None) -> dict[str, Any]:
    """Run the demo with ``log``, or the largest log there is; return its account.

    The broker's data stays in ``keep``, if that is given: a directory that does not exist yet.
    """
    source = choose_source(log)
    _check_new(keep)
    with tempfile.TemporaryDirectory(prefix="qbus-demo-") as work, shown() as progress:
        work_dir = Path(work)
        return await run(source, work_dir, keep or work_dir / "data", progress)


def choose_source(log: Path | None) -> Source:
    """Return what is shipped; a Failure when there is nothing."""
    path = log or find_log()
    if path is None:
        raise Failure(
            "there is no readable text log below /var/log: name one, as LOG=/path/to/file"
        )
    size = path.stat().st_size
    if size == 0:
        raise Failure(f"{path} is empty: name another file")
    if log is None and not str(path).startswith("/var/log/"):
        note(f"There is no readable text log below /var/log: taking {path}.")
    return Source(path, size, choose_times(size))


def _check_new(directory: Path | None) -> None:
    if directory is not None and directory.exists():
        raise Failure(f"{directory} exists: name a new directory")
