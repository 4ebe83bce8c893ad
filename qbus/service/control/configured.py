"""The configuration in force, and the newest one if that was refused."""

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
    """Applies configurations one after the other; a refused one changes nothing.

    ``read`` makes a configuration of a text, or raises ConfigError. ``apply`` puts it into
    force, or raises QbusError or OSError. ``refused`` and ``reason`` say what is
    wrong with the newest one.
    """

    read: Callable[[bytes], C]
    apply: Callable[[C], Awaitable[None]]
    text: bytes | None = None
    config: C | None = None
    origin: Origin | None = None
    refused: Origin | None = None
    reason: str | None = None
    _applying: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def accept(self, text: bytes, origin: Origin) -> bool:
        """Put a configuration into force; return whether that succeeded.

        If it cannot be read or applied, the one before stays in force.
        """
        async with self._applying:
            return await self._accept(text, origin)

    async def _accept(self, text: bytes, origin: Origin) -> bool:
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
        _log.info("the configuration of %s is in force", origin)
        return True

    async def accept_first(self, text: bytes, origin: Origin) -> None:
        """Put the first one into force; raises ConfigError if that fails."""
        if not await self.accept(text, origin):
            raise ConfigError(f"{origin}: {self.reason}")

    def missing(self, why: str) -> None:
        """Note why there is no configuration; the one in force stays."""
        if why != self.reason:
            _log.warning("%s", why)
        self.refused, self.reason = None, why

    def document(self) -> dict[str, Any]:
        """Return what the status document says of the configuration."""
        return {
            "in_force": None if self.origin is None else self.origin.path,
            "version": None if self.origin is None else self.origin.version,
            "refused": None if self.refused is None else self.refused.path,
            "refused_version": None if self.refused is None else self.refused.version,
            "reason": self.reason,
        }

    def _refuse(self, origin: Origin, error: Exception) -> None:
        _log.error("the configuration of %s is refused: %s", origin, error)
        self.refused, self.reason = origin, str(error)

    async def _restore(self) -> None:
        """Apply the configuration in force again, after another one failed halfway."""
        if self.config is not None:
            try:
                await self.apply(self.config)
            except (QbusError, OSError):
                _log.exception("the previous configuration cannot be restored")
