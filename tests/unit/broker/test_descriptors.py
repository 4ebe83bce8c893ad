import logging
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker.descriptors import register_descriptors, shares
from qbus.broker.log import OsFiles
from qbus.broker.log.file_cache import FileCache
from qbus.broker.metrics import Metrics
from qbus.service import descriptors


@pytest.mark.parametrize("limit", [16, 64, 256, 1024, 65_536, 1 << 20, descriptors.UNLIMITED])
def test_connections_and_logs_together_leave_something_for_all_else(limit: int) -> None:
    connections, logs = shares(limit)
    assert connections >= limit // 2, "half is for clients at least"
    assert logs >= 8
    if limit >= 256:
        assert limit - connections - logs - logs // 4 >= min(limit // 8, 256)


def test_the_share_of_logs_has_a_bound() -> None:
    assert shares(descriptors.UNLIMITED).logs < 100_000


def logs_of(partitions: int, most_files: int) -> Any:
    return SimpleNamespace(
        logs=lambda: dict.fromkeys(range(partitions)), open_files=FileCache(OsFiles(), most_files)
    )


def test_a_limit_too_low_for_the_partitions_is_told_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register_descriptors(Metrics(), logs_of(400, 76), lambda: 3)
    (line,) = caplog.messages
    assert "400 partitions" in line
    assert "76 files" in line
    assert "ulimit -n" in line
    assert "LimitNOFILE" in line


def test_one_that_is_high_enough_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        register_descriptors(Metrics(), logs_of(400, 400), lambda: 3)
    assert caplog.messages == []
