"""The indexes of a segment are rebuilt while the log goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qbus.broker.log import Log
from qbus.broker.log.indexes import MaxTimestamp
from qbus.broker.log.segment import LogSegment
from tests.support.logs import batch

from .conftest import OpenLog

Meanwhile = Callable[[Log], object]


@contextmanager
def lock_after(log: Log, meanwhile: Meanwhile) -> Iterator[None]:
    meanwhile(log)
    yield


def append(log: Log) -> None:
    for _ in range(10):
        log.append(batch(b"w" * 50), 0)


def cut(log: Log) -> None:
    log.truncate_to(7)


def cut_and_append(log: Log) -> None:
    cut(log)
    append(log)
    append(log)


@pytest.mark.parametrize("meanwhile", [append, cut, cut_and_append])
def test_what_happens_meanwhile_is_in_the_new_indexes(
    open_log: OpenLog, meanwhile: Meanwhile
) -> None:
    log = open_log(index_interval_bytes=100)
    for _ in range(20):
        log.append(batch(b"v" * 50), 0)
    segment = log._state.active
    segment.rebuild_indexes(100, full=False, lock=lock_after(log, meanwhile))
    made = _content(segment)
    segment.rebuild_indexes(100, full=False, lock=lock_after(log, lambda _: None))
    assert _content(segment) == made
    for offset in range(log.log_end_offset):
        found = log.read(offset, 1)
        assert found is not None
        assert found.first_offset == offset


def _content(segment: LogSegment) -> tuple[bytes, bytes, MaxTimestamp]:
    segment.write_indexes(full=False)
    index, times = (Path(segment.path).with_suffix(kind) for kind in (".index", ".timeindex"))
    return index.read_bytes(), times.read_bytes(), segment.max_timestamp
