"""Answers of the lean way that come later."""

import asyncio
from typing import TYPE_CHECKING, Any

from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey, RequestHeader, Struct, decode, decode_request_header
from qbus.wire.lean import produced

from ..authorization import AccessControl
from ..log import AppendInfo
from ..net.peer import Peer
from ..net.transport import Part
from ..partition.purgatory import Delayed
from .context import RequestContext

if TYPE_CHECKING:
    from ..broker import Broker

Parts = list[Part]


class ExclusiveAnswer(Delayed[Parts]):
    """An answer before which the connection's next request is not begun."""


def produce_answer(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    index: int,
    code: ErrorCode,
    info: AppendInfo,
) -> Parts:
    """The answer to a plain Produce request whose one batch was appended."""
    return [
        produced(
            version,
            correlation_id,
            topic,
            index,
            code,
            info.first_offset,
            info.log_append_time,
            info.log_start_offset,
        )
    ]


class DelayedAnswer(Delayed[Parts]):
    """The answer to a plain Produce request whose batch is not acknowledged yet."""

    __slots__ = ("_correlation_id", "_index", "_info", "_topic", "_version")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        version: int,
        correlation_id: int,
        topic: str | bytes,
        index: int,
        info: AppendInfo,
    ) -> None:
        super().__init__(loop)
        self._version = version
        self._correlation_id = correlation_id
        self._topic = topic
        self._index = index
        self._info = info

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002 - there is one
        """The batch is acknowledged (NONE), or never will be."""
        self.answer(
            produce_answer(
                self._version, self._correlation_id, self._topic, self._index, code, self._info
            )
        )

    def expire(self) -> None:
        """Answer that the outcome is unknown: the batch is written."""
        self.acknowledged(None, ErrorCode.REQUEST_TIMED_OUT)


class RepeatableAnswer(ExclusiveAnswer):
    """An answer for which the request may have to go the general way, after all.

    ``frame`` is the request's own copy: it outlives the connection's buffer. ``general``: what the
    general way answers, where it does: it is not of the form that the lean way's answers have.
    """

    __slots__ = ("_access", "_frame", "_is_told", "_peer", "_repetition", "broker", "general")

    def __init__(
        self, broker: "Broker", frame: memoryview, peer: Peer, access: AccessControl | None
    ) -> None:
        super().__init__(broker.replicas.purgatory.loop)
        self.broker = broker
        self._frame = frame
        self._peer = peer
        self._access = access
        self._is_told = False
        self.general: tuple[RequestHeader, Any] | None = None
        self._repetition: asyncio.Future[Any] | None = None

    def takes(self) -> bool:
        """Whether the coordinator tells it for the first time: what comes later is ignored.

        A shard that cannot be acknowledged gives up whoever waits at each of its ticks, and tells
        the outcome all the same once it is acknowledged.
        """
        takes, self._is_told = not self._is_told, True
        return takes

    def repeat(self) -> None:
        """Have the general way answer: nothing was done yet."""
        work = _answer_generally(self.broker, self._frame, self._peer, self._access)
        self._repetition = asyncio.ensure_future(work)
        self._repetition.add_done_callback(self._repeated)

    def _repeated(self, done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            self.cancel()
            return
        error = done.exception()
        if error is None:
            self.general = done.result()
            self.answer([])
        else:
            self.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def cancel(self) -> bool:
        """Nobody waits for the answer any more."""
        if self._repetition is not None:
            self._repetition.cancel()
        return super().cancel()


async def _answer_generally(
    broker: "Broker", frame: memoryview, peer: Peer, access: AccessControl | None
) -> tuple[RequestHeader, Any]:
    from .handlers import end_txn, produce  # noqa: PLC0415 - handlers are loaded when asked

    header, position = decode_request_header(frame)
    key, version, _, client_id = header
    handle: Any = end_txn.handle if key == ApiKey.END_TXN else produce.handle
    request = decode(API[ApiKey(key)].request, version, frame, position, exact=False)
    response: Any = handle(broker, RequestContext(key, version, client_id, peer, access), request)
    if not isinstance(response, Struct):
        response = await response
    return header, response
