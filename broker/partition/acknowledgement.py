"""Waiting until what was appended is acknowledged."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from qbus.errors import ErrorCode

if TYPE_CHECKING:
    from .partition import Partition


class Acknowledgement:
    """Waits for one append: give it to :meth:`Partition.when_acknowledged`."""

    __slots__ = ("_code",)

    def __init__(self) -> None:
        self._code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(self) -> bool:
        """Whether nobody waits any longer."""
        return self._code.done()

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002 - there is one
        """It is acknowledged (NONE), or never will be."""
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> ErrorCode:
        """What it was acknowledged with."""
        return await self._code


async def acknowledged(partition: "Partition", end: int, deadline: float) -> None:
    """Wait until the high watermark reaches ``end``, at the latest until ``deadline``.

    Returns early if the partition is not led here any more. ``deadline`` is a time of the event
    loop, in seconds.
    """
    acknowledgement = Acknowledgement()
    partition.when_acknowledged(end, acknowledgement, None)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            await acknowledgement.wait()


async def flushed(partition: "Partition", deadline: float) -> None:
    """Wait until the high watermark covers what is written, where only a flush keeps it back.

    Without other in-sync replicas a record that ``acks=1`` has acknowledged is visible as soon as
    the leader has flushed it. Requests for the end of the log wait for that flush, so that a client
    finds its own record; Kafka answers them from memory. Returns at once where other replicas are
    waited for, at the latest at ``deadline``, as :func:`acknowledged` does.
    """
    end, followers = partition.log.log_end_offset, partition.followers
    if partition.high_watermark >= end or followers is None:
        return
    if not partition.lack and followers.leads_alone:
        await acknowledged(partition, end, deadline)
