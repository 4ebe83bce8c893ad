"""The configuration in force, and the one that was refused."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from qbus.errors import ConfigError, QbusError

_log = logging.getLogger(__name__)

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a configuration came from: a node and its version, or a file (version -1)."""

    path: str
    version: int = -1

    def __str__(self) -> str:
        return self.path if self.version < 0 else f"{self.path} (version {self.version})"


@dataclass(slots=True)
class Configured(Generic[C]):
    """Applies configurations one after the other; what is refused changes nothing.

    ``read`` makes a configuration of a text, or raises ConfigError. ``apply`` puts one into force,
    or raises QbusError or OSError.
    """

    read: Callable[[bytes], C]
    apply: Callable[[C], Awaitable[None]]
    text: bytes | None = None
    config: C | None = None
    origin: Origin | None = None
    refused: Origin | None = None
    reason: str | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def take(self, text: bytes, origin: Origin) -> bool:
        """Put a configuration into force; whether that was done.

        The one before stays in force when this one cannot be read or applied.
        """
        async with self._turn:
            return await self._take(text, origin)

    async def _take(self, text: bytes, origin: Origin) -> bool:
        if text == self.text:
            self.origin, self.refused, self.reason = origin, None, None
            return True
        try:
            config = self.read(text)
        except ConfigError as error:
            self._refuse(origin, error)
            return False
        try:
            await self.apply(config)
        except (QbusError, OSError) as error:
            self._refuse(origin, error)
            await self._restore()
            return False
        self.text, self.config, self.origin = text, config, origin
        self.refused, self.reason = None, None
        _log.info("configuration of %s in force", origin)
        return True

    async def take_first(self, text: bytes, origin: Origin) -> None:
        """Put the first one into force; raises ConfigError where that cannot be done."""
        if not await self.take(text, origin):
            raise ConfigError(f"{origin}: {self.reason}")

    def miss(self, why: str) -> None:
        """There is none where one should be; the one in force stays."""
        if why != self.reason:
            _log.warning("%s", why)
        self.refused, self.reason = None, why

    def document(self) -> dict[str, Any]:
        """What the status says of it."""
        return {
            "in_force": None if self.origin is None else self.origin.path,
            "version": None if self.origin is None else self.origin.version,
            "refused": None if self.refused is None else self.refused.path,
            "refused_version": None if self.refused is None else self.refused.version,
            "reason": self.reason,
        }

    def _refuse(self, origin: Origin, error: Exception) -> None:
        _log.error("configuration of %s refused: %s", origin, error)
        self.refused, self.reason = origin, str(error)

    async def _restore(self) -> None:
        """What failed halfway is taken back."""
        if self.config is not None:
            try:
                await self.apply(self.config)
            except (QbusError, OSError):
                _log.exception("the configuration before cannot be restored")
