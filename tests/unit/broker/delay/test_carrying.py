"""Retention and records that cannot be read."""

import logging
from pathlib import Path

import pytest

from qbus.errors import CorruptBatch

from .conftest import NewLine
from .delays import DAY, Line, WallClock


def swap(line: Line, old: bytes, new: bytes) -> None:
    """Change bytes of the log on the disk."""
    line.log.flush()
    line.delayed.held.close()
    for path in Path(line.directory).glob("*.log"):
        content = path.read_bytes()
        if old in content:
            with path.open("r+b") as file:
                file.seek(content.index(old))
                file.write(new)
            return
    pytest.fail(f"{old!r} is not in the log")


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the broker said about delayed records."""
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    return [one for one in said if "delayed record" in one]


async def send_and_wait(line: Line, clock: WallClock) -> list[int]:
    """Records in three segments that retention would take; their offsets."""
    offsets = []
    for value in (b"first", b"second", b"third"):
        offsets.append(line.send(value, delay="30d"))
        line.log.roll()
        line.log.flush()
    clock.advance(2 * DAY)
    line.send(b"plain")
    return offsets


async def test_retention_keeps_all_from_an_unreadable_record_on_until_it_is_repaired(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(retention_ms=DAY)
    _, damaged, _ = await send_and_wait(line, clock)
    swap(line, b"second", b"secund")
    for _ in range(3):
        await line.carry()
        line.log.apply_retention()
        clock.advance(60_000)
    assert line.log.first_segment_offset == line.fold.needed_from == damaged
    assert line.fold.pending == 3
    assert errors(caplog) == [
        f"t-0: the delayed record at offset {damaged} cannot be read: retention keeps it and all"
        " that lies behind it"
    ]
    size = line.log.size
    await line.carry()
    assert line.log.size == size, "nothing is written again and again"
    swap(line, b"secund", b"second")
    await line.carry()
    line.log.apply_retention()
    assert line.log.first_segment_offset > damaged + 1
    clock.advance(30 * DAY)
    assert await line.deliver() == 3
    assert [r.value for r in line.visible() if r.value != b"plain"] == [
        b"first",
        b"second",
        b"third",
    ]


async def test_an_unreadable_record_is_not_deleted_with_what_lies_before_the_start(
    line: Line, clock: WallClock
) -> None:
    _, damaged, _ = await send_and_wait(line, clock)
    swap(line, b"second", b"secund")
    with pytest.raises(CorruptBatch, match=f"offset {damaged} cannot be read"):
        await line.service.clear_before(line, line.log.log_end_offset)  # type: ignore[arg-type]
    assert line.fold.pending == 3
