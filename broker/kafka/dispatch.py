"""From a frame to a handler, and from its response to bytes.

One module in ``handlers`` for each API, imported when the first such request comes, or soon after
the start (:mod:`..preload`): so a broker starts the faster.
"""

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qbus.errors import ApiError, ErrorCode, WireError
from qbus.service.descriptors import OUT_OF_DESCRIPTORS, shortages
from qbus.service.event_loop.slow import SlowHandlers
from qbus.service.event_loop.ticks import Ticks
from qbus.wire import (
    API,
    Api,
    ApiKey,
    RequestHeader,
    Struct,
    decode,
    decode_request_header,
    encode_response,
)
from qbus.wire.stepped import decode_in_steps, encode_response_in_steps

from ..authorization import AccessControl
from ..net.connection import CloseConnection, Reply
from ..net.memory_budget import MemoryBudget
from ..net.peer import Peer
from ..net.transport import Part
from ..partition.purgatory import Delayed
from ..quotas import UNLIMITED, ConnectionQuotas
from ..quotas.stopwatch import measured
from ..turns import in_steps
from .context import RequestContext
from .lean import LEAN, Answer
from .lean_answers import ExclusiveAnswer, RepeatableAnswer
from .pieces import answer_in_pieces, cut_of, is_long, outcome
from .throttling import Charge, admit, settle_lean

if TYPE_CHECKING:
    from ..broker import Broker

_log = logging.getLogger(__name__)

_KEY_SIZE: Final = 2
_MOST_READ_AT_ONCE: Final = 32 * 1024
"""Bytes of a frame; a longer one may have to be read in steps."""
_LONG_REQUESTS: Final = 8
"""So many long requests are under way at a time: a request may cost sixty times its size.

As many more of the APIs below.
"""
_WAITING: Final = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.DELETE_GROUPS,
        ApiKey.DELETE_RECORDS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_DELETE,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""APIs whose handlers wait for followers, the Fetch requests of which may be long, too."""

_LONGEST_CLIENT_ID: Final = 100

Handler = Callable[["Broker", RequestContext, Any], Any]
Later = asyncio.Future[Any] | Delayed[Any]


class PendingReply:
    """The reply to a request whose handler has not finished."""

    __slots__ = ("_future", "_to_parts", "exclusive")

    def __init__(
        self,
        future: Later,
        to_parts: Callable[[Later], list[Part]],
        *,
        exclusive: bool,
    ) -> None:
        self._future = future
        self._to_parts = to_parts
        self.exclusive = exclusive

    def done(self) -> bool:
        """Whether the handler has finished."""
        return self._future.done()

    def result(self) -> list[Part]:
        """The encoded response.

        Raises:
            CloseConnection: the handler failed, and its API has no way to say so.
        """
        return self._to_parts(self._future)

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call back from the event loop when the handler has finished."""
        self._future.add_done_callback(lambda _: callback())

    def cancel(self) -> None:
        """Stop the handler: the client is gone."""
        self._future.cancel()


class _Steps:
    """The steps of a handler that is a coroutine: each is timed, and counted against quotas."""

    __slots__ = ("_began", "_charge", "_client_id", "_key", "_loop_time", "_peer")

    def __init__(
        self, loop_time: "_LoopTime", header: RequestHeader, peer: Peer, charge: Charge | None
    ) -> None:
        self._loop_time = loop_time
        self._key = header.api_key
        self._client_id = header.client_id
        self._peer = peer
        self._charge = charge
        self._began = 0.0

    def resume(self) -> None:
        """See :class:`.quotas.stopwatch.Stopwatch`."""
        self._began = perf_counter()
        ticks = self._loop_time.ticks
        ticks.begin_request(self._peer, self._began)
        ticks.current_key = self._key
        if self._charge is not None:
            self._charge.resume()

    def pause(self) -> None:
        """See :class:`.quotas.stopwatch.Stopwatch`."""
        if self._charge is not None:
            self._charge.pause()
        now = perf_counter()
        if self._loop_time.ticks.end_request(self._began, now):
            self._loop_time.note(self._key, self._peer, self._client_id, self._began, now)


