"""The configuration in force, and the one that was refused."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qbus.errors import ConfigError, QbusError

from ..config import AgentConfig, parse

_log = logging.getLogger(__name__)

Apply = Callable[[AgentConfig], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a configuration came from: a node and its version, or a file (version -1)."""

    path: str
    version: int = -1

    def __str__(self) -> str:
        return self.path if self.version < 0 else f"{self.path} (version {self.version})"


@dataclass(slots=True)
class Configured:
    """Applies configurations one after the other; what is refused changes nothing.

    ``defaults`` are top-level fields that configurations need not state; ``environ`` is what their
    templates may name.
    """

    apply: Apply
    defaults: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    text: bytes | None = None
    config: AgentConfig | None = None
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
            config = parse(text, **self.defaults)
            check_environment(config, self.environ)
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


def check_environment(config: AgentConfig, environ: Mapping[str, str]) -> None:
    """Check that this machine has what templates name; raises ConfigError."""
    for number, source in enumerate(config.sources, 1):
        templates = [("key", source.key), *((f"headers.{name}", t) for name, t in source.headers)]
        for name, template in templates:
            for variable in sorted(template.environment) if template is not None else ():
                if variable not in environ:
                    raise ConfigError(
                        f"source[{number}].{name} = {str(template)!r}: expected the environment"
                        f" variable {variable}, which is not set here"
                    )
