"""Group commit, checkpoints, and what a clean close leaves."""

import threading
from pathlib import Path

from qbus.broker.log import Log, LogConfig
from qbus.clock import ManualClock
from tests.support.logs import ControlledFiles, DiskControl, batch

from .conftest import OpenLog


def test_what_is_flushed_is_stable(open_log: OpenLog) -> None:
    log = open_log()
    assert log.flushed_offset == 0
    log.append(batch(b"a", b"b"), 0)
    assert log.flushed_offset == 0
    assert log.flush() == log.flushed_offset == 2
    assert log.flush() == 2


def test_appending_goes_on_while_a_flush_waits_for_the_disk(
    directory: Path, clock: ManualClock
) -> None:
    disk = DiskControl()
    log = Log.open(str(directory), LogConfig(), clock, ControlledFiles(disk))
    log.append(batch(b"a"), 0)
    disk.hold_syncs()
    flushed: list[int] = []
    thread = threading.Thread(target=lambda: flushed.append(log.flush()))
    thread.start()
    assert disk.syncing.acquire(timeout=10)
    assert log.append(batch(b"b"), 0).first_offset == 1
    assert log.flushed_offset == 0
    disk.release_syncs()
    thread.join()
    assert flushed == [1], "what came meanwhile is in the next one"
    assert log.flush() == 2


def test_a_flush_covers_segments_finished_since_the_last(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=200)
    for _ in range(6):
        log.append(batch(b"v" * 60), 0)
    assert log.segment_count > 2
    assert log.flush_due()
    assert log.flush() == 6
    assert not log.flush_due()


def test_flush_messages_and_flush_ms_ask_for_a_flush(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(flush_messages=3)
    log.append(batch(b"a", b"b"), 0)
    assert not log.flush_due()
    log.append(batch(b"c"), 0)
    assert log.flush_due()
    log.flush()
    log.update_config(LogConfig(flush_ms=1000))
    log.append(batch(b"d"), 0)
    assert not log.flush_due()
    clock.advance(1)
    assert log.flush_due()


def test_a_checkpoint_raises_the_recovery_point_and_makes_opening_quick(
    open_log: OpenLog, directory: Path
) -> None:
    log = open_log(index_interval_bytes=0)
    for epoch in (0, 0, 1):
        log.append(batch(b"v"), epoch)
    log.flush()
    assert log.recovery_point == 0
    assert log.checkpoint() == log.recovery_point == 3
    assert (directory / f"{3:020d}.snapshot").exists()
    assert (directory / f"{0:020d}.index").stat().st_size == 16
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 2\n"


def test_a_checkpoint_keeps_the_newest_snapshot_and_those_of_segments(
    open_log: OpenLog, directory: Path
) -> None:
    log = open_log(segment_bytes=200)
    for _ in range(4):
        log.append(batch(b"v" * 60), 0)
        log.flush()
        log.checkpoint()
    bases = {int(path.stem) for path in directory.glob("*.log")} - {0}
    assert {int(path.stem) for path in directory.glob("*.snapshot")} == bases | {4}


def test_a_closed_log_is_opened_without_reading_batches(open_log: OpenLog, directory: Path) -> None:
    log = open_log(index_interval_bytes=0)
    for _ in range(10):
        log.append(batch(b"v" * 50), 0)
    log.close()
    path = directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1  # in the first batch, found by the first to read it
    path.write_bytes(content)
    again = open_log(clean=True, recovery_point=10)
    assert (again.log_end_offset, again.flushed_offset, again.corruptions) == (10, 10, ())


def test_closing_a_log_that_was_not_used_touches_nothing(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    log = open_log()
    log.append(batch(b"v"), 0)
    log.close()
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    disk = DiskControl()
    again = Log.open(
        str(directory), LogConfig(), clock, ControlledFiles(disk), clean=True, recovery_point=1
    )
    again.close()
    assert disk.syncs == 0
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == before


def test_producers_that_fell_silent_are_forgotten(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(producer_id_expiration_ms=1000)
    log.append(batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0), 0)
    log.expire_producers()
    assert len(log.producers) == 1
    clock.advance(1)
    log.expire_producers()
    assert len(log.producers) == 0
