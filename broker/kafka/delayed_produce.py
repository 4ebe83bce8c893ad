"""An ``acks=all`` produce that waits until all it appended is acknowledged."""

import asyncio

from qbus.errors import ErrorCode
from qbus.wire.messages.produce import PartitionProduceResponse, ProduceResponse

from ..partition.purgatory import Delayed


class DelayedProduce(Delayed[ProduceResponse]):
    """The response to a produce request of which ``waiting`` partitions are not acknowledged yet.

    Those partitions' answers say REQUEST_TIMED_OUT until they are: so when the time is up, the
    response is right as it stands. A client takes that code as "unknown": the records are written,
    and may still be acknowledged.
    """

    __slots__ = ("_response", "_waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, response: ProduceResponse, waiting: int
    ) -> None:
        super().__init__(loop)
        self._response = response
        self._waiting = waiting

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        """The partition whose answer is ``token`` is acknowledged (NONE), or never will be."""
        assert isinstance(token, PartitionProduceResponse)
        token.error_code = code
        self._waiting -= 1
        if not self._waiting:
            self.answer(self._response)

    def expire(self) -> None:
        """Answer with what is acknowledged by now."""
        self.answer(self._response)
