"""From the words of a command to its reply."""

import asyncio
import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Final

from qbus.errors import ApiError
from qbus.service.event_loop.slow import SlowHandlers
from qbus.service.event_loop.ticks import Ticks

from ..quotas.stopwatch import measured
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
_LONGEST_NAME: Final = 100


class Dispatcher:
    """Answers the commands of all connections."""

    def __init__(
        self, service: DisqueService, admin: AdminCommands, slow: SlowHandlers | None = None
    ) -> None:
        """``slow`` is given the commands that hold the event loop for too long."""
        self._slow = slow if slow is not None else SlowHandlers(Ticks())
        self._ticks: Ticks = self._slow.ticks
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
        began = self.begin_step(client)
        try:
            reply = self._begin(client, arguments)
        except CommandError as error:
            return resp.error(str(error))
        except ApiError as error:
            return resp.error(f"ERR {error}")
        finally:
            self.end_step(client, arguments, began)
        if isinstance(reply, (bytes, PendingReply)) or not asyncio.iscoroutine(reply):
            return reply
        return _guarded(measured(_Steps(self, client, arguments), reply))

    def begin_step(self, client: Client) -> float:
        """Note that a command goes on; when."""
        began = perf_counter()
        self._ticks.begin_request(client, began)
        return began

    def end_step(self, client: Client, arguments: list[bytes], began: float) -> None:
        """Note that a command waits, or is done; it is logged if it took too long since then."""
        now = perf_counter()
        if self._ticks.end_request(began, now):
            self._slow.note(
                f"DISQUE {self._name(arguments)}",
                began,
                now,
                f"{client.address} (client {client.name[:_LONGEST_NAME]!r}, {client.principal})",
            )

    def _name(self, arguments: list[bytes]) -> str:
        word = arguments[0].lower()
        if word == _LOCAL and len(arguments) > 1:
            word = arguments[1].lower()
        row = self._by_word.get(word)
        return "(unknown command)" if row is None else row.name.upper()

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
        if 0 < row.most_words < count:
            raise CommandError(f"ERR at most {row.most_words} words in '{row.name}'")
        service = self._service
        if service.authentication.is_required and row.name not in _UNAUTHENTICATED:
            service.authentication.need(client)
        call = Call(client, arguments, is_local)
        if service.guard is not None:
            service.guard.check(call)
        client.command = row.name
        return row.run(call)


class _Steps:
    """The steps of a command that is a coroutine."""

    __slots__ = ("_arguments", "_began", "_client", "_dispatcher")

    def __init__(self, dispatcher: Dispatcher, client: Client, arguments: list[bytes]) -> None:
        self._dispatcher = dispatcher
        self._client = client
        self._arguments = arguments[:2]  # what names it
        self._began = 0.0

    def resume(self) -> None:
        """See :class:`..quotas.stopwatch.Stopwatch`."""
        self._began = self._dispatcher.begin_step(self._client)

    def pause(self) -> None:
        """See :class:`..quotas.stopwatch.Stopwatch`."""
        self._dispatcher.end_step(self._client, self._arguments, self._began)


async def _guarded(reply: Awaitable[bytes]) -> bytes:
    try:
        return await reply
    except CommandError as error:
        return resp.error(str(error))
    except ApiError as error:
        return resp.error(f"ERR {error}")
