"""A whole broker that coordinates transactions, asked over the wire format at any version."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from qbus.broker.authorization import AccessControl, AclAuthorizer
from qbus.broker.broker import Broker
from qbus.broker.controller import NewTopic
from qbus.broker.kafka.dispatch import Dispatcher
from qbus.broker.net.peer import Peer
from qbus.broker.startup import running_broker
from qbus.broker.transaction import State
from qbus.clock import SystemClock
from qbus.config import BrokerConfig, ListenerInfo
from qbus.errors import ErrorCode
from qbus.security.acls import AclIndex
from qbus.wire import API, ApiKey, Struct, decode_response, encode_request
from qbus.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from qbus.wire.messages.end_txn import EndTxnRequest
from qbus.wire.messages.init_producer_id import InitProducerIdRequest
from tests.support.waiting import eventually

TX = "payments"
HERE = ListenerInfo.plaintext("127.0.0.1", 9)


def versions(name: str) -> range:
    """All versions of an API."""
    api = API[ApiKey[name]]
    return range(api.min_version, api.max_version + 1)


class TransactionBroker:
    """A broker with a topic ``t`` of three partitions, and producers that write to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._dispatcher = Dispatcher(broker)

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator["TransactionBroker"]:
        """One that is ready."""
        settings = {"log.dirs": [str(directory)], "transaction.state.log.num.partitions": 1}
        async with running_broker(BrokerConfig(settings), SystemClock(), [HERE]) as broker:
            await broker.controller.create_topics([NewTopic("t", 3)])
            made = cls(broker)
            await broker.transactions.coordinator(TX)
            await eventually(lambda: bool(list(broker.transactions.log.shards())))
            yield made

    def restrict(self) -> AclIndex:
        """Have access rules, of which there are none yet."""
        rules = AclIndex()
        self._dispatcher = Dispatcher(self.broker, AccessControl(AclAuthorizer(rules)))
        return rules

    async def ask(self, key: ApiKey, version: int, request: Struct) -> Any:
        """The response as its client decodes it."""
        frame = b"".join(map(bytes, encode_request(key, version, 7, "test", request)))[4:]
        reply = self._dispatcher(Peer(1, "127.0.0.1", HERE), memoryview(bytearray(frame)))
        assert reply is not None
        if not isinstance(reply, list):
            answered = asyncio.Event()
            reply.on_done(answered.set)
            await asyncio.wait_for(answered.wait(), 10)
            reply = reply.result()
        sent = b"".join(
            bytes(one) for one in reply if isinstance(one, bytes | bytearray | memoryview)
        )
        return decode_response(key, version, memoryview(sent)[4:])[1]

    async def init(self, version: int = 5, **changes: Any) -> tuple[int, int]:
        """A producer begins."""
        fields: dict[str, Any] = {
            "transactional_id": TX,
            "transaction_timeout_ms": 60_000,
        } | changes
        request = InitProducerIdRequest(**fields)
        response = await self.ask(ApiKey.INIT_PRODUCER_ID, version, request)
        assert response.error_code == 0
        return response.producer_id, response.producer_epoch

    async def add(
        self, producer: tuple[int, int], *indexes: int, version: int = 3, topic: str = "t"
    ) -> dict[int, int]:
        """Make partitions a part of the transaction; the codes by index."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TX,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        response = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        return {
            one.partition_index: one.partition_error_code
            for result in response.results_by_topic_v3_and_below
            for one in result.results_by_partition
        }

    async def end(
        self, producer: tuple[int, int], *, commit: bool = True, version: int = 5
    ) -> tuple[int, int, int]:
        """End the transaction: error code, producer id and epoch."""
        request = EndTxnRequest(
            transactional_id=TX,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        response = await self.ask(ApiKey.END_TXN, version, request)
        return response.error_code, response.producer_id, response.producer_epoch

    @property
    def state(self) -> State:
        """How the transaction stands."""
        return self.broker.transactions.log.machine(TX).transactions[TX].state


FENCED = ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