class _LoopTime:
    """What requests hold the event loop for too long: by API, with their clients."""

    __slots__ = ("slow", "ticks")

    def __init__(self, slow: SlowHandlers) -> None:
        self.slow = slow
        self.ticks: Ticks = slow.ticks

    def note(self, key: int, peer: Peer, client_id: str | None, began: float, now: float) -> None:
        """Count and log a request that took so long."""
        client = (client_id or "")[:_LONGEST_CLIENT_ID]
        self.slow.note(
            name_of_api(key), began, now, f"{peer.host} (client {client!r}, {peer.principal})"
        )

    def note_frame(self, peer: Peer, frame: memoryview, began: float, now: float) -> None:
        """As :meth:`note`, for a request as it came."""
        try:
            header, _ = decode_request_header(frame)
        except WireError:
            self.slow.note("a malformed request", began, now, f"{peer.host} ({peer.principal})")
            return
        self.note(header.api_key, peer, header.client_id, began, now)


def name_of_api(key: int) -> str:
    """The name of an API, or its number if there is none."""
    try:
        return ApiKey(key).name
    except ValueError:
        return f"API {key}"


class _Written(NamedTuple):
    """A response with its bytes."""

    response: Any
    parts: list[Part]


def _read(api: Api, version: int, frame: memoryview, position: int) -> Any:
    """The request in a frame; None: it is long, and to be read and answered in steps.

    librdkafka 2.16 sends some bytes too many with Metadata for all topics; Kafka lets it.
    """
    if len(frame) <= _MOST_READ_AT_ONCE:
        request: Any = decode(api.request, version, frame, position, exact=False)
    else:
        reading = decode_in_steps(api.request, version, frame, position)
        try:
            next(reading)
        except StopIteration as end:
            request = end.value
        else:
            return None
    cut = cut_of(api.key, version)
    return None if cut is not None and is_long(cut, request) else request


