"""Carrying over again and again: what is told of it, also when it fails."""

import asyncio
from typing import Any

from qbus.clients import ConnectionFailed, TopicPartition
from qbus.clients.mirror.groups import CarriedGroup, GroupSchedule
from qbus.clock import ManualClock
from tests.support.eventually import eventually

WHERE = TopicPartition("a.orders", 0)


class Carrier:
    """Answers what it is told to, then the last of that for ever."""

    def __init__(self, *answers: list[CarriedGroup] | Exception) -> None:
        self._answers = list(answers)
        self.count = 0

    async def carry(self) -> list[CarriedGroup]:
        self.count += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def carried(*answers: Any) -> GroupSchedule:
    """A schedule that has had all these answers."""
    carrier = Carrier(*answers)
    schedule = GroupSchedule(carrier, 0.0, ManualClock(5_000))  # type: ignore[arg-type]
    task = asyncio.create_task(schedule.run())
    await eventually(lambda: carrier.count > len(answers))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return schedule


async def test_offsets_are_counted_and_skipped_groups_named() -> None:
    skipped = CarriedGroup("busy", skipped="it has members")
    status = (await carried([CarriedGroup("g", {WHERE: 5})], [skipped])).status
    assert status.offsets == 1
    assert status.skipped == (("busy", "it has members"),)
    assert (status.carried_ms, status.error) == (5_000, None)


async def test_a_failure_is_told_of_and_it_goes_on() -> None:
    status = (await carried([CarriedGroup("g", {WHERE: 5})], ConnectionFailed("cut"))).status
    assert (status.offsets, status.error) == (1, "cut")
    assert (await carried(ConnectionFailed("cut"), [])).status.error is None
