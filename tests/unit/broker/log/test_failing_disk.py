"""What a failing, full or busy system does to logs: no more than it must."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from qbus.broker.log import Log, LogConfig, LogManager
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from tests.support.failing_files import FailingFiles
from tests.support.logs import batch

TOPIC_ID = b"t" * 16


class Bench:
    """A broker's logs in one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FailingFiles()
        self.clock = ManualClock()
        self.start()

    def start(self) -> None:
        self.manager = LogManager.open(
            [str(self.path)],
            lambda _topic: LogConfig(),
            self.clock,
            self.files,
            node_id=1,
            cluster_id="cluster",
        )

    def create(self, topic: str = "topic", **config: int) -> Log:
        return self.manager.create(topic, 0, TOPIC_ID, LogConfig(**config), is_new=True)

    @property
    def offline(self) -> bool:
        return self.manager.directories[0].offline


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "logs")


def refused(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        work()
    return ErrorCode(caught.value.code)


def test_a_log_deleted_while_it_begins_a_segment_is_no_failed_disk(bench: Bench) -> None:
    log = bench.create(segment_ms=1000)
    log.append(batch(b"a"), 1)
    bench.clock.advance(2)
    rolling, deleted = threading.Event(), threading.Event()

    def delete() -> None:
        rolling.wait()
        bench.manager.delete("topic", 0)
        deleted.set()

    def delay_the_new_segment(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(f"{1:020}.log"):
            rolling.set()
            deleted.wait(0.2)

    bench.files.before = delay_the_new_segment
    deleting = threading.Thread(target=delete)
    deleting.start()
    assert log.roll_if_due()
    deleting.join()
    assert deleted.is_set()
    assert not bench.offline
