"""Logs in a temporary directory, on the real file system."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.log import Log, LogConfig, OsFiles
from qbus.broker.log.file_cache import FileCache
from qbus.broker.log.segment import LogSegment
from qbus.clock import ManualClock

OpenLog = Callable[..., Log]
Mirror = Callable[..., Log]
NewSegment = Callable[..., LogSegment]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of partition 0 of ``topic``."""
    path = tmp_path / "topic-0"
    path.mkdir()
    return path


@pytest.fixture
def open_log(directory: Path, clock: ManualClock) -> OpenLog:
    """Opens the log in ``directory``; keywords that are settings make its configuration."""

    def open_log(
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean: bool = False,
        **config: Any,
    ) -> Log:
        return Log.open(
            str(directory),
            LogConfig(**config),
            clock,
            OsFiles(),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            clean=clean,
        )

    return open_log


@pytest.fixture
def mirror(open_log: OpenLog) -> Mirror:
    """Opens the log in ``directory`` as that of a mirror of IDC a."""
    return partial(open_log, qbus_mirror_source="a", qbus_mirror_topic_id="id")


@pytest.fixture
def cache() -> FileCache:
    return FileCache(OsFiles())


@pytest.fixture
def new_segment(directory: Path, cache: FileCache) -> NewSegment:
    """A new, empty segment."""

    def new_segment(base_offset: int = 0) -> LogSegment:
        segment = LogSegment(cache, str(directory), base_offset, size=0, created_ms=0)
        segment.create()
        return segment

    return new_segment
