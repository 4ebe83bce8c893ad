"""Our own SDK, its blocking face."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import qbus
from qbus.clients.errors import RequestTimedOut, TransactionAborted
from qbus.errors import QbusError

from ..history import Send
from .base import GIVES_UP_S, Client, Failed, Records


class QbusClient(Client):
    """It commits the positions that its consumer knows."""

    _producer: qbus.Producer | None = None
    _consumer: qbus.Consumer | None = None

    def open(self) -> None:
        self.close()
        with _failing():
            self._producer = qbus.Producer(
                self._bootstrap,
                transactional_id=self._name,
                transaction_timeout_ms=self._timeout_ms,
                delivery_timeout_ms=self._timeout_ms,
                request_timeout_ms=5_000,
            )
            self._consumer = qbus.Consumer(
                self._bootstrap,
                group=self._name,
                auto_commit=False,
                isolation_level="read_committed",
                offset_reset="earliest",
                metadata_max_age_ms=2_000,
                request_timeout_ms=10_000,
            )
            _repeated(self._producer.init_transactions)
            self._consumer.assign(self._places)

    def rewind(self) -> None:
        with _failing():
            self._consumer_now().seek_to_committed()

    def begin(self) -> None:
        with _failing():
            self._producer_now().begin_transaction()

    def send(self, send: Send) -> None:
        def told(delivery: qbus.Delivery) -> None:
            if delivery.exception() is None:
                send.offset = delivery.offset

        with _failing():
            self._producer_now().send(
                self._topic, send.value.encode(), partition=send.partition, on_delivery=told
            )

    def poll(self, seconds: float) -> dict[int, Records]:
        found: defaultdict[int, Records] = defaultdict(list)
        with _failing():
            for batch in self._consumer_now().poll(seconds, 20):
                found[batch.partition] += [
                    (record.offset, bytes(record.value or b"").decode()) for record in batch
                ]
        return dict(found)

    def add_positions(self) -> None:
        with _failing():
            self._producer_now().send_offsets(self._consumer_now())

    def commit(self) -> None:
        try:
            with _failing():
                _repeated(self._producer_now().commit_transaction)
        except Failed as error:
            raise Failed(
                str(error), is_aborted=isinstance(error.__cause__, TransactionAborted)
            ) from error

    def abort(self) -> None:
        with _failing():
            _repeated(self._producer_now().abort_transaction)

    def close(self) -> None:
        if self._producer is not None:
            with suppress(QbusError):
                self._producer.close(0)
            self._producer = None
        if self._consumer is not None:
            with suppress(QbusError):
                self._consumer.close()
            self._consumer = None

    def _producer_now(self) -> qbus.Producer:
        assert self._producer is not None
        return self._producer

    def _consumer_now(self) -> qbus.Consumer:
        assert self._consumer is not None
        return self._consumer


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except QbusError as error:
        raise Failed(repr(error)) from error


def _repeated(operation: Callable[[], None]) -> None:
    """Ask again while nobody tells what became of it."""
    deadline = time.monotonic() + GIVES_UP_S
    while True:
        try:
            operation()
        except RequestTimedOut:
            if time.monotonic() > deadline:
                raise
        else:
            return
