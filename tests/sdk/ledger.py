"""Accounts of what was sent and what was read, and the audit of the SDK's promises."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from qbus.clients import ConsumerRecord
from qbus.errors import QbusError

from .sdk_clients import SdkClients

MARGIN = 15.0
"""Seconds by which something may be late on a busy machine."""


class Sent:
    """Numbered records on their way to the partitions of one topic."""

    def __init__(self, sdk: SdkClients, producer: Any, topic: str, partitions: int) -> None:
        self.values: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
        self._sdk = sdk
        self._producer = producer
        self._topic = topic
        self._numbers = itertools.count()
        self._deliveries: list[tuple[bytes, Any]] = []

    def __len__(self) -> int:
        return len(self._deliveries)

    async def send(self, size: int = 0) -> None:
        """Send the next record to the next partition."""
        number = next(self._numbers)
        partition = number % len(self.values)
        value = b"%09d" % number + bytes(size)
        delivery = await self._producer.send(self._topic, value, partition=partition)
        self.values[partition].append(value)
        self._deliveries.append((value, delivery))

    async def outcomes(self, within: float) -> dict[bytes, Any]:
        """The outcome of every value; fails if a delivery has not resolved in time."""
        try:
            async with asyncio.timeout(within):
                results = await asyncio.gather(
                    *(self._sdk.result(delivery, within) for _, delivery in self._deliveries),
                    return_exceptions=True,
                )
        except TimeoutError:
            raise AssertionError(f"deliveries did not resolve within {within} s") from None
        for result in results:
            assert not isinstance(result, BaseException) or isinstance(result, QbusError), result
        return {value: result for (value, _), result in zip(self._deliveries, results, strict=True)}

    async def check_delivered(self, within: float) -> None:
        """Fail unless every record was delivered in time."""
        outcomes = await self.outcomes(within)
        assert not [one for one in outcomes.values() if isinstance(one, BaseException)]

    async def audit(self, stored: Sequence[ConsumerRecord], within: float) -> dict[bytes, Any]:
        """Check what is ``stored`` against what was sent and acknowledged; the outcomes.

        None that was acknowledged is lost or elsewhere than told, none is there twice, and each
        partition has them in the order of the sends.
        """
        outcomes = await self.outcomes(within)
        found = by_partition(stored)
        for partition, values in self.values.items():
            there = [record.value for record in found[partition]]
            assert sorted(there, key=str) == there, f"partition {partition} is out of order"
            assert len(set(there)) == len(there), f"partition {partition} has records twice"
            assert set(there) <= set(values)
        places = {record.value: record[:3] for record in stored}
        for value, outcome in outcomes.items():
            if not isinstance(outcome, BaseException):
                assert value in places, f"{value!r} was acknowledged and is lost"
                told = (outcome.topic, outcome.partition, outcome.offset)
                assert told == places[value]
        return outcomes


class Seen:
    """Records in the order in which consumers handed them out."""

    def __init__(self) -> None:
        self.offsets: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Note what a consumer handed out."""
        for record in records:
            self.offsets[record.partition].append(record.offset)

    @property
    def count(self) -> int:
        """The number of different records."""
        return sum(len(set(offsets)) for offsets in self.offsets.values())

    def check_none_skipped(self) -> None:
        """Each offset comes after the one before it, or goes back: none is jumped over."""
        for partition, offsets in self.offsets.items():
            assert offsets[0] == 0
            for before, after in itertools.pairwise(offsets):
                assert after <= before + 1, f"partition {partition}: {after} after {before}"


def by_partition(records: Iterable[ConsumerRecord]) -> dict[int, list[ConsumerRecord]]:
    """The records of each partition, by offset."""
    found: defaultdict[int, list[ConsumerRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record[:3]):
        found[record.partition].append(record)
    return found
