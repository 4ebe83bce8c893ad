"""Syncs of a directory: shared by those who wait, and never with one that began too early."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from qbus.broker.log.data_directory import DirectorySync
from qbus.broker.log.files import Files


class Slow:
    """A file system whose syncs take until they are let go on."""

    def __init__(self) -> None:
        self.names: set[int] = set()
        self.stable: set[int] = set()
        self.syncs = 0
        self.error: OSError | None = None
        self.under_way = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def sync_directory(self, _: str) -> None:
        found = set(self.names)
        self.syncs += 1
        self.under_way.release()
        assert self.go_on.acquire(timeout=30)
        if self.error is not None:
            raise self.error
        self.stable |= found


@pytest.fixture
def slow() -> Slow:
    return Slow()


def create(slow: Slow, directory: DirectorySync, name: int) -> bool:
    """Whether the name is stable when it was made so."""
    slow.names.add(name)
    directory.sync()
    return name in slow.stable


def test_many_share_a_sync_that_begins_after_them(slow: Slow) -> None:
    directory = DirectorySync(cast("Files", slow), "d")
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(create, slow, directory, 0)
        assert slow.under_way.acquire(timeout=30)
        others = [threads.submit(create, slow, directory, name) for name in range(1, 9)]
        while len(slow.names) < 9:
            threading.Event().wait(0.001)
        for _ in range(9):
            slow.go_on.release()
        assert first.result(30)
        assert all(other.result(30) for other in others)
    assert 2 <= slow.syncs <= 9


def test_a_failure_is_of_who_met_it(slow: Slow) -> None:
    directory = DirectorySync(cast("Files", slow), "d")
    slow.error = OSError(5, "failed")
    slow.go_on.release()
    with pytest.raises(OSError, match="failed"):
        create(slow, directory, 0)
    slow.error = None
    slow.go_on.release()
    assert create(slow, directory, 1)
    assert slow.stable == {0, 1}
