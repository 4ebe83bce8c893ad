"""Work in a thread beside a test, which ends with the test."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """Runs :meth:`run` in a thread, between entry and exit, until :attr:`over` is set."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None

    @abstractmethod
    def run(self) -> None:
        """The work; it has to end soon after :attr:`over` is set."""

    def stop(self) -> None:
        """End the work; raise the error if it failed."""
        self.over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as failure:
            self._failure = failure
