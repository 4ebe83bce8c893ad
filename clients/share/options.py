"""The options of a share consumer."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, get_args

from qbus.errors import ConfigError
from qbus.records.bounds import MAX_RECORDS_SIZE

from .types import AcknowledgementLost

Acknowledge = Literal["implicit", "explicit"]
Acquire = Literal["batches", "records"]
OnLost = Callable[[AcknowledgementLost], Awaitable[None] | None]
"""A plain function or a coroutine function."""
_LOOP_TIMES = 4
"""Of a large batch a broker sends all for each of its records: fewer requests cost less."""


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """The checked options of :class:`~qbus.clients.ShareConsumer`. Times are in seconds."""

    group: str
    topics: tuple[str, ...]
    is_explicit: bool
    by_records: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait: float
    max_poll_records: int
    max_poll_interval: float
    check_crcs: bool
    rack: str | None
    consumer_timeout: float | None
    on_lost: OnLost | None
    batch_max_bytes: int = MAX_RECORDS_SIZE

    @property
    def max_run(self) -> int:
        """The most records that are taken at once by a loop that is quick."""
        return _LOOP_TIMES * self.max_poll_records

    async def lost(self, error: AcknowledgementLost) -> bool:
        """Tell the callback of a loss; return whether there is one."""
        if self.on_lost is None:
            return False
        result = self.on_lost(error)
        if inspect.isawaitable(result):
            await result
        return True


def check_options(
    group: str, topics: object, acknowledge: str, acquire: str, consumer_timeout_ms: int | None
) -> None:
    """Raise :class:`~qbus.errors.ConfigError` for options that make no sense."""
    if not group:
        raise ConfigError("a share consumer needs the name of its group")
    if isinstance(topics, str | bytes):
        raise ConfigError("topics are a list of names, not one string")
    for name, value, allowed in (
        ("acknowledge", acknowledge, get_args(Acknowledge)),
        ("acquire", acquire, get_args(Acquire)),
    ):
        if value not in allowed:
            raise ConfigError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
    if consumer_timeout_ms is not None and consumer_timeout_ms <= 0:
        raise ConfigError(f"consumer_timeout_ms is above 0, not {consumer_timeout_ms}")
