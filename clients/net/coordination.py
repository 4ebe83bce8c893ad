"""Asking a group's coordinator, wherever it has moved."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from qbus.errors import ApiError, ErrorCode

from .cluster import Cluster, retrying

T = TypeVar("T")

MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


async def asking_coordinator(
    cluster: Cluster, group: str, attempt: Callable[[], Awaitable[T]]
) -> T:
    """What ``attempt`` returns, repeated on retriable errors and wherever the coordinator moved."""

    async def of_the_current_one() -> T:
        try:
            return await attempt()
        except ApiError as error:
            if error.code in MOVED:
                cluster.forget_coordinator(group)
            raise

    return await retrying(of_the_current_one, cluster.request_timeout)
