"""A driver as a process that is started again whenever it ends, and may be killed at any time."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.process_group import ProcessGroup
from tests.support.server_process import StartupTimeout
from tests.support.spark_session import has_timed_out

_TOO_OFTEN = 29
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Driver:
    """``python -m tests.spark.copying``; ``options`` are what it is to copy, and where to."""

    def __init__(self, log: Path, **options: str) -> None:
        self.log = log
        self.starts = 0
        self._options = options
        self._group = ProcessGroup(log)

    def keep_running(self) -> None:
        """Start it unless it runs.

        Fails when it has ended too often: with StartupTimeout if Spark did not start the last time.
        """
        if self._group.is_running:
            return
        self.kill()
        if self.starts >= _TOO_OFTEN:
            end = self.log.read_text(errors="replace")[-4000:]
            kind = StartupTimeout if has_timed_out(end) else AssertionError
            raise kind(f"the driver has ended {self.starts} times, at last with: {end}")
        self.starts += 1
        command = [sys.executable, "-m", "tests.spark.copying", json.dumps(self._options)]
        self._group.run(command, cwd=Path(__file__).parents[2])

    def kill(self) -> None:
        """End the driver, Python and Java, at once."""
        self._group.kill()


def executors(workers: list[int]) -> list[psutil.Process]:
    """The executors that run below Spark's workers, which are given by their process ids."""
    found = [child for worker in workers for child in _below(worker)]
    return [process for process in found if _runs(process, _EXECUTOR)]


def python_workers(workers: list[int]) -> list[psutil.Process]:
    """The Python processes of executors that do the work, without the daemons that fork them."""
    found = [child for executor in executors(workers) for child in _below(executor.pid)]
    return [process for process in found if _runs(process, "pyspark.daemon") and _is_leaf(process)]


def _below(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _runs(process: psutil.Process, word: str) -> bool:
    with suppress(psutil.Error):
        return word in process.cmdline()
    return False


def _is_leaf(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        parent = process.parent()
        return parent is not None and _runs(parent, "pyspark.daemon")
    return False
