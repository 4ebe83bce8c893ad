"""A command that a client sent, and the table that says what becomes of it."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from .connection import Client, Reply

MOST_WORDS: Final = 256
"""How many words a command has at most that takes no list of jobs or queues."""


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
    as COMMAND lists them. ``is_concurrent``: see :mod:`.connection`. ``most_words``: how many words
    it has at most, 0: no limit.
    """

    name: str
    arity: int
    flags: str
    run: Handler
    is_concurrent: bool = False
    most_words: int = MOST_WORDS
