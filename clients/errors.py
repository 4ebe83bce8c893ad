"""Errors between a client and its cluster.

Most are :class:`~qbus.errors.ApiError`, so that ``error.retriable`` answers both for a broker's
refusal and for a broken connection.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from qbus.errors import ApiError, CorruptBatch, ErrorCode, QbusError


class ConnectionFailed(ApiError):  # noqa: N818 - what happened
    """A broker cannot be reached, or the connection broke before it answered."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOut(ApiError):  # noqa: N818 - the protocol's name for it
    """No response in time: whether the broker did what was asked is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class NotSafe(ApiError):  # noqa: N818 - what the connection is
    """A connection could not be made as the security of the client asks for.

    It is not tried again: somebody has to change a setting, a certificate or a password first.
    """

    @property
    def retriable(self) -> bool:
        """Never: the same attempt fails again."""
        return False


class TlsFailed(NotSafe):
    """A broker's certificate is not trusted, has expired or names another host; the broker refuses
    this client's; or one side speaks TLS and the other does not.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class AuthenticationFailed(NotSafe):
    """A broker does not take this client for who it says that it is, or is itself not the one that
    knows the password. ``mechanism`` is that of SASL.
    """

    def __init__(
        self,
        message: str,
        mechanism: str,
        code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED,
    ) -> None:
        super().__init__(code, message)
        self.mechanism = mechanism


class TopicDeleted(ApiError):  # noqa: N818 - what happened
    """An offset is in a topic that was deleted; another topic may have its name."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_ID, message)

    @property
    def retriable(self) -> bool:
        """Never: ids of topics are not used again."""
        return False


class AuthorizationFailed(ApiError):  # noqa: N818 - what happened
    """This client may not do what it asked for: no rule allows it. Asking again is refused again
    until one does.
    """


class TopicAuthorizationFailed(AuthorizationFailed):
    """A topic may not be used so."""


class GroupAuthorizationFailed(AuthorizationFailed):
    """A group may not be used so."""


class ClusterAuthorizationFailed(AuthorizationFailed):
    """What concerns the whole cluster may not be done."""


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """A transactional id may not be used so."""


_REFUSALS: Mapping[ErrorCode, type[AuthorizationFailed]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationFailed,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailed,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationFailed,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionalIdAuthorizationFailed,
}


class ClientClosed(QbusError):  # noqa: N818 - what happened
    """The client was closed before the call, or during it."""

    def __init__(self) -> None:
        super().__init__("the client is closed")


class NoOffset(ApiError):  # noqa: N818 - what is missing
    """No offset to read a partition from is known, and ``offset_reset`` is "none"."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class LogTruncated(ApiError):  # noqa: N818 - what happened
    """A partition's log was truncated below the position (KIP-320).

    Records from ``diverging_offset`` to ``position`` were read, but are no longer in the log, or
    replaced by others. Seek to where reading should continue.
    """

    def __init__(self, topic: str, partition: int, position: int, diverging_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log of {topic}-{partition} was truncated to {diverging_offset},"
            f" below the position {position}",
        )
        self.topic = topic
        self.partition = partition
        self.position = position
        self.diverging_offset = diverging_offset


class PartialFailure(ApiError):  # noqa: N818 - what happened
    """Several things were asked for at once, and some failed.

    ``results`` holds the results of those that succeeded, ``errors`` the errors of the others, both
    by item. ``code`` is that of the first error; it is ``retriable`` if all errors are.
    """

    def __init__(self, errors: Mapping[Any, ApiError], results: Mapping[Any, Any]) -> None:
        first = next(iter(errors.values()))
        more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
        super().__init__(first.code, f"{first}{more}")
        self.errors = errors
        self.results = results

    @property
    def retriable(self) -> bool:
        """Whether asking again for the failed items may succeed."""
        return all(error.retriable for error in self.errors.values())


def corrupt_at(topic: str, partition: int, offset: int, problem: str) -> CorruptBatch:
    """Return the error for a batch that cannot be read at ``offset``."""
    return CorruptBatch(
        f"{topic}-{partition} at offset {offset}: {problem}",
        topic=topic,
        partition=partition,
        offset=offset,
    )


REFUSED_AS_CORRUPT = "the broker's copy of the batch is corrupt"


def check(error_code: int, message: str | None = None, *, of: str | None = None) -> None:
    """Raise the :class:`~qbus.errors.ApiError` for a response's error code, if there is one.

    ``of``: what the code is about, for the message when the broker sent none.
    """
    if error_code != ErrorCode.NONE:
        raise api_error(error_code, message, of=of)


def api_error(
    error_code: int,
    message: str | None = None,
    *,
    of: str | None = None,
    broker: int | None = None,
) -> ApiError:
    """Return the exception for an error code of a broker.

    of: what the code is about, and ``broker`` the id of the one that sent it, for the message when
    that broker sent none. Unknown codes, of later protocols, become UNKNOWN_SERVER_ERROR.
    """
    try:
        code = ErrorCode(error_code)
    except ValueError:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error code {error_code}")
    if not message and of is not None:
        message = f"{of}: {code.name}"
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            which = "the leader" if broker is None else f"broker {broker}"
            message += f": {which} cannot use the disk or the data directory of this replica"
    return _REFUSALS.get(code, ApiError)(code, message)


_PASSING = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Errors that end a transaction, and that the next one need not meet."""


class TransactionAborted(ApiError):  # noqa: N818 - what happened
    """A transaction could not be committed, and nothing of it is: do all of it again.

    The producer stays usable. ``__cause__`` says what went wrong first.
    """

    is_fatal: ClassVar[bool] = False

    @property
    def retriable(self) -> bool:
        """Whether the transaction, done again, may be committed; False: a record was refused."""
        return self.code in _PASSING or self.code.retriable


class TransactionFailed(ApiError):  # noqa: N818 - what happened
    """Nothing more can be done with a transactional producer: close it."""

    is_fatal: ClassVar[bool] = True


class ProducerFenced(TransactionFailed):
    """A later producer with the same transactional id has taken over, or the coordinator has
    fenced this one because its transaction took too long.
    """


class BufferFull(QbusError):  # noqa: N818 - what happened
    """The send buffer is full; delivered records make room."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the buffer is full: {limit} bytes wait to be delivered")

    @property
    def retriable(self) -> bool:
        """Always: deliveries make room."""
        return True


class Spooled(QbusError):  # noqa: N818 - what happened
    """The record was not delivered in time; it is kept on disk for later delivery."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"not delivered, kept in {directory}")
        self.directory = directory
