"""One flush at a time; what is written meanwhile goes into the next one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker.partition.stable_storage import StableStorage

pytestmark = pytest.mark.sources  # logs and threads that are none


def anything(**attributes: object) -> Any:
    """Something that has these attributes."""
    return SimpleNamespace(**attributes)


class Bench:
    """A log that is 10 records long, and threads that flush when the test says so."""

    def __init__(self) -> None:
        self.log = anything(
            flushed_offset=0,
            log_end_offset=10,
            flush=lambda: 0,
            config=anything(flush_messages=100),
        )
        self.begun: list[Callable[[int | BaseException], None]] = []
        self.advanced: list[int] = []
        self.failed: list[BaseException] = []
        flusher = anything(submit=lambda _, done: self.begun.append(done))
        self.storage = StableStorage(self.log, flusher, self.advanced.append, self.failed.append)

    def finish(self, flushed: int) -> None:
        """The flush that was begun first ends, with all before ``flushed`` on stable storage."""
        self.log.flushed_offset = flushed
        self.begun.pop(0)(flushed)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_durable_record_counts_once_it_is_flushed(bench: Bench) -> None:
    assert not bench.storage.written(10)
    assert (bench.storage.end, len(bench.begun)) == (0, 1)
    bench.finish(10)
    assert (bench.storage.end, bench.advanced) == (10, [10])
    assert not bench.begun


def test_another_counts_at_once_and_is_flushed_with_many(bench: Bench) -> None:
    bench.storage.durable = False
    assert bench.storage.written(10)
    assert (bench.storage.end, bench.begun) == (10, [])
    bench.log.log_end_offset = 100
    assert bench.storage.written(100)
    assert len(bench.begun) == 1


def test_what_is_written_during_a_flush_is_flushed_next(bench: Bench) -> None:
    bench.storage.written(10)
    bench.log.log_end_offset = 15
    bench.storage.written(15)
    assert (len(bench.begun), bench.storage.is_behind) == (1, False)
    bench.finish(10)
    assert (len(bench.begun), bench.advanced) == (1, [10])
    bench.finish(15)
    assert (bench.begun, bench.advanced) == ([], [10, 15])


def test_after_a_failure_nothing_is_flushed_until_somebody_asks(bench: Bench) -> None:
    bench.storage.written(10)
    error = OSError("too many open files")
    bench.begun.pop(0)(error)
    assert (bench.failed, bench.begun, bench.advanced) == ([error], [], [])
    assert bench.storage.is_behind
    bench.storage.flush()
    assert (len(bench.begun), bench.storage.is_flushing) == (1, True)
