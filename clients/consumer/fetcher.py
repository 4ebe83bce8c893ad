"""Fetches for all assigned partitions: one long poll at a time to each broker that leads some."""

import asyncio
from collections.abc import Mapping

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import CorruptBatch, Record
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

from ..cluster import Cluster, Lane
from ..errors import NoOffset, api_error, check
from ..grouping import by_topic
from ..types import EARLIEST, LATEST, PartitionRecords, TopicPartition
from .assignment import Assignment, PartitionState
from .fetched import Fetched
from .options import ConsumerOptions

RESETS: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}
_RETRY_DELAY = 0.1


class Fetcher:
    """Fills the assignment's partitions and hands out what they hold.

    A partition is fetched again when all that it held was taken: an answer is on its way while the
    user works on the records before it, and memory is bounded by one answer of each broker.
    """

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        options: ConsumerOptions,
        changed: asyncio.Event,
    ) -> None:
        self._cluster = cluster
        self._assignment = assignment
        self._options = options
        self._changed = changed
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._failure: QbusError | None = None

    async def close(self) -> None:
        """Give up what is in flight."""
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    def start(self) -> None:
        """Ask each leader for its partitions that hold nothing, unless it is being asked."""
        wanted: dict[int, dict[TopicPartition, int]] = {}
        for partition, state in self._assignment.states.items():
            if state.position is None or state.fetched is not None or state.is_stopped:
                continue
            try:
                leader = self._cluster.metadata.leader(*partition)
            except ApiError:
                continue  # until the metadata is there
            if leader not in self._fetches:
                wanted.setdefault(leader, {})[partition] = state.position
        for leader, positions in wanted.items():
            self._fetches[leader] = asyncio.create_task(self._fetch(leader, positions))

    def take(self) -> list[PartitionRecords]:
        """Records that have arrived; the partitions that gave some come last the next time.

        Raises :class:`~qbus.errors.ApiError` when something cannot be read, after the records that
        can.
        """
        taken: list[PartitionRecords] = []
        room = self._options.max_poll_records
        for partition, state in list(self._assignment.states.items()):
            if state.fetched is None or room <= 0:
                continue
            try:
                records = self._take(partition, state, room)
            except CorruptBatch as error:
                self._failure = error
                continue
            if records:
                taken.append(PartitionRecords(*partition, records))
                room -= len(records)
                self._assignment.move_to_end(partition)
        if self._failure is not None and not taken:
            failure, self._failure = self._failure, None
            raise failure
        return taken

    def _take(self, partition: TopicPartition, state: PartitionState, room: int) -> list[Record]:
        assert state.fetched is not None
        try:
            return state.fetched.take(room)
        except CorruptBatch as error:
            topic, index = partition
            raise CorruptBatch(f"{topic}-{index} at {state.position}: {error}") from error
        finally:
            state.position = state.fetched.position
            if state.fetched.is_exhausted:
                state.fetched = None

    async def _fetch(self, leader: int, positions: Mapping[TopicPartition, int]) -> None:
        try:
            response: FetchResponse = await self._cluster.ask(
                leader,
                ApiKey.FETCH,
                self._request(positions),
                lane=Lane.FETCH,
                timeout=self._cluster.request_timeout + self._options.fetch_max_wait,
            )
            check(response.error_code, of="fetch")
            has_failed = self._arrived(positions, response)
        except QbusError as error:
            has_failed = True
            self._cluster.metadata.forget({partition.topic for partition in positions})
            if not (isinstance(error, ApiError) and error.retriable):
                self._failure = error
        self._changed.set()
        if has_failed:
            await asyncio.sleep(_RETRY_DELAY)
        self._fetches.pop(leader, None)
        self._changed.set()

    def _request(self, positions: Mapping[TopicPartition, int]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=int(self._options.fetch_max_wait * 1000),
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            fetch_offset=positions[TopicPartition(topic, index)],
                            partition_max_bytes=self._options.partition_max_bytes,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(positions).items()
            ],
        )

    def _arrived(self, positions: Mapping[TopicPartition, int], response: FetchResponse) -> bool:
        """Keep what came; whether something has to change before asking again helps."""
        has_failed = False
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                state = self._assignment.states.get(partition)
                asked_for = positions.get(partition)
                if state is None or asked_for is None or state.position != asked_for:
                    continue  # no longer assigned, or the user went elsewhere
                if state.is_stopped:
                    continue
                if data.error_code != ErrorCode.NONE:
                    has_failed = True
                    self._refused(partition, state, data)
                elif data.records:
                    state.fetched = Fetched(
                        asked_for, data.records, check_crcs=self._options.check_crcs
                    )
        return has_failed

    def _refused(
        self, partition: TopicPartition, state: PartitionState, data: PartitionData
    ) -> None:
        topic, index = partition
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            reset_to = RESETS.get(self._options.offset_reset)
            if reset_to is None:
                self._failure = NoOffset(f"{topic}-{index} has no offset {state.position}")
            else:
                state.position, state.reset_to = None, reset_to
            return
        error = api_error(data.error_code, of=f"{topic}-{index}")
        if error.retriable:
            self._cluster.metadata.forget([topic])
        else:
            self._failure = error
