"""A share group on fake brokers, as strict with sessions as a real one, that does as it is told."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from uuid import uuid4

from qbus.errors import ErrorCode
from qbus.records import build_batch, iter_batches
from qbus.wire import ApiKey
from qbus.wire.messages import share_acknowledge as acknowledging
from qbus.wire.messages import share_fetch as fetching
from qbus.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from .fake_broker import FakeBroker

_Partition = tuple[str, int]
_RENEW = 4


@dataclass
class SharedState:
    """What the group knows of a record: who has it until when, and how often it was given out."""

    member: str = ""
    until: float = 0.0
    deliveries: int = 0
    is_done: bool = False


@dataclass
class _Session:
    epoch: int = 1
    known: set[_Partition] = field(default_factory=set)


class FakeShareGroup:
    """One share group of any name on some brokers; every member is assigned every partition.

    said: each acknowledgement that was taken: topic, partition, offset, type, delay, result.
    nacks: the offsets of those that said that the work failed.
    refusals: errors by API to be answered next, each as a whole. ``record_refusals``: offsets of
        which no acknowledgement is taken.
    """

    def __init__(self, *brokers: FakeBroker, lock: float = 30.0) -> None:
        self.lock = lock
        self.interval_ms = 50
        self.members: dict[str, int] = {}
        self.topics: dict[str, list[str]] = {}
        self.left: list[str] = []
        self.withheld: set[_Partition] = set()
        self.states: defaultdict[tuple[str, int, int], SharedState] = defaultdict(SharedState)
        self.said: list[tuple[str, int, int, int, int, bytes | None]] = []
        self.refusals: defaultdict[ApiKey, deque[ErrorCode]] = defaultdict(deque)
        self.record_refusals: set[int] = set()
        self.nacks: list[int] = []
        self.sessions: dict[tuple[int, str], _Session] = {}
        self._assignments = 0
        self._told: dict[str, int] = {}
        self._broker = brokers[0]
        for broker in brokers:
            for topic in broker.topics:
                broker.ids.setdefault(topic, uuid4().bytes)
            broker.handlers[ApiKey.SHARE_GROUP_HEARTBEAT] = self._heartbeat
            broker.handlers[ApiKey.SHARE_FETCH] = self._on(broker, self._fetch)
            broker.handlers[ApiKey.SHARE_ACKNOWLEDGE] = self._on(broker, self._acknowledge)

    def offsets(self, kind: int) -> list[int]:
        """The offsets of which an acknowledgement of this type was taken, in that order."""
        return [offset for _, _, offset, said, _, _ in self.said if said == kind]

    def assign_again(self, withheld: Iterable[_Partition] = ()) -> None:
        """Assign every partition but ``withheld`` to every member, with its next heartbeat."""
        self.withheld = set(withheld)
        self._assignments += 1

    def forget(self, *, members: bool = False) -> None:
        """Forget all sessions, and give back what was acquired; also all members."""
        self.sessions.clear()
        for state in self.states.values():
            state.member = ""
        if members:
            self.members.clear()

    def store(self, values: Iterable[bytes], topic: str = "t", partition: int = 0) -> None:
        """Append records, one batch."""
        batch = build_batch([(None, value, (), 5) for value in values])
        self._broker.logs[topic, partition].append(bytes(batch))

    # Membership.

    def _heartbeat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        refusal = self._refusal(ApiKey.SHARE_GROUP_HEARTBEAT)
        if refusal:
            return ShareGroupHeartbeatResponse(error_code=refusal)
        member, epoch = request.member_id, request.member_epoch
        if epoch == -1:
            self.members.pop(member, None)
            self.left.append(member)
            return ShareGroupHeartbeatResponse(member_id=member, member_epoch=-1)
        if epoch == 0:
            self.topics[member] = request.subscribed_topic_names or []
            self._told.pop(member, None)
        elif member not in self.members:
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        elif self.members[member] != epoch:
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        self.members[member] = 1
        assignment = None
        if self._told.get(member) != self._assignments:
            self._told[member] = self._assignments
            assignment = self._assignment(member)
        return ShareGroupHeartbeatResponse(
            member_id=member,
            member_epoch=1,
            heartbeat_interval_ms=self.interval_ms,
            assignment=assignment,
        )

    def _assignment(self, member: str) -> Assignment:
        return Assignment(
            topic_partitions=[
                TopicPartitions(
                    topic_id=self._broker.ids[topic],
                    partitions=[
                        index
                        for index in range(self._broker.topics[topic])
                        if (topic, index) not in self.withheld
                    ],
                )
                for topic in self.topics[member]
                if topic in self._broker.topics
            ]
        )

    # Sessions.

    @staticmethod
    def _on(broker: FakeBroker, handler: Any) -> Any:
        async def answer(request: Any) -> Any:
            return await handler(broker, request)

        return answer

    def _refusal(self, api: ApiKey) -> ErrorCode:
        waiting = self.refusals[api]
        return waiting.popleft() if waiting else ErrorCode.NONE

    def _check_session(self, broker: FakeBroker, request: Any) -> tuple[_Session, ErrorCode]:
        key = broker.node_id, request.member_id or ""
        epoch = request.share_session_epoch
        if epoch == 0:
            if any(p.acknowledgement_batches for t in request.topics for p in t.partitions):
                return _Session(), ErrorCode.INVALID_REQUEST
            self._give_back(key)
            session = self.sessions[key] = _Session()
            return session, ErrorCode.NONE
        found = self.sessions.get(key)
        if found is None:
            return _Session(), ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in {-1, found.epoch}:
            return _Session(), ErrorCode.INVALID_SHARE_SESSION_EPOCH
        found.epoch += 1
        return found, ErrorCode.NONE

    def _give_back(self, key: tuple[int, str]) -> None:
        self.sessions.pop(key, None)
        node, member = key
        for (topic, partition, _), state in self.states.items():
            if state.member == member and self._leads(node, topic, partition):
                state.member = ""

    def _leads(self, node: int, topic: str, partition: int) -> bool:
        return self._broker.leaders.get((topic, partition), self._broker.node_id) == node

    def _topic(self, topic_id: bytes) -> str:
        return next(name for name, known in self._broker.ids.items() if known == topic_id)

    # Acknowledgements.

    async def _acknowledge(
        self, broker: FakeBroker, request: acknowledging.ShareAcknowledgeRequest
    ) -> acknowledging.ShareAcknowledgeResponse:
        refusal = self._refusal(ApiKey.SHARE_ACKNOWLEDGE)
        if not refusal:
            _, refusal = self._check_session(broker, request)
        if refusal:
            return acknowledging.ShareAcknowledgeResponse(error_code=refusal)
        member = request.member_id or ""
        response = acknowledging.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=int(self.lock * 1000),
            responses=[
                acknowledging.ShareAcknowledgeTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[
                        acknowledging.PartitionData(
                            partition_index=part.partition_index,
                            error_code=self._take(
                                broker,
                                member,
                                (self._topic(topic.topic_id), part.partition_index),
                                part.acknowledgement_batches,
                            ),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
        if request.share_session_epoch == -1:
            self._give_back((broker.node_id, member))
        return response

    def _take(
        self, broker: FakeBroker, member: str, where: _Partition, batches: Iterable[Any]
    ) -> ErrorCode:
        refusal = broker.refusal(*where)
        if refusal:
            return refusal
        said = [
            (offset, kind, batch)
            for batch in batches
            for offset, kind in zip(
                range(batch.first_offset, batch.last_offset + 1),
                cycle(batch.acknowledge_types),
                strict=False,
            )
        ]
        assert said == sorted(said, key=lambda one: one[0]), "in the order of the offsets"
        for offset, _, _ in said:
            state = self.states[*where, offset]
            is_held = state.member == member and state.until > time.monotonic()
            if offset in self.record_refusals or not is_held or state.is_done:
                return ErrorCode.INVALID_RECORD_STATE
        for offset, kind, batch in said:
            state = self.states[*where, offset]
            if kind == _RENEW:
                state.until = time.monotonic() + self.lock
            else:
                state.member, state.is_done = "", kind != 2
            self.said.append((*where, offset, kind, batch.delay_ms, batch.result))
            if batch.nack:
                self.nacks.append(offset)
        return ErrorCode.NONE

    # Fetches.

    async def _fetch(
        self, broker: FakeBroker, request: fetching.ShareFetchRequest
    ) -> fetching.ShareFetchResponse:
        refusal = self._refusal(ApiKey.SHARE_FETCH)
        session = _Session()
        if not refusal:
            session, refusal = self._check_session(broker, request)
        if refusal:
            return fetching.ShareFetchResponse(error_code=refusal)
        member = request.member_id or ""
        codes = self._take_along(broker, session, request)
        ends = time.monotonic() + request.max_wait_ms / 1000
        while True:
            found = {
                where: self._acquire(broker, member, where, request.max_records)
                for where in sorted(session.known)
            }
            has_some = any(part.acquired_records or part.error_code for part in found.values())
            if has_some or time.monotonic() >= ends:
                break
            await asyncio.sleep(0.005)
        response = fetching.ShareFetchResponse(acquisition_lock_timeout_ms=int(self.lock * 1000))
        for where, data in found.items():
            data.acknowledge_error_code = codes.get(where, ErrorCode.NONE)
            if data.acquired_records or data.error_code or where in codes:
                answer = fetching.ShareFetchableTopicResponse(
                    topic_id=self._broker.ids[where[0]], partitions=[data]
                )
                response.responses.append(answer)
        return response

    def _take_along(
        self, broker: FakeBroker, session: _Session, request: fetching.ShareFetchRequest
    ) -> dict[_Partition, ErrorCode]:
        """Note the partitions that a fetch names; return what comes of what it acknowledges."""
        codes: dict[_Partition, ErrorCode] = {}
        for topic in request.topics:
            for part in topic.partitions:
                where = self._topic(topic.topic_id), part.partition_index
                session.known.add(where)
                batches = part.acknowledgement_batches
                if batches:
                    codes[where] = self._take(broker, request.member_id or "", where, batches)
        for forgotten in request.forgotten_topics_data:
            topic_name = self._topic(forgotten.topic_id)
            session.known -= {(topic_name, index) for index in forgotten.partitions}
        return codes

    def _acquire(
        self, broker: FakeBroker, member: str, where: _Partition, most: int
    ) -> fetching.PartitionData:
        data = fetching.PartitionData(partition_index=where[1], records=b"")
        data.error_code = broker.refusal(*where)
        if data.error_code:
            return data
        now = time.monotonic()
        for stored in self._broker.logs[where].batches:
            if most <= 0:
                break
            header, batch = next(iter_batches(stored))
            offsets = {*range(header.base_offset, header.last_offset + 1)}
            free = sorted(offset for offset in offsets if self._is_free((*where, offset), now))
            if not free:
                continue
            most -= len(free)
            data.records = bytes(data.records or b"") + bytes(batch)
            for offset in free:
                state = self.states[*where, offset]
                state.member, state.until = member, now + self.lock
                state.deliveries += 1
                data.acquired_records.append(
                    fetching.AcquiredRecords(
                        first_offset=offset, last_offset=offset, delivery_count=state.deliveries
                    )
                )
        return data

    def _is_free(self, place: tuple[str, int, int], now: float) -> bool:
        state = self.states[place]
        return not state.is_done and (not state.member or state.until <= now)
