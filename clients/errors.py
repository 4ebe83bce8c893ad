"""What goes wrong between a client and its cluster.

Most are :class:`~qbus.errors.ApiError`, so that ``error.retriable`` answers for a broker's refusal
and for a broken connection alike.
"""

from collections.abc import Mapping
from typing import Any

from qbus.errors import ApiError, ErrorCode, QbusError


class ConnectionFailed(ApiError):  # noqa: N818 - what happened
    """A broker cannot be reached, or the connection broke before it answered."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOut(ApiError):  # noqa: N818 - the protocol's name for it
    """No answer in time: whether the broker did what it was asked is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class ClientClosed(QbusError):  # noqa: N818 - what happened
    """The client was closed, before this was asked for or before it was done."""

    def __init__(self) -> None:
        super().__init__("the client is closed")


class NoOffset(ApiError):  # noqa: N818 - what is missing
    """Nothing says where to read a partition from, and ``offset_reset`` is "none"."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class LogTruncated(ApiError):  # noqa: N818 - what happened
    """A partition's log was cut before what was read of it (KIP-320).

    Records from ``diverging_offset`` to ``position`` were read, and are not in the log any more, or
    others are in their place: seek to where reading should go on.
    """

    def __init__(self, topic: str, partition: int, position: int, diverging_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} was read up to {position},"
            f" and its log was cut to {diverging_offset} since",
        )
        self.topic = topic
        self.partition = partition
        self.position = position
        self.diverging_offset = diverging_offset


class PartialFailure(ApiError):  # noqa: N818 - what happened
    """Several things were asked for at once, and not all were done.

    ``results`` holds what came of those that were, ``errors`` why the others were not; both by what
    was asked for. ``code`` is that of the first error; it is ``retriable`` if all of them are.
    """

    def __init__(self, errors: Mapping[Any, ApiError], results: Mapping[Any, Any]) -> None:
        first = next(iter(errors.values()))
        more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
        super().__init__(first.code, f"{first}{more}")
        self.errors = errors
        self.results = results

    @property
    def retriable(self) -> bool:
        """Whether asking again for what was not done may succeed."""
        return all(error.retriable for error in self.errors.values())


def check(error_code: int, message: str | None = None, *, of: str | None = None) -> None:
    """Raise the :class:`~qbus.errors.ApiError` that a response's error code stands for, if any.

    ``of`` is what the code is about, for the message when the broker sent none.
    """
    if error_code != ErrorCode.NONE:
        raise api_error(error_code, message, of=of)


def api_error(error_code: int, message: str | None = None, *, of: str | None = None) -> ApiError:
    """The exception for an error code that a broker sent.

    Codes of a later protocol than ours become UNKNOWN_SERVER_ERROR.
    """
    try:
        code = ErrorCode(error_code)
    except ValueError:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error code {error_code}")
    if not message and of is not None:
        message = f"{of}: {code.name}"
    return ApiError(code, message)


class BufferFull(QbusError):  # noqa: N818 - what happened
    """There is no room for another record: delivered ones make room."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} bytes wait to be delivered already")

    @property
    def retriable(self) -> bool:
        """Always: room comes as soon as something is delivered."""
        return True


class Spooled(QbusError):  # noqa: N818 - what happened
    """The record was not delivered in time, and is kept on disk to be delivered later."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"not delivered, kept in {directory}")
        self.directory = directory
