"""Fetch responses: records kept for their partitions, errors handled."""

import time
from collections.abc import Collection, Mapping
from uuid import UUID

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import CorruptBatch
from qbus.wire.messages.fetch import FetchResponse, PartitionData

from ..errors import REFUSED_AS_CORRUPT, NoOffset, api_error, corrupt_at
from ..net.cluster import Cluster
from ..net.trouble import USUAL_S
from ..types import EARLIEST, LATEST, TopicPartition
from .assignment import Assignment, PartitionState
from .completed_fetch import CompletedFetch
from .options import ConsumerOptions

RESETS: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}
_NEARBY_SECONDS = 300.0


class FetchResponses:
    """Gives partitions what arrived for them. ``failure`` is the error that the next poll
    raises.
    """

    def __init__(self, cluster: Cluster, assignment: Assignment, options: ConsumerOptions) -> None:
        self.failure: QbusError | None = None
        self._failing: PartitionState | None = None
        self._cluster = cluster
        self._assignment = assignment
        self._options = options

    def arrived(
        self,
        broker: int,
        asked: Mapping[TopicPartition, int],
        ids: Mapping[str, UUID],
        response: FetchResponse,
    ) -> bool:
        """Keep what arrived; return whether some partition was refused.

        ``ids``: of the topics that were asked for, which may go by them in the response.
        """
        has_failed = False
        names = {topic_id.bytes: name for name, topic_id in ids.items()}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                state = self._assignment.states.get(partition)
                offset = asked.get(partition)
                if state is None or offset is None or state.fetch_offset != offset:
                    continue  # unassigned or moved meanwhile
                if state.topic_id not in {None, ids[name]}:
                    continue  # starts over meanwhile, in another topic of this name
                if state.is_stopped:
                    continue
                if data.error_code != ErrorCode.NONE:
                    has_failed = True
                    self._refused(broker, partition, state, offset, data)
                else:
                    self._keep(partition, state, offset, data)
        return has_failed

    def unanswered(self, asked: Mapping[TopicPartition, int], error: QbusError) -> None:
        """Handle a request without a valid response."""
        self._cluster.metadata.forget({partition.topic for partition in asked})
        for partition in asked:
            state = self._assignment.states.get(partition)
            if state is not None:
                state.nearby = -1
        self.trouble(error)

    def trouble(self, error: QbusError) -> None:
        """Keep an error for the user, unless it is retriable."""
        if not (isinstance(error, ApiError) and error.retriable):
            self.fail(error)

    def fail(self, error: QbusError, state: PartitionState | None = None) -> None:
        """Keep an error for the user; ``state``: of the partition that it is about.

        One about a partition that is not assigned any more is dropped.
        """
        if state is not None:
            if state not in self._assignment.states.values():
                return
            state.failure = error
        self.failure, self._failing = error, state

    def damaged(
        self, partition: TopicPartition, state: PartitionState, error: CorruptBatch
    ) -> None:
        """Report a batch that cannot be read; a later read there reports it again."""
        state.drop()
        assert state.position is not None, "what was read has a position"
        failure = corrupt_at(*partition, state.position, str(error))
        failure.__cause__ = error
        self.fail(failure, state)

    def raise_unless(self, records: Collection[object]) -> None:
        """Raise the failure, once, but not before the user has the records read before it.

        That of one partition does not wait for the records of others, which may never end, and is
        forgotten once the user continues elsewhere in it.
        """
        failure, failing = self.failure, self._failing
        is_left = failing is not None and failing.failure is not failure
        if failure is None or (records and not is_left and (failing is None or failing.fetched)):
            return
        self.failure = self._failing = None
        if not is_left:
            raise failure

    def _keep(
        self, partition: TopicPartition, state: PartitionState, offset: int, data: PartitionData
    ) -> None:
        is_committed = self._options.read_committed
        state.start_offset = data.log_start_offset
        state.end_offset = data.last_stable_offset if is_committed else data.high_watermark
        if data.preferred_read_replica >= 0:
            state.nearby = data.preferred_read_replica
            state.nearby_until = time.monotonic() + _NEARBY_SECONDS
        if self._cluster.troubles:
            self._cluster.troubles.solved(f"{partition.topic}-{partition.partition}")
        if data.records:
            fetched = CompletedFetch(
                partition,
                offset,
                data.records,
                check_crcs=self._options.check_crcs,
                aborted=(data.aborted_transactions or ()) if is_committed else (),
                max_size=self._options.batch_max_bytes,
                topic_id=state.known_id,
            )
            state.fetched.append(fetched)

    def _refused(
        self,
        broker: int,
        partition: TopicPartition,
        state: PartitionState,
        offset: int,
        data: PartitionData,
    ) -> None:
        topic, index = partition
        if state.nearby == broker:
            state.nearby = -1  # ask the leader
            return
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, state)
            return
        if data.error_code == ErrorCode.CORRUPT_MESSAGE:
            # Asking again does not help: a broker that has a good copy elsewhere repairs its own.
            self.fail(corrupt_at(topic, index, offset, REFUSED_AS_CORRUPT), state)
            return
        error = api_error(data.error_code, of=f"{topic}-{index}", broker=broker)
        hint = data.current_leader
        if error.retriable and self._cluster.apply_leader_hint(
            topic, index, hint.leader_id, hint.leader_epoch
        ):
            return
        if error.retriable:
            self._cluster.metadata.forget([topic])
            self._cluster.troubles.met(f"{topic}-{index}", error, grace=USUAL_S)
        else:
            self.fail(error, state)

    def _out_of_range(self, partition: TopicPartition, state: PartitionState) -> None:
        if state.fetched or state.cursor is not None:
            return  # fetched records are read first
        reset_to = RESETS.get(self._options.offset_reset)
        if reset_to is None:
            topic, index = partition
            self.fail(NoOffset(f"{topic}-{index} has no offset {state.position}"), state)
        else:
            state.position, state.reset_to, state.epoch = None, reset_to, -1
