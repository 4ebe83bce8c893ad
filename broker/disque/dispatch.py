"""From the words of a command to its reply."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from qbus.errors import ApiError

from . import resp
from .admin import AdminCommands
from .calls import Call, Command
from .commands import JobCommands
from .connection import Client, PendingReply, Reply
from .errors import CommandError, wrong_arguments
from .service import DisqueService

_log = logging.getLogger(__name__)

_LOCAL: Final = b"qbus.local"
_UNAUTHENTICATED: Final = {"auth", "hello"}


class Dispatcher:
    """Answers the commands of all connections."""

    def __init__(self, service: DisqueService, admin: AdminCommands) -> None:
        self._service = service
        self._admin = admin
        rows = [*JobCommands(service).table(), *admin.table()]
        self.table = {row.name: row for row in rows}
        self._by_word: dict[bytes, Command] = {row.name.encode(): row for row in rows}
        self._by_word |= {row.name.upper().encode(): row for row in rows}  # as clients write them
        admin.known = self.table
        self.processed = 0

    @property
    def is_paused(self) -> bool:
        """See :class:`.connection.Commands`."""
        return self._admin.paused_until > 0.0 and self._admin.is_paused

    def is_concurrent(self, arguments: list[bytes]) -> bool:
        """See :class:`.connection.Commands`."""
        word = arguments[0]
        row = self._by_word.get(word) or self._by_word.get(word.lower())
        if row is None and len(arguments) > 1 and word.lower() == _LOCAL:
            row = self._by_word.get(arguments[1].lower())
        return row is not None and row.is_concurrent

    def begin(self, client: Client, arguments: list[bytes]) -> Reply:
        """Begin a command; the reply, or what it can be awaited from."""
        self.processed += 1
        try:
            reply = self._begin(client, arguments)
        except CommandError as error:
            return resp.error(str(error))
        except ApiError as error:
            return resp.error(f"ERR {error}")
        if isinstance(reply, (bytes, PendingReply)) or not asyncio.iscoroutine(reply):
            return reply
        return _guarded(reply)

    def _begin(self, client: Client, arguments: list[bytes]) -> Reply:
        row, is_local = self._by_word.get(arguments[0]), False
        if row is None:
            word = arguments[0].lower()
            is_local = word == _LOCAL and len(arguments) > 1
            if is_local:
                arguments = arguments[1:]
                word = arguments[0].lower()
            if word == b"quit":
                client.is_over = True
                return resp.OK
            row = self._by_word.get(word)
        if row is None:
            name = arguments[0][:128].decode("utf-8", "backslashreplace")
            raise CommandError(f"ERR unknown command '{name}'")
        count = len(arguments)
        if (row.arity > 0 and count != row.arity) or count < -row.arity:
            raise wrong_arguments(row.name)
        service = self._service
        if service.authentication.is_required and row.name not in _UNAUTHENTICATED:
            service.authentication.need(client)
        call = Call(client, arguments, is_local)
        if service.guard is not None:
            service.guard.check(call)
        client.command = row.name
        return row.run(call)


async def _guarded(reply: Coroutine[Any, Any, bytes]) -> bytes:
    try:
        return await reply
    except CommandError as error:
        return resp.error(str(error))
    except ApiError as error:
        return resp.error(f"ERR {error}")
