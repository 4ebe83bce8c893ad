"""Logs of deleted topics are removed in the background, whatever else happens meanwhile."""

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from qbus.broker.log import LogManager, TopicPartition
from qbus.broker.partition.log_removal import LogRemoval
from qbus.errors import ApiError
from tests.support.waiting import eventually

FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)
FIRST_ID, SECOND_ID = b"f" * 16, b"s" * 16


class Logs:
    """A broker's logs, which forget nothing until they are let."""

    def __init__(self) -> None:
        self.noted: list[bytes] = []
        self.deleted: list[TopicPartition] = []
        self.forgotten: list[bytes] = []
        self.is_forgetting = threading.Event()
        self.may_forget = threading.Event()

    def note_deleted(self, logs: Mapping[TopicPartition, bytes]) -> None:
        self.noted += logs.values()

    def delete_many(
        self, partitions: Collection[TopicPartition], of: Collection[bytes]
    ) -> dict[TopicPartition, ApiError]:
        self.deleted += partitions
        return {}

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
