"""What sockets carry: batches that were made beforehand are sent, and what comes is dropped."""

import socket
from collections.abc import Iterator
from itertools import islice
from typing import Any, Self

from perf.sdk_client import BATCH_BYTES, BUFFER_BYTES, Load
from qbus.clients.producer.lists import RECORD_OVERHEAD
from qbus.records import build_values_batch, iter_batches
from qbus.wire import ApiKey, decode_response, encode_request
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_VERSION = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 11}
_IN_FLIGHT = 5
_ANSWER_BYTES = 4 * 1024 * 1024
_WAIT_MS = 30_000


def send(load: Load) -> None:
    """Produce requests, five in flight, with always the same records."""
    whole = BATCH_BYTES // (load.size + RECORD_OVERHEAD)
    values = list(islice(load.values(), whole))
    times, rest = divmod(load.count, len(values))
    requests = [_produce(load.topic, values)] * times
    if rest:
        requests.append(_produce(load.topic, values[:rest]))
    with _Broker(load.bootstrap) as broker, load.measured():
        for number, request in enumerate(requests):
            if number >= _IN_FLIGHT:
                _check(broker.receive(ApiKey.PRODUCE))
            broker.send(ApiKey.PRODUCE, request)
        for _ in requests[-_IN_FLIGHT:]:
            _check(broker.receive(ApiKey.PRODUCE))


def receive(load: Load) -> None:
    """Fetches, one after the other; of what comes only the batches' headers are looked at."""
    offset = 0
    with _Broker(load.bootstrap) as broker, load.measured():
        while offset < load.count:
            broker.send(ApiKey.FETCH, _fetch(load.topic, offset))
            for data in _partitions(broker.receive(ApiKey.FETCH)):
                for header, _ in iter_batches(data.records or b"", partial_tail=True):
                    offset = header.last_offset + 1


class _Broker:
    """A blocking connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._sock = socket.create_connection((host, int(port)))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def send(self, api: ApiKey, message: Any) -> None:
        for part in encode_request(api, _VERSION[api], 0, "ceiling", message):
            self._sock.sendall(part)

    def receive(self, api: ApiKey) -> Any:
        size = int.from_bytes(self._fill(4), "big")
        return decode_response(api, _VERSION[api], self._fill(size))[1]

    def _fill(self, size: int) -> memoryview:
        filled = 0
        while filled < size:
            count = self._sock.recv_into(self._buffer[filled:size])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
        return self._buffer[:size]


def _produce(topic: str, values: list[bytes]) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=build_values_batch(values, 0))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=_WAIT_MS, topic_data=topics)


def _check(response: Any) -> None:
    if code := response.responses[0].partition_responses[0].error_code:
        raise RuntimeError(f"the broker answered with error {code}")


def _fetch(topic: str, offset: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_ANSWER_BYTES)
    return FetchRequest(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=_ANSWER_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def _partitions(response: Any) -> Iterator[Any]:
    return (data for topic in response.responses for data in topic.partitions)
