"""Waiting until what was appended is acknowledged."""

import asyncio

from qbus.errors import ErrorCode


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
