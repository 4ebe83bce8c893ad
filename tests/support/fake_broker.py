"""A broker of a few lines, in this process and loop, that does as it is told: also badly.

It keeps records in memory, checks sequences as Kafka does (a producer's last five batches are
known), and has every answer replaced or withheld by the test.
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from qbus.clients.net.versions import SPOKEN
from qbus.errors import ErrorCode
from qbus.wire import API, ZERO_UUID, ApiKey, decode, decode_request_header, encode_response
from qbus.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from qbus.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from qbus.wire.messages.init_producer_id import InitProducerIdResponse
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from qbus.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from qbus.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

from .fake_log import PartitionLog

NODE = 1
Handler = Callable[[Any], Any]


class Hangup(Exception):  # noqa: N818 - an order, not an error
    """Raised by a handler: close the connection without an answer."""


class FakeBroker:
    """Listens on 127.0.0.1. ``topics`` holds partition counts; ``handlers`` answers by API.

    ``ids`` are those of topics that have one.

    ``requests`` is every request that came, as ``(api, version, message)``; ``mangle`` changes
    the frames of answers on their way out.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        versions: Mapping[int, tuple[int, int]] = SPOKEN,
        node_id: int = NODE,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.tls = tls
        self._wanted_port = port
        self.node_id = node_id
        self.topics = dict(topics or {"t": 1})
        self.ids: dict[str, bytes] = {}
        self.logs: defaultdict[tuple[str, int], PartitionLog] = defaultdict(PartitionLog)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.noted: dict[tuple[str, str, int], str] = {}
        self.requests: list[tuple[ApiKey, int, Any]] = []
        self.leaders: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.versions = versions
        self.features: dict[str, int] = {}
        self.connections = 0
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.PRODUCE: self.produce,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.OFFSET_COMMIT: self.offset_commit,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
        }
        self.mangle: dict[ApiKey, Callable[[bytes], bytes]] = {}
        self._producer_ids = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._appended = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self._wanted_port, ssl=self.tls
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Close the port and every connection."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hangup(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()

    def wake(self) -> None:
        """Let fetches that wait look again."""
        self._appended.set()

    def asked(self, api: ApiKey) -> list[Any]:
        return [message for asked, _, message in self.requests if asked is api]

    # What an honest broker answers.

    def api_versions(self, _: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=api, min_version=low, max_version=high)
                for api, (low, high) in self.versions.items()
            ],
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level)
                for name, level in self.features.items()
            ],
        )

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = self.topics if request.topics is None else [t.name for t in request.topics]
        return MetadataResponse(
            brokers=self.brokers(),
            cluster_id="fake",
            controller_id=NODE,
            topics=[self._topic(name or "") for name in names],
        )

    def brokers(self) -> list[MetadataResponseBroker]:
        return [MetadataResponseBroker(node_id=self.node_id, host="127.0.0.1", port=self.port)]

    def refusal(self, topic: str, partition: int, leader_epoch: int = -1) -> ErrorCode:
        """Why a partition is not served here."""
        return ErrorCode.NONE

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=code, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.ids.get(name, ZERO_UUID),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=self.leaders.get((name, index), NODE),
                    leader_epoch=self.epochs.get((name, index), 0),
                )
                for index in range(self.topics[name])
            ],
        )

    def init_producer_id(self, _: Any) -> InitProducerIdResponse:
        self._producer_ids += 1
        return InitProducerIdResponse(producer_id=self._producer_ids, producer_epoch=0)

    def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        response = ProduceResponse()
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                assert data.records is not None
                code, offset = self.refusal(topic.name, data.index), -1
                if not code:
                    log = self.logs[topic.name, data.index]
                    epoch = self.epochs.get((topic.name, data.index), 0)
                    code, offset = log.append(bytes(data.records), epoch)
                answers.append(
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
                )
            response.responses.append(
                TopicProduceResponse(name=topic.name, partition_responses=answers)
            )
        self._appended.set()
        return response if request.acks else None

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        response = self._fetched(request)
        has_data = any(p.records or p.error_code for t in response.responses for p in t.partitions)
        if not has_data:
            self._appended.clear()
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._appended.wait()
            except TimeoutError:
                pass
            response = self._fetched(request)
        return response

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        response = FetchResponse()
        room = request.max_bytes
        for topic in request.topics:
            name = topic.topic or self._named(topic.topic_id)
            answers = []
            for asked in topic.partitions:
                log = self.logs[name, asked.partition] if name else PartitionLog()
                answer = PartitionData(
                    partition_index=asked.partition, high_watermark=log.end, records=b""
                )
                code = ErrorCode.UNKNOWN_TOPIC_ID
                if name:
                    code = self.refusal(name, asked.partition, asked.current_leader_epoch)
                if not code and asked.fetch_offset in log.corrupt:
                    code = ErrorCode.CORRUPT_MESSAGE
                if code:
                    answer.error_code = code
                elif log.start <= asked.fetch_offset <= log.end:
                    if room > 0:
                        most = min(room, asked.partition_max_bytes)
                        answer.records = log.read(asked.fetch_offset, most)
                        room -= len(answer.records)
                else:
                    answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                answers.append(answer)
            response.responses.append(
                FetchableTopicResponse(topic=name, topic_id=topic.topic_id, partitions=answers)
            )
        return response

    def _named(self, topic_id: bytes) -> str:
        """The topic with that id, "" if there is none."""
        return next((name for name, known in self.ids.items() if known == topic_id), "")

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self._listed(topic.name, asked) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _listed(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        log = self.logs[topic, asked.partition_index]
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=self.refusal(topic, asked.partition_index, asked.current_leader_epoch),
            timestamp=-1,
            offset=log.end if asked.timestamp == -1 else log.start,
            leader_epoch=self.epochs.get((topic, asked.partition_index), 0),
        )

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=NODE, host="127.0.0.1", port=self.port)
                for key in request.coordinator_keys
            ]
        )

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        response = OffsetCommitResponse()
        for topic in request.topics:
            name = topic.name or self._named(topic.topic_id)
            for asked in topic.partitions if name else ():
                key = (request.group_id, name, asked.partition_index)
                self.committed[key] = asked.committed_offset
                self.noted[key] = asked.committed_metadata or ""
            code = ErrorCode.NONE if name else ErrorCode.UNKNOWN_TOPIC_ID
            response.topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=asked.partition_index, error_code=code
                        )
                        for asked in topic.partitions
                    ],
                )
            )
        return response

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        (group,) = request.groups
        asked = [
            (topic.name or self._named(topic.topic_id), topic.topic_id, index)
            for topic in group.topics or []
            for index in topic.partition_indexes
        ]
        if group.topics is None:
            asked = [
                (topic, ZERO_UUID, index)
                for name, topic, index in self.committed
                if name == group.group_id
            ]
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=topic,
                            topic_id=topic_id,
                            partitions=[self._fetched_offset(group.group_id, topic, index)],
                        )
                        for topic, topic_id, index in asked
                    ],
                )
            ]
        )

    def _fetched_offset(self, group: str, topic: str, index: int) -> OffsetFetchResponsePartitions:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=self.committed.get((group, topic, index), -1),
            metadata=self.noted.get((group, topic, index), ""),
            error_code=ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_ID,
        )

    # The connections.

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                answer = await self._answer(await reader.readexactly(length))
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, Hangup, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, frame: bytes) -> bytes | None:
        header, pos = decode_request_header(memoryview(frame))
        api = ApiKey(header.api_key)
        known = API[api]
        message: Any = decode(known.request, header.api_version, memoryview(frame), pos)
        self.requests.append((api, header.api_version, message))
        response = self.handlers[api](message)
        if isinstance(response, Awaitable):
            response = await response
        if response is None or isinstance(response, bytes):
            return response
        parts = encode_response(api, header.api_version, header.correlation_id, response)
        data = b"".join(bytes(part) for part in parts)
        return self.mangle[api](data) if api in self.mangle else data
