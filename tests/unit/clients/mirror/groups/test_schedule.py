"""Syncing at intervals: the status, also after a failure."""

import asyncio
from typing import Any

from qbus.clients import ConnectionFailed, TopicPartition
from qbus.clients.mirror.groups import OffsetSyncSchedule, SyncedGroup
from qbus.clock import ManualClock
from tests.support.waiting import eventually

WHERE = TopicPartition("a.orders", 0)


class ScriptedSync:
    """Answers what it is told to, then the last of that for ever."""

    def __init__(self, *answers: list[SyncedGroup] | Exception) -> None:
        self._answers = list(answers)
        self.count = 0

    async def sync(self) -> list[SyncedGroup]:
        self.count += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def synced(*answers: Any) -> OffsetSyncSchedule:
    """A schedule that has had all these answers."""
    offset_sync = ScriptedSync(*answers)
    schedule = OffsetSyncSchedule(offset_sync, 0.0, ManualClock(5_000))  # type: ignore[arg-type]
    task = asyncio.create_task(schedule.run())
    await eventually(lambda: offset_sync.count > len(answers))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return schedule


async def test_offsets_are_counted_and_skipped_groups_named() -> None:
    skipped = SyncedGroup("busy", skipped="it has members")
    status = (await synced([SyncedGroup("g", {WHERE: 5})], [skipped])).status
    assert status.offsets == 1
    assert status.skipped == (("busy", "it has members"),)
    assert (status.carried_ms, status.error) == (5_000, None)


async def test_a_failure_is_in_the_status_and_syncing_goes_on() -> None:
    status = (await synced([SyncedGroup("g", {WHERE: 5})], ConnectionFailed("cut"))).status
    assert (status.offsets, status.error) == (1, "cut")
    assert (await synced(ConnectionFailed("cut"), [])).status.error is None
