"""What readers see of a log, and what those who wait are told."""

from pathlib import Path

import pytest

from qbus.broker.log import Log, LogConfig, OsFiles
from qbus.broker.partition.visibility import Visibility
from qbus.clock import ManualClock
from qbus.records.control import ControlType, Marker, control_batch, encode_int64
from tests.support.logs import NOW_MS, batch, transactional


class Waiting:
    """A reader that waits; what it was told."""

    def __init__(self, *, sees_hidden: bool = False) -> None:
        self.sizes: list[int] = []
        self._sees_hidden = sees_hidden

    @property
    def sees_hidden(self) -> bool:
        return self._sees_hidden

    def advanced(self, size: int) -> None:
        self.sizes.append(size)


class Bench:
    """A log, and what is visible of it."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(str(directory), LogConfig(), ManualClock(), OsFiles())
        self.visibility = Visibility(self.log)
        self.high_watermark = 0
        self.all, self.committed = Waiting(), Waiting()

    def wait(self) -> None:
        self.visibility.watchers[self.all] = None
        self.visibility.committed_watchers[self.committed] = None

    def append(self, data: memoryview) -> int:
        """Append a batch; how many bytes it has."""
        info = self.log.append(data, 0)
        self.visibility.written(info.last_offset + 1, len(data))
        return len(data)

    def hide(self) -> int:
        data = control_batch([(ControlType.BOUND, encode_int64(0))], NOW_MS)
        self.log.append_own(data, 0)
        self.visibility.written(self.log.log_end_offset, len(data))
        return len(data)

    def begin(self, producer_id: int = 7) -> int:
        asked = self.log.begin_verification(producer_id, 0, 0, begins_with_zero=False)
        data = transactional(b"v", producer_id=producer_id)
        info = self.log.append(data, 0, asked)
        self.visibility.written(info.last_offset + 1, len(data))
        return len(data)

    def end(self, producer_id: int = 7, *, committed: bool = True) -> int:
        marker = Marker(committed, 0)
        info = self.log.end_transaction(producer_id, 0, marker, 0, is_new_epoch=False)
        self.visibility.written(info.last_offset + 1, info.size)
        return info.size

    def move(self, high_watermark: int) -> None:
        seen = self.visibility.watched_ends(self.high_watermark)
        self.log.advance_stable(high_watermark)
        self.high_watermark = high_watermark
        self.visibility.moved(high_watermark, seen)

    @property
    def ends(self) -> tuple[int, int, int]:
        """As all readers see it, where it is stable, and as readers of committed records see it."""
        visibility, at = self.visibility, self.high_watermark
        return (
            visibility.visible_end(at),
            visibility.last_stable_offset(at),
            visibility.committed_end(at),
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "t-0").mkdir()
    return Bench(tmp_path / "t-0")


def test_a_plain_log_ends_at_its_high_watermark(bench: Bench) -> None:
    bench.append(batch(b"a", b"b"))
    assert bench.ends == (0, 0, 0)
    bench.move(2)
    assert bench.ends == (2, 2, 2)


def test_hidden_batches_at_the_end_are_not_told_of(bench: Bench) -> None:
    bench.append(batch(b"a"))
    bench.hide()
    bench.move(2)
    assert bench.ends == (1, 2, 1)
    bench.append(batch(b"b"))
    bench.move(3)
    assert bench.ends == (3, 3, 3)


def test_an_open_transaction_ends_what_is_committed(bench: Bench) -> None:
    bench.append(batch(b"a"))
    bench.hide()
    bench.begin()
    bench.append(batch(b"behind"))
    bench.move(4)
    assert bench.ends == (4, 2, 1)
    bench.end()
    assert bench.ends == (4, 2, 1), "the marker is not acknowledged"
    bench.move(5)
    assert bench.ends == (5, 5, 5)


def test_what_retention_took_is_before_every_end(bench: Bench) -> None:
    bench.hide()
    bench.append(batch(b"a"))
    bench.hide()
    bench.move(3)
    assert bench.ends == (2, 3, 2)
    bench.log.delete_records_before(3)
    assert bench.ends == (3, 3, 3)


class TestWaiting:
    def test_those_who_wait_hear_of_all_bytes_that_became_visible_at_once(
        self, bench: Bench
    ) -> None:
        bench.wait()
        sizes = [bench.append(batch(b"x" * n)) for n in range(5)]
        bench.move(3)
        assert bench.all.sizes == bench.committed.sizes == [sum(sizes[:3])]
        bench.move(5)
        assert bench.all.sizes == bench.committed.sizes == [sum(sizes[:3]), sum(sizes[3:])]

    def test_many_appends_above_the_high_watermark_are_added_up(self, bench: Bench) -> None:
        bench.wait()
        total = sum(bench.append(batch(b"x")) for _ in range(1100))
        bench.move(1000)
        assert sum(bench.all.sizes) < total
        bench.move(1100)
        assert sum(bench.all.sizes) == total

    def test_hidden_batches_are_news_to_those_who_see_them_alone(self, bench: Bench) -> None:
        bench.wait()
        replica = Waiting(sees_hidden=True)
        bench.visibility.watchers[replica] = None
        size = bench.hide()
        bench.move(1)
        assert (bench.all.sizes, bench.committed.sizes, replica.sizes) == ([], [], [size])

    def test_readers_of_committed_records_hear_of_it_all_when_a_transaction_has_ended(
        self, bench: Bench
    ) -> None:
        bench.wait()
        sizes = [bench.begin(), bench.append(batch(b"behind"))]
        bench.move(2)
        assert (bench.all.sizes, bench.committed.sizes) == ([sum(sizes)], [])
        sizes.append(bench.end(committed=False))
        bench.move(3)
        assert bench.committed.sizes == [sum(sizes)]

    def test_what_was_cut_off_is_not_counted(self, bench: Bench) -> None:
        bench.wait()
        size = bench.append(batch(b"a"))
        bench.append(batch(b"cut"))
        bench.log.truncate_to(1)
        bench.visibility.forget()
        bench.move(1)
        again = bench.append(batch(b"b"))
        bench.move(2)
        assert sum(bench.all.sizes) == again, f"the first {size} bytes are not told of"
        assert bench.ends == (2, 2, 2)

    def test_an_end_is_looked_for_again_after_a_cut(self, bench: Bench) -> None:
        bench.append(batch(b"a"))
        bench.hide()
        bench.move(2)
        assert bench.ends == (1, 2, 1)
        bench.log.truncate_to(1)
        bench.append(batch(b"b"))
        bench.visibility.forget()
        assert bench.ends[0] == 2

    def test_who_waits_can_be_made_to_look_again(self, bench: Bench) -> None:
        bench.wait()
        bench.visibility.wake()
        assert bench.all.sizes == bench.committed.sizes == [0]
