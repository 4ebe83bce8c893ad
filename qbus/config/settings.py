"""Values in force, where each came from, and what else was said."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from qbus.config.field import Field
from qbus.config.key import ConfigKey
from qbus.errors import ConfigError


class ConfigSource(IntEnum):
    """Who set a value, by its number in DescribeConfigs (KIP-226). The first that did wins."""

    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Stated(NamedTuple):
    """A value that somebody stated, in force or not: ``value`` is typed."""

    key: ConfigKey
    value: Any
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A key with its value in force, and all that was stated for it, the first in force."""

    key: ConfigKey
    value: Any
    source: ConfigSource
    synonyms: tuple[Stated, ...]

    @property
    def text(self) -> str | None:
        """The value as it may be shown: None when it is not set, or secret."""
        return None if self.key.sensitive else self.key.format(self.value)


class Settings:
    """A set of keys with values. Subclasses define the keys as attributes."""

    KEYS: ClassVar[Mapping[str, ConfigKey]] = MappingProxyType({})

    __slots__ = ("values",)

    values: Mapping[str, Any]

    def __init_subclass__(cls) -> None:
        keys = {
            field.key.name: field.key
            for base in reversed(cls.__mro__)
            for field in vars(base).values()
            if isinstance(field, Field)
        }
        cls.KEYS = MappingProxyType(dict(sorted(keys.items())))

    @classmethod
    def key(cls, name: str) -> ConfigKey:
        """The definition of ``name``.

        Raises:
            ConfigError: there is none; the message names the closest.
        """
        key = cls.KEYS.get(name)
        if key is None:
            from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone

            close = get_close_matches(name, cls.KEYS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"unknown configuration {name[:200]!r}{hint}")
        return key

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> dict[str, Any]:
        """Typed values of what is stated as text or TOML.

        Raises:
            ConfigError: a name is unknown, or a value is not allowed.
        """
        return {name: cls.key(name).parse(value) for name, value in raw.items()}

    @classmethod
    def parse_readable(cls, raw: Mapping[str, str]) -> dict[str, Any]:
        """Typed values of what was stored once, without what this version cannot read."""
        values = {}
        for name, text in raw.items():
            try:
                values[name] = cls.key(name).parse(text)
            except ConfigError:
                continue
        return values
