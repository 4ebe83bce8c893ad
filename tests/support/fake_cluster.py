"""Fake brokers that share their logs, and whose partitions move from one to another when told."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages import fetch as fetching
from qbus.wire.messages import produce as producing
from qbus.wire.messages.metadata import MetadataResponseBroker
from qbus.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from .fake_broker import FakeBroker, Handler

_NOBODY = -1
_FIRST_WITH_HINTS = {ApiKey.PRODUCE: 10, ApiKey.FETCH: 16}


class ClusterNode(FakeBroker):
    """A broker of the cluster: it serves its partitions, and names the leaders of the others."""

    def __init__(self, cluster: "FakeCluster", node_id: int) -> None:
        super().__init__(cluster.topics, node_id=node_id)
        self._cluster = cluster
        self.ids = cluster.ids
        self.logs = cluster.logs
        self.committed = cluster.committed
        self.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = self.offset_for_leader_epoch
        for api in _FIRST_WITH_HINTS:
            self.handlers[api] = self._with_hints(self.handlers[api])

    def brokers(self) -> list[MetadataResponseBroker]:
        return [
            MetadataResponseBroker(node_id=node.node_id, host="127.0.0.1", port=node.port)
            for node in self._cluster.listed
        ]

    def refusal(self, topic: str, partition: int, leader_epoch: int = -1) -> ErrorCode:
        if self._cluster.leader_of(topic, partition) is not self:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= leader_epoch < self._cluster.epochs[topic, partition]:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_epoch > self._cluster.epochs[topic, partition]:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Answer where the log of a leader epoch ends (KIP-320)."""
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                log = self.logs[topic.topic, asked.partition]
                epoch, end = log.end_of_epoch(asked.leader_epoch)
                code = self.refusal(topic.topic, asked.partition, asked.current_leader_epoch)
                answers.append(
                    EpochEndOffset(
                        error_code=code,
                        partition=asked.partition,
                        leader_epoch=epoch,
                        end_offset=end,
                    )
                )
            response.topics.append(
                OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers)
            )
        return response

    def _with_hints(self, handler: Handler) -> Handler:
        async def answer(request: Any) -> Any:
            response = handler(request)
            if hasattr(response, "__await__"):
                response = await response
            api, version, _ = self.requests[-1]
            if response is not None and version >= _FIRST_WITH_HINTS.get(api, 999):
                self._give_hints(response)
            return response

        return answer

    def _give_hints(self, response: Any) -> None:
        """Add the leaders of partitions that this broker does not lead (KIP-951)."""
        if not self._cluster.gives_hints:
            return
        is_fetch = isinstance(response, fetching.FetchResponse)
        module: Any = fetching if is_fetch else producing
        for topic in response.responses:
            for part in topic.partitions if is_fetch else topic.partition_responses:
                index = part.partition_index if is_fetch else part.index
                name = topic.topic if is_fetch else topic.name
                leader = self._cluster.leader_of(name, index)
                if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and leader is not None:
                    part.current_leader = module.LeaderIdAndEpoch(
                        leader_id=leader.node_id,
                        leader_epoch=self._cluster.epochs[name, index],
                    )
                    response.node_endpoints.append(
                        module.NodeEndpoint(
                            node_id=leader.node_id, host="127.0.0.1", port=leader.port
                        )
                    )


class FakeCluster:
    """Brokers 1 to ``count``; the first leads everything and coordinates every group.

    ``gives_hints``: refusals say who leads instead. Metadata lags: it tells of a move only after
    :meth:`publish`.
    """

    def __init__(self, count: int = 2, topics: Mapping[str, int] | None = None) -> None:
        self.topics = dict(topics or {"t": 1})
        self.ids: dict[str, bytes] = {}
        self.logs = FakeBroker().logs
        self.committed: dict[tuple[str, str, int], int] = {}
        self.gives_hints = True
        partitions = [(name, i) for name, count in self.topics.items() for i in range(count)]
        self.epochs = dict.fromkeys(partitions, 0)
        self._leaders = dict.fromkeys(partitions, 1)
        self.nodes = {node_id: ClusterNode(self, node_id) for node_id in range(1, count + 1)}
        self.listed = list(self.nodes.values())
        self._running = AsyncExitStack()
        self.publish()

    async def __aenter__(self) -> Self:
        for node in self.nodes.values():
            await self._running.enter_async_context(node)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def leader_of(self, topic: str, partition: int) -> ClusterNode | None:
        """The broker that leads a partition, whatever the metadata says."""
        return self.nodes.get(self._leaders.get((topic, partition), _NOBODY))

    def move(self, topic: str, partition: int, to: int) -> None:
        """Let another broker lead a partition from now on; clients find out as they can."""
        self._leaders[topic, partition] = to
        self.epochs[topic, partition] += 1
        for node in self.nodes.values():
            node.wake()

    async def kill(self, node_id: int) -> None:
        """Stop a broker; what it leads has no leader, and no broker's metadata names it."""
        self.listed = [node for node in self.listed if node.node_id != node_id]
        for partition, leader in self._leaders.items():
            if leader == node_id:
                self._leaders[partition] = _NOBODY
        self.publish()
        await self.nodes[node_id].stop()

    def publish(self) -> None:
        """Let the metadata of every broker tell of all moves."""
        for node in self.nodes.values():
            node.leaders = dict(self._leaders)
            node.epochs = dict(self.epochs)
