"""A command that a client sent, and the table that says what becomes of it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .connection import Client, Reply


class Call:
    """One command of a client. ``is_local``: another node asks, for what is here alone."""

    __slots__ = ("arguments", "client", "is_local")

    def __init__(self, client: Client, arguments: Sequence[bytes], is_local: bool = False) -> None:
        self.client = client
        self.arguments = arguments
        self.is_local = is_local


Handler = Callable[[Call], Reply]


class Command(NamedTuple):
    """A row of the table.

    ``arity``: how many words there are, its name included; negative: at least so many. ``flags``
    as COMMAND lists them. ``is_concurrent``: see :mod:`.connection`.
    """

    name: str
    arity: int
    flags: str
    run: Handler
    is_concurrent: bool = False
