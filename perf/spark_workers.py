"""What Spark's Python workers take of memory while something runs."""

import threading
from contextlib import suppress
from typing import Self

import psutil

_PAUSE = 0.02


class WorkersMemory:
    """The most that the Python workers below this process have had at once, in MB of their own.

    What they share with the process they were forked from is not counted (USS).
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self.workers = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def each_mb(self) -> float:
        """For each of the workers that there were then."""
        return self.peak_mb / max(self.workers, 1)

    def _watch(self) -> None:
        while not self._stopping.wait(_PAUSE):
            sizes = [size for process in self._processes() if (size := _own_mb(process))]
            if sum(sizes) > self.peak_mb:
                self.peak_mb, self.workers = sum(sizes), len(sizes)

    def _processes(self) -> list[psutil.Process]:
        """The children of the daemons that fork workers."""
        found = []
        with suppress(psutil.Error):
            for process in psutil.Process().children(recursive=True):
                parent = process.parent()
                if parent is not None and _is_daemon(process) and _is_daemon(parent):
                    found.append(process)
        return found


def _is_daemon(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "pyspark.daemon" in process.cmdline()
    return False


def _own_mb(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(process.memory_full_info().uss) / 1e6
    return 0.0
