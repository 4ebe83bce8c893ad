"""A segment's file: who closes it, and what others find meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from qbus.broker.log.file_cache import FileCache
from qbus.broker.log.files import File, OsFiles
from qbus.broker.log.segment import LogSegment


class Watched:
    """A file that calls back as it is closed."""

    def __init__(self, on_close: Callable[[], None]) -> None:
        self.on_close = on_close

    def __del__(self) -> None:
        self.on_close()


def test_a_file_that_is_being_closed_is_not_found_in_its_segment(tmp_path: Path) -> None:
    """Other threads run while it is closed: they would read through a descriptor that is none."""
    segment = LogSegment(FileCache(OsFiles()), str(tmp_path), 0, size=0, created_ms=0)
    segment.create()
    found: list[File] = []
    cast("Any", segment)._file = Watched(lambda: found.append(segment.file))
    segment.release()
    assert [file.size() for file in found] == [0]


def test_a_file_that_is_being_opened_is_not_let_go(tmp_path: Path) -> None:
    """The cache may ask for it before the segment has it."""
    cache = FileCache(OsFiles())
    segment = LogSegment(cache, str(tmp_path), 0, size=0, created_ms=0)
    segment.create()
    assert not segment.let_go()
    segment.hold_open()
    assert len(cache) == 1
    assert segment.let_go()
    assert not segment.let_go(), "it is closed already"
