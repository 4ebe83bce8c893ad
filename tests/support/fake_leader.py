"""A fake leader in this process and event loop, which can also misbehave."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from qbus.broker.log import LeaderEpochCache
from qbus.errors import ErrorCode
from qbus.records import set_base_offset
from qbus.wire import API, ApiKey, decode, decode_request_header, encode_response
from qbus.wire.messages.describe_log_dirs import (
    DescribeLogDirsDamage,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from qbus.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from .logs import batch

SESSION = 77


@dataclass
class LedPartition:
    """The leader's log of a partition, and how it answers."""

    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    error: ErrorCode = ErrorCode.NONE
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    starts: list[int] = field(default_factory=list)
    damaged_offset: int | None = None

    def append(self, *values: bytes, epoch: int | None = None, **rest: int) -> bytes:
        """Append a batch, below the high watermark at once."""
        epoch = self.epoch if epoch is None else epoch
        made = batch(*values, **rest)  # type: ignore[arg-type]
        set_base_offset(made, self.end, epoch)
        self.epochs.assign(epoch, self.end)
        self.starts.append(self.end)
        self.batches.append(bytes(made))
        self.end += len(values)
        self.high_watermark = self.end
        return bytes(made)

    def from_offset(self, offset: int) -> bytes:
        """The batches that start at ``offset`` or later."""
        found = zip(self.starts, self.batches, strict=True)
        return b"".join(data for start, data in found if start >= offset)


