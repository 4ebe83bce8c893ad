"""A driver as a process that is started again whenever it ends, and may be killed at any time."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

_TOO_OFTEN = 30
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Driver:
    """``python -m tests.spark.copying``; ``options`` are what it is to copy, and where to."""

    def __init__(self, log: Path, **options: str) -> None:
        self.log = log
        self.starts = 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        """Start it unless it runs; fails when it has ended too often."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()  # what may be left of its process group
        self.starts += 1
        assert self.starts < _TOO_OFTEN, "the driver ends again and again"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.copying", json.dumps(self._options)],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End the driver, Python and Java, at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


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
