"""Positions survive a crash at any point."""

import errno
import os
from pathlib import Path

import pytest

from qbus.agent.positions import Position, Positions
from qbus.agent.positions.position import Fingerprint, Former, Identity
from qbus.agent.positions.positions import EXPIRY_MS, FILE_NAME
from qbus.clock import ManualClock
from qbus.service.lock import DirectoryInUse

ONE = Identity(1, 100)


def opened(directory: Path, clock: ManualClock | None = None) -> Positions:
    return Positions(directory, clock or ManualClock())


def added(positions: Positions, identity: Identity = ONE, path: str = "/var/log/a.log") -> Position:
    position = Position(identity, "lines", path)
    positions.add(position)
    return position


def test_positions_survive_a_restart(tmp_path: Path) -> None:
    positions = opened(tmp_path)
    position = added(positions)
    position.fingerprint = Fingerprint.of(b"head")
    position.partition, position.offset, position.tail = 3, 500, (4, 77)
    position.restart()
    position.offset, position.tail = 20, (20, 5)
    positions.close()
    found = opened(tmp_path).find(ONE, "lines")
    assert found is not None
    assert found.to_json() == position.to_json()
    assert found.formers == [Former(Fingerprint.of(b"head"), 500, (4, 77))]


def test_offset_changes_take_short_lines_and_the_last_counts(tmp_path: Path) -> None:
    positions = opened(tmp_path)
    position = added(positions)
    positions.write()
    size = (tmp_path / FILE_NAME).stat().st_size
    for offset in (10, 20, 30):
        position.offset, position.tail = offset, (10, 1)
        positions.move(position)
        positions.write()
    assert (tmp_path / FILE_NAME).stat().st_size - size < 3 * 30
    positions.close()
    found = opened(tmp_path).find(ONE, "lines")
    assert found is not None
    assert (found.offset, found.tail) == (30, (10, 1))


def test_a_truncated_journal_keeps_its_whole_lines(tmp_path: Path) -> None:
    positions = opened(tmp_path)
    position = added(positions)
    ends = {}
    for offset in range(0, 50, 10):
        position.offset = offset
        positions.move(position)
        positions.write()
        ends[(tmp_path / FILE_NAME).stat().st_size] = offset
    positions.close()
    content = (tmp_path / FILE_NAME).read_bytes()
    for cut in sorted({*range(0, len(content), 11), *ends, *(end - 1 for end in ends)}):
        directory = tmp_path / str(cut)
        directory.mkdir()
        (directory / FILE_NAME).write_bytes(content[:cut])
        survivor = opened(directory)
        found = survivor.find(ONE, "lines")
        before = [offset for end, offset in ends.items() if end <= cut]
        assert (found and found.offset) == (before[-1] if before else None)
        survivor.close()


def test_lines_behind_damage_are_cut_off_and_overwritten(tmp_path: Path) -> None:
    positions = opened(tmp_path)
    position = added(positions)
    positions.write()
    whole = (tmp_path / FILE_NAME).stat().st_size
    position.offset = 10
    positions.move(position)
    positions.close()
    content = bytearray((tmp_path / FILE_NAME).read_bytes())
    content[whole + 12] ^= 1
    (tmp_path / FILE_NAME).write_bytes(content)
    survivor = opened(tmp_path)
    found = survivor.find(ONE, "lines")
    assert found is not None
    assert found.offset == 0
    found.offset = 7
    survivor.move(found)
    survivor.close()
    again = opened(tmp_path).find(ONE, "lines")
    assert again is not None
    assert again.offset == 7


def test_compaction_drops_obsolete_lines(tmp_path: Path) -> None:
    clock = ManualClock()
    positions = opened(tmp_path, clock)
    gone, there = added(positions), added(positions, Identity(1, 101))
    gone.seen_at = there.seen_at = clock.time_ms()
    clock.advance(EXPIRY_MS / 1000 + 1)
    there.seen_at = clock.time_ms()
    positions.mark_seen("source")
    positions.compact()
    positions.close()
    found = opened(tmp_path, clock)
    assert [position.identity for position in found] == [there.identity]
    assert found.was_seen("source")


def test_a_clock_that_is_set_forward_makes_no_position_expire(tmp_path: Path) -> None:
    """Files are looked for each few seconds; between two looks years may seem to pass."""
    clock = ManualClock()
    positions = opened(tmp_path, clock)
    there = added(positions)
    there.seen_at = clock.time_ms()
    clock.advance(10 * EXPIRY_MS / 1000)
    positions.compact()
    assert [*positions] == [there]
    positions.close()


def test_after_a_full_disk_everything_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = opened(tmp_path)
    position = added(positions)
    positions.write()
    position.offset = 10
    positions.move(position)

    size = (tmp_path / FILE_NAME).stat().st_size
    write = os.pwrite

    def torn(file: int, data: memoryview, at: int) -> int:
        if at > size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:3], at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", torn)
        with pytest.raises(OSError, match="No space"):
            positions.write()
    assert (tmp_path / FILE_NAME).stat().st_size == size
    positions.close()
    found = opened(tmp_path).find(ONE, "lines")
    assert found is not None
    assert found.offset == 10


def test_after_a_failed_sync_everything_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    positions = opened(tmp_path, clock)
    position = added(positions)
    position.seen_at, position.offset = clock.time_ms(), 10
    positions.mark_seen("source")
    positions.write()
    journal = tmp_path / FILE_NAME
    lost = journal.stat().st_ino

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output"):
            positions.sync()
        unsynced = [positions.is_unsynced]
        with pytest.raises(OSError, match="Input/output"):
            positions.write()
        unsynced.append(positions.is_unsynced)
    assert positions.write(), "nothing has changed, but it may not be on the disk"
    assert [*unsynced, positions.is_unsynced] == [True, True, False]
    assert not positions.write()
    assert journal.stat().st_ino != lost
    positions.close()
    survivor = opened(tmp_path, clock)
    found = survivor.find(ONE, "lines")
    assert found is not None
    assert found.offset == 10
    assert survivor.was_seen("source")


def test_two_agents_do_not_share_positions(tmp_path: Path) -> None:
    positions = opened(tmp_path)
    with pytest.raises(DirectoryInUse):
        opened(tmp_path)
    positions.close()
    opened(tmp_path).close()


def test_positions_that_cannot_be_opened_do_not_stay_locked(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            opened(tmp_path)
    (tmp_path / FILE_NAME).rmdir()
    opened(tmp_path).close()