class FakeLeader:
    """Serves the partitions of topics with ``names``, by id, to followers.

    ``fetches`` and ``lookups`` are the requests received. ``answering`` may replace or change each
    fetch response, ``mangle`` each frame. ``silent``: nothing is answered any more.
    """

    def __init__(self, names: dict[bytes, str] | None = None) -> None:
        self.names = names or {bytes(16): "orders"}
        self.partitions: dict[tuple[bytes, int], LedPartition] = {}
        self.fetches: list[FetchRequest] = []
        self.lookups: list[OffsetForLeaderEpochRequest] = []
        self.connections = 0
        self.keeps_sessions = True
        self.silent = False
        self.answering: Callable[[FetchRequest, FetchResponse], FetchResponse] = lambda _, r: r
        self.mangle: Callable[[ApiKey, bytes], bytes] = lambda _, frame: frame
        self._sessions: dict[int, dict[tuple[bytes, int], FetchPartition]] = {}
        self._epochs: dict[int, int] = {}
        self._moved = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def open_connections(self) -> int:
        """The number of open connections of followers."""
        return len(self._writers)

    def lead(self, index: int = 0, topic_id: bytes = bytes(16), epoch: int = 0) -> LedPartition:
        """Lead a partition."""
        led = self.partitions[topic_id, index] = LedPartition(epoch)
        return led

    def moved(self) -> None:
        """Wake the held fetches, to read again."""
        self._moved.set()
        self._moved = asyncio.Event()

    def hang_up(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.close()

    def forget_sessions(self) -> None:
        """Lose all sessions, as in a restart."""
        self._sessions.clear()

    # Serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        previous: asyncio.Task[None] | None = None
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                self.moved()  # a further request ends the hold of the one before
                previous = asyncio.create_task(self._answer(writer, frame, previous))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if previous is not None:
                previous.cancel()
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, frame: bytes, previous: asyncio.Task[None] | None
    ) -> None:
        header, pos = decode_request_header(frame)
        key = ApiKey(header.api_key)
        request = decode(API[key].request, header.api_version, memoryview(frame), pos)
        response = await self._respond(key, request)
        if previous is not None:
            await previous
        if self.silent:
            return
        parts = encode_response(key, header.api_version, header.correlation_id, response)
        writer.write(self.mangle(key, b"".join(bytes(part) for part in parts)))

    async def _respond(self, key: ApiKey, request: Any) -> Any:
        if key is ApiKey.FETCH:
            self.fetches.append(request)
            return await self._fetch(request)
        if key is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            self.lookups.append(request)
            return self._look_up(request)
        if key is ApiKey.DESCRIBE_LOG_DIRS:
            return self._describe(request)
        return self._list_offsets(request)

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        session = self._session_of(request)
        if session is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        mentioned = {
            (topic.topic_id, one.partition) for topic in request.topics for one in topic.partitions
        }
        response = self._read(request, session, mentioned)
        if not response.responses:
            moved = self._moved
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(moved.wait(), request.max_wait_ms / 1000)
            response = self._read(request, session, mentioned)
        return self.answering(request, response)

    def _session_of(self, request: FetchRequest) -> dict[tuple[bytes, int], FetchPartition] | None:
        if request.session_epoch <= 0:
            session: dict[tuple[bytes, int], FetchPartition] = {}
            if self.keeps_sessions:
                self._sessions[SESSION] = session
                self._epochs[SESSION] = 1
        else:
            found = self._sessions.get(request.session_id)
            if found is None or request.session_epoch != self._epochs[request.session_id]:
                return None
            self._epochs[request.session_id] += 1
            session = found
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                session.pop((gone.topic_id, index), None)
        for topic in request.topics:
            session |= {(topic.topic_id, one.partition): one for one in topic.partitions}
        return session

    def _read(
        self,
        request: FetchRequest,
        session: dict[tuple[bytes, int], FetchPartition],
        mentioned: set[tuple[bytes, int]],
    ) -> FetchResponse:
        topics: dict[bytes, FetchableTopicResponse] = {}
        for key, wanted in session.items():
            data = self._read_partition(key, wanted)
            is_news = data.records or data.error_code
            if is_news or (key in mentioned and data.high_watermark == wanted.fetch_offset):
                if not is_news:
                    mentioned.discard(key)
                topic = topics.setdefault(
                    key[0], FetchableTopicResponse(topic_id=key[0], partitions=[])
                )
                topic.partitions.append(data)
        session_id = SESSION if self.keeps_sessions else 0
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _read_partition(self, key: tuple[bytes, int], wanted: FetchPartition) -> PartitionData:
        data = PartitionData(partition_index=key[1], high_watermark=-1, records=b"")
        led = self.partitions.get(key)
        data.error_code = self._check(led, wanted.current_leader_epoch)
        if led is None or data.error_code:
            return data
        if not led.start <= wanted.fetch_offset <= led.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        data.high_watermark = led.high_watermark
        data.log_start_offset = led.start
        data.records = led.from_offset(wanted.fetch_offset)
        return data

    def _check(self, led: LedPartition | None, epoch: int) -> ErrorCode:
        if led is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if led.error or epoch == led.epoch:
            return led.error
        if epoch < led.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _led(self, name: str, index: int) -> LedPartition | None:
        topic_id = next((known for known, title in self.names.items() if title == name), b"")
        return self.partitions.get((topic_id, index))

    def _look_up(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                led = self._led(topic.topic, wanted.partition)
                answer = EpochEndOffset(partition=wanted.partition)
                answer.error_code = self._check(led, wanted.current_leader_epoch)
                if led is not None and not answer.error_code:
                    answer.leader_epoch, answer.end_offset = _end_of(led, wanted.leader_epoch)
                answers.append(answer)
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _describe(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        topics = []
        for topic in request.topics or ():
            answers = []
            for index in topic.partitions:
                answer = DescribeLogDirsPartition(partition_index=index)
                led = self._led(topic.topic, index)
                if led is not None and led.damaged_offset is not None:
                    answer.damage = [DescribeLogDirsDamage(first_offset=led.damaged_offset)]
                answers.append(answer)
            topics.append(DescribeLogDirsTopic(name=topic.topic, partitions=answers))
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=topics)])

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                led = self._led(topic.name, wanted.partition_index)
                answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                answer.error_code = self._check(led, wanted.current_leader_epoch)
                if led is not None and not answer.error_code:
                    answer.offset = led.start
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)


def _end_of(led: LedPartition, epoch: int) -> tuple[int, int]:
    latest = led.epochs.latest_epoch
    if latest < epoch <= led.epoch:
        return (latest if latest >= 0 else epoch), led.end
    return led.epochs.end_offset_for(epoch, led.end)
