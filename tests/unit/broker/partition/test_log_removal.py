"""Logs of deleted topics are removed in the background, whatever else happens meanwhile."""

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from qbus.broker.log import LogManager, TopicPartition
from qbus.broker.partition.log_removal import LogRemoval
from qbus.errors import ApiError, ErrorCode
from tests.support.waiting import eventually

FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)
FIRST_ID, SECOND_ID = b"f" * 16, b"s" * 16


class Logs:
    """A broker's logs, which forget nothing until they are let."""

    def __init__(self) -> None:
        self.noted: list[bytes] = []
        self.deleted: list[TopicPartition] = []
        self.forgotten: list[bytes] = []
        self.errors: dict[TopicPartition, ApiError] = {}
        self.offline: set[TopicPartition] = set()
        self.is_forgetting = threading.Event()
        self.may_forget = threading.Event()

    def note_deleted(self, logs: Mapping[TopicPartition, bytes]) -> None:
        self.noted += logs.values()

    def delete_many(
        self, partitions: Collection[TopicPartition], of: Collection[bytes]
    ) -> dict[TopicPartition, ApiError]:
        self.deleted += partitions
        return {one: self.errors[one] for one in partitions if one in self.errors}

    def is_offline(self, partition: TopicPartition) -> bool:
        return partition in self.offline

    def forget_deleted(self, topic_ids: Collection[bytes]) -> None:
        self.is_forgetting.set()
        assert self.may_forget.wait(30)
        self.forgotten += topic_ids


async def test_what_is_deleted_while_a_topic_is_forgotten_waits_for_no_other_attempt() -> None:
    logs = Logs()
    with ThreadPoolExecutor(1) as threads:
        removal = LogRemoval(cast("LogManager", logs), threads)
        await removal.begin({FIRST: FIRST_ID})
        await eventually(logs.is_forgetting.is_set)
        await removal.begin({SECOND: SECOND_ID})
        assert logs.deleted == [FIRST]
        logs.may_forget.set()
        await eventually(lambda: SECOND_ID in logs.forgotten)
        assert logs.noted == [FIRST_ID, SECOND_ID]
        assert logs.deleted == [FIRST, SECOND]
        assert len(removal) == 0
        await removal.stop()


async def test_what_is_in_a_directory_that_is_offline_is_told_once_and_left_to_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs = Logs()
    logs.may_forget.set()
    error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
    logs.errors = {FIRST: error, SECOND: error}
    logs.offline = {FIRST}
    with ThreadPoolExecutor(1) as threads:
        removal = LogRemoval(cast("LogManager", logs), threads)
        await removal.begin({FIRST: FIRST_ID, SECOND: SECOND_ID})
        await eventually(lambda: "are tried again" in caplog.text)
        assert len(removal) == 1
        assert "1 logs of deleted topics, as first-0, are in data directories that are offline" in (
            caplog.text
        )
        assert "1 logs of deleted topics could not be removed, as second-0" in caplog.text
        await eventually(lambda: removal._task is None)
        logs.errors = {}
        removal.retry()
        await eventually(lambda: len(removal) == 0 and removal._task is None)
        assert logs.deleted == [FIRST, SECOND, SECOND], "in vain for the first"
        assert logs.forgotten == [], "the next start has to look for what is left of both"
        assert caplog.text.count("offline") == 1
        await removal.stop()