class Dispatcher:
    """Answers the requests of all connections."""

    def __init__(
        self,
        broker: "Broker",
        access: AccessControl | None = None,
        slow: SlowHandlers | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        """Without ``access`` every client may do everything.

        ``slow`` is given the requests that hold the event loop for too long. ``budget``: of the
        memory that requests hold while they are long under way.
        """
        self._loop_time = _LoopTime(slow if slow is not None else SlowHandlers(Ticks()))
        self._ticks = self._loop_time.ticks
        self._broker = broker
        self._budget = budget
        self._long_requests = asyncio.Semaphore(_LONG_REQUESTS)
        self._long_waiting = asyncio.Semaphore(_LONG_REQUESTS)
        self._access = access if access is not None and access.is_restricted else None
        self._handlers: dict[int, tuple[Api, Handler]] = {}
        self._lean = LEAN
        self._requests = broker.metrics.requests
        self._quotas = broker.quotas

    def __call__(self, peer: Peer, frame: memoryview) -> list[Part] | Reply | None:
        """Answer one request.

        The records in ``frame`` stay where they are: a handler is done with them when it returns.

        Raises:
            WireError: the frame is no request of the protocol.
            CloseConnection: there is no answer that the client would understand.
        """
        started = perf_counter()
        ticks = self._ticks
        ticks.begin_request(peer, started)
        try:
            return self._dispatch(peer, frame, started)
        finally:
            now = self._requests.observed_at  # a read of the clock less for each request
            if now <= started:  # it is answered later
                now = perf_counter()
            if ticks.end_request(started, now):
                self._loop_time.note_frame(peer, frame, started, now)

    def _dispatch(self, peer: Peer, frame: memoryview, started: float) -> list[Part] | Reply | None:
        """Answer a request that came now."""
        if not peer.is_authenticated or peer.expires_at is not None:
            answer: list[Part] | Reply | None = self._broker.authentication.gate(peer, frame)
            if answer is not None:
                return answer
        if len(frame) < _KEY_SIZE:
            raise WireError("a request ends within its header")
        key = frame[0] << 8 | frame[1]
        self._ticks.current_key = key
        of = None
        if self._quotas.is_active and peer.is_authenticated:
            of = admit(self._quotas, peer, frame, key, started)
        lean = self._lean.get(key)
        if lean is not None:
            answer = self._answer_lean(lean, peer, frame, key, started, of)
            if answer is not None:
                return answer
        charge = None if of is None else Charge(of, peer, started)
        return self._answer(peer, frame, started, charge)

    def _answer(
        self, peer: Peer, frame: memoryview, started: float, charge: Charge | None
    ) -> list[Part] | Reply | None:
        """The answer to any request."""
        header, position = decode_request_header(frame)
        api, handler = self._handlers.get(header.api_key) or self._loaded(header.api_key)
        if not api.min_version <= header.api_version <= api.max_version:
            return self._unsupported(api, header)
        context = RequestContext(
            header.api_key, header.api_version, header.client_id, peer, self._access, charge
        )
        request = _read(api, header.api_version, frame, position)
        response: Any
        try:
            if request is None:
                response = self._answer_long(api, handler, context, bytearray(frame), position)
            else:
                response = handler(self._broker, context, request)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler does, the broker goes on
            response = self._failure(api, error)
        if isinstance(response, Struct):
            return self._finish(header, response, started, charge)
        if response is None:
            self._finish_silent(header, started, charge)
            return None
        return self._later(api, header, response, started, charge, peer)

    async def _answer_long(
        self, api: Api, handler: Handler, context: RequestContext, frame: bytearray, position: int
    ) -> Any:
        """The response to a request that is read, and answered, some elements at a time.

        ``frame``: a copy that may be written to, as logs do with the batches that they append.
        """
        context.keeps_frame = True
        budget, size = self._budget, len(frame)
        if budget is not None:
            budget.force(size)
        try:
            async with self._long_waiting if api.key in _WAITING else self._long_requests:
                reading = decode_in_steps(
                    api.request, context.api_version, memoryview(frame), position
                )
                request = await in_steps(reading)
                if cut_of(context.api_key, context.api_version) is not None:
                    return await answer_in_pieces(handler, self._broker, context, request)
            return await outcome(handler(self._broker, context, request))
        except WireError as error:
            raise CloseConnection(f"malformed request: {error}") from error
        finally:
            if budget is not None:
                budget.release(size)

    def _answer_lean(
        self,
        lean: Answer,
        peer: Peer,
        frame: memoryview,
        key: int,
        started: float,
        of: ConnectionQuotas | None,
    ) -> list[Part] | Reply | None:
        """The answer to a request that the lean way is for; None: it is not."""
        try:
            limit = UNLIMITED if of is None else of.fetch_limit(started)
            answer = lean(self._broker, frame, peer, self._access, limit)
        except Exception as error:  # noqa: BLE001 - as of any handler
            header, _ = decode_request_header(frame)
            failed = self._failure(API[ApiKey(key)], error)
            charge = None if of is None else Charge(of, peer, started)
            return self._finish(header, failed, started, charge)
        if answer is None:
            return None
        if not isinstance(answer, list):
            charge = None if of is None else Charge(of, peer, started)
            return self._later_lean(key, answer, started, charge)
        now = self._requests.observe(key, started)
        if of is None:
            return answer
        return settle_lean(of, peer, key, frame, answer, started, now)

    def _later_lean(
        self, key: int, answer: Delayed[list[Part]], started: float, charge: Charge | None
    ) -> Reply:
        if charge is not None:
            charge.pause()

        def to_parts(future: Later) -> list[Part]:
            if future.cancelled():
                raise CloseConnection("the broker is shutting down")
            error = future.exception()
            if error is not None:
                _log.error("a plain request failed", exc_info=error)
                self._requests.failures += 1
                raise CloseConnection(f"a plain request failed: {error}")
            parts: list[Part] = future.result()
            if isinstance(answer, RepeatableAnswer) and answer.general is not None:
                if charge is not None:
                    charge.resume()
                return self._finish(*answer.general, started, charge)
            now = self._requests.observe(key, started)
            return parts if charge is None else charge.settle_delayed(key, parts, now)

        return PendingReply(answer, to_parts, exclusive=isinstance(answer, ExclusiveAnswer))

    def _later(
        self,
        api: Api,
        header: RequestHeader,
        pending: Any,
        started: float,
        charge: Charge | None,
        peer: Peer,
    ) -> Reply:
        """``pending``: a delayed answer, or a coroutine; one that is compiled is no Coroutine."""
        is_delayed = isinstance(pending, Delayed)
        if not is_delayed:
            pending = self._write(header, pending)
        steps = _Steps(self._loop_time, header, peer, charge)
        if charge is not None:
            charge.pause()
        if not is_delayed:
            pending = measured(steps, pending)
        later: Later = pending if is_delayed else asyncio.ensure_future(pending)

        def to_parts(future: Later) -> list[Part]:
            steps.resume()
            try:
                response = self._outcome(api, future)
                if response is None:  # the client wants no answer
                    self._finish_silent(header, started, charge)
                    return []
                if isinstance(response, _Written):
                    return self._finish(header, response.response, started, charge, response.parts)
                waited_s = future.waited_s if isinstance(future, Delayed) else 0.0
                return self._finish(header, response, started + waited_s, charge)
            finally:
                steps.pause()

        return PendingReply(later, to_parts, exclusive=not is_delayed)

    async def _write(self, header: RequestHeader, pending: Any) -> Any:
        """The response that a handler gives in the end, written in steps if it is large."""
        response = await pending
        if not isinstance(response, Struct):
            return response
        key, version, correlation_id, _ = header
        try:
            parts = await in_steps(encode_response_in_steps(key, version, correlation_id, response))
        except WireError as error:
            raise self._unwritten(error) from error
        return _Written(response, parts)

    def _finish_silent(self, header: RequestHeader, started: float, charge: Charge | None) -> None:
        self._requests.observe(header.api_key, started)
        if charge is not None:
            charge.settle_silent()

    def _finish(
        self,
        header: RequestHeader,
        response: Any,
        started: float,
        charge: Charge | None = None,
        parts: list[Part] | None = None,
    ) -> list[Part]:
        """``parts``: of the response, if it is written already."""
        key, version, correlation_id, _ = header
        try:
            if parts is None:
                parts = encode_response(key, version, correlation_id, response)
            if charge is not None:
                parts = charge.settle(header, response, parts)
        except WireError as error:
            raise self._unwritten(error) from error
        self._requests.observe(key, started)
        return parts

    def _unwritten(self, error: WireError) -> CloseConnection:
        """Note a defect of ours: there is no response that could say so."""
        _log.error("a response cannot be written", exc_info=error)
        self._requests.failures += 1
        return CloseConnection(f"no response can be written: {error}")

    def load(self, key: int) -> tuple[Api, Handler]:
        """The API and its handler, imported when it is not.

        Raises CloseConnection for an unknown API, OSError when it cannot be imported.
        """
        try:
            api = API[ApiKey(key)]
        except (KeyError, ValueError):
            raise CloseConnection(f"unknown API {key}") from None
        module = import_module(f".handlers.{api.key.name.lower()}", __package__)
        _ = api.request, api.response  # import the module of the messages
        entry = self._handlers[key] = (api, module.handle)
        return entry

    def _loaded(self, key: int) -> tuple[Api, Handler]:
        try:
            return self.load(key)
        except OSError as error:  # what would answer cannot be imported
            shortages.report(f"import what answers {ApiKey(key).name}", error)
            raise CloseConnection(f"no handler can be imported: {error}") from error

    def _unsupported(self, api: Api, header: RequestHeader) -> list[Part]:
        """ApiVersions says which versions there are; of any other API the form is unknown."""
        if header.api_key != ApiKey.API_VERSIONS:
            raise CloseConnection(f"{api.key.name} has no version {header.api_version} here")
        from .handlers.api_versions import unsupported_version  # noqa: PLC0415 - as in load

        return encode_response(
            header.api_key, 0, header.correlation_id, unsupported_version(self._broker)
        )

    def _outcome(self, api: Api, future: Later) -> Any:
        if future.cancelled():
            raise CloseConnection("the broker is shutting down")
        error = future.exception()
        if isinstance(error, CloseConnection):
            raise error
        return future.result() if error is None else self._failure(api, error)

    def _failure(self, api: Api, error: BaseException) -> Any:
        """An answer that carries the error as a whole, if the API has room for one."""
        if isinstance(error, ApiError):
            code, message = error.code, error.message
        elif isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:
            shortages.report(f"answer {api.key.name}", error)
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, f"the broker has {error.strerror}"
        else:
            _log.error("%s failed", api.key.name, exc_info=error)
            self._requests.failures += 1
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why"
        response = api.response()
        if not hasattr(response, "error_code"):
            raise CloseConnection(f"{api.key.name} failed: {error}")
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = message
        return response
