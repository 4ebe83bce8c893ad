"""Segments whose files were closed for want of descriptors, and opened again."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qbus.broker.log import Log, LogConfig, LogManager
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import iter_records
from tests.support.failing_files import FailingFiles, failing, healthy
from tests.support.logs import batch

MOST = 4
TOPIC_ID = b"t" * 16


class Bench:
    """Logs of one broker that may keep few files open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FailingFiles()
        self.clock = ManualClock()
        self.manager = self.start()

    def start(self) -> LogManager:
        return LogManager.open(
            [str(self.path)],
            lambda _topic: LogConfig(),
            self.clock,
            self.files,
            node_id=1,
            cluster_id="cluster",
            most_files=MOST,
        )

    def create(self, count: int, **config: int) -> list[Log]:
        return [
            self.manager.create("topic", number, TOPIC_ID, LogConfig(**config), is_new=True)  # type: ignore[arg-type]
            for number in range(count)
        ]

    @property
    def open(self) -> int:
        return len(self.manager.open_files)

    @property
    def offline(self) -> bool:
        return self.manager.directories[0].offline

    def close_all(self) -> None:
        """Close the files of all segments that allow it."""
        cache = self.manager.open_files
        cache.limit = 0
        cache.relieve()
        cache.relieve()
        cache.limit = MOST


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "logs")
    yield bench
    bench.files.before = healthy
    bench.manager.close()


def put(log: Log, value: bytes) -> int:
    return log.append(batch(value), 1).first_offset


def values(log: Log) -> list[bytes | None]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1, wait=True)  # one batch
        assert records is not None
        with records:
            records.verify()
            found += [record.value for record in iter_records(records.read())]
            offset = records.next_offset
    return found


def test_more_logs_than_files_may_be_open(bench: Bench) -> None:
    logs = bench.create(20)
    for round_ in range(3):
        for number, log in enumerate(logs):
            assert put(log, b"%d.%d" % (number, round_)) == round_
            log.flush()
    assert bench.open <= MOST
    for number, log in enumerate(logs):
        assert values(log) == [b"%d.%d" % (number, round_) for round_ in range(3)]
    assert bench.open <= MOST
    bench.manager.close()
    bench.manager = bench.start()
    assert len(bench.manager.logs()) == 20
    for number in range(20):
        found = bench.manager.get("topic", number)
        assert found is not None
        assert values(found) == [b"%d.%d" % (number, round_) for round_ in range(3)]


def test_what_is_not_flushed_stays_open_and_more_is_refused_until_it_is(bench: Bench) -> None:
    logs = bench.create(20)
    accepted: list[Log] = []
    refused: list[Log] = []
    codes = set()
    for log in logs:
        try:
            put(log, b"a")
            accepted.append(log)
        except ApiError as error:
            refused.append(log)
            codes.add((error.code, error.retriable))
    assert codes == {(ErrorCode.KAFKA_STORAGE_ERROR, True)}
    assert len(accepted) == MOST + MOST // 4
    assert bench.manager.open_files.short
    assert not bench.offline
    for log in accepted:
        log.flush()
    bench.manager.open_files.relieve()
    assert put(refused[0], b"b") == 0
    assert not bench.manager.open_files.short


def test_a_flush_during_which_more_was_appended_leaves_the_file_open(bench: Bench) -> None:
    (log,) = bench.create(1)
    put(log, b"a")

    def append_more(operation: str, _path: str) -> None:
        if operation == "sync":
            bench.files.before = healthy
            put(log, b"b")

    bench.files.before = append_more
    assert log.flush() == 1
    bench.close_all()
    assert bench.open == 1
    log.flush()
    bench.close_all()
    assert bench.open == 0


def test_what_is_being_sent_goes_on_though_the_file_is_closed(bench: Bench) -> None:
    (log,) = bench.create(1)
    put(log, b"a")
    log.flush()
    records = log.read(0, 1000)
    assert records is not None
    bench.close_all()
    assert bench.open == 0
    bench.manager.delete("topic", 0)
    assert [one.value for one in iter_records(records.read())] == [b"a"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_closed_file_that_cannot_be_opened_refuses_until_it_can(bench: Bench, error: int) -> None:
    (log,) = bench.create(1)
    put(log, b"a")
    log.flush()
    bench.close_all()
    bench.files.before = failing(error, "open")
    with pytest.raises(ApiError) as caught:
        put(log, b"b")
    assert (caught.value.code, caught.value.retriable) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert not bench.offline
    bench.files.before = healthy
    assert put(log, b"b") == 1
    assert values(log) == [b"a", b"b"]


def test_a_closed_file_that_lost_its_end_meanwhile_is_a_failed_disk(bench: Bench) -> None:
    (log,) = bench.create(1)
    put(log, b"a")
    log.flush()
    bench.close_all()
    (bench.path / "topic-0" / f"{0:020}.log").unlink()
    with pytest.raises(ApiError) as caught:
        put(log, b"b")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.offline


Change = Callable[[Log], object]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda log: log.truncate_to(1), [b"0", b"new"], id="truncated"),
        pytest.param(lambda log: log.restart_at(7), [b"new"], id="restarted"),
        pytest.param(lambda log: log.roll(), [b"0", b"1", b"2", b"new"], id="rolled"),
        pytest.param(lambda log: log.checkpoint(), [b"0", b"1", b"2", b"new"], id="checkpointed"),
    ],
)
def test_a_log_whose_files_are_closed_can_be_changed(
    bench: Bench, change: Change, expected: list[bytes]
) -> None:
    (log,) = bench.create(1)
    for number in range(3):
        put(log, b"%d" % number)
    log.flush()
    bench.close_all()
    change(log)
    log.flush()
    bench.close_all()
    put(log, b"new")
    log.flush()
    bench.close_all()
    assert values(log) == expected
    log.flush()
    bench.close_all()
    assert bench.open == 0


def test_a_deleted_log_keeps_no_file_open(bench: Bench) -> None:
    (log,) = bench.create(1)
    put(log, b"a")
    bench.manager.delete("topic", 0)
    assert bench.open == 0
    (log,) = bench.create(1)
    assert put(log, b"b") == 0
    assert values(log) == [b"b"]
