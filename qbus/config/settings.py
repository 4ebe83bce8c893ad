"""Classes of settings: configuration keys as attributes, and their values in force.

``num_partitions = integer(1, ...)`` in a subclass of :class:`Settings` defines ``num.partitions``:
Kafka's name is the attribute's with dots for underscores. ``settings.num_partitions`` is its value
in force.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, overload

from qbus.config.key import ConfigKey
from qbus.config.types import ConfigType
from qbus.errors import ConfigError


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs (KIP-226), the strongest first."""

    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Stated(NamedTuple):
    """A typed value that is stated somewhere, in force or not."""

    key: ConfigKey
    value: Any
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A key with its value in force, and all values stated for it, the one in force first."""

    key: ConfigKey
    value: Any
    source: ConfigSource
    synonyms: tuple[Stated, ...]

    @property
    def text(self) -> str | None:
        """The value as text; None if it is not set or secret."""
        return None if self.key.sensitive else self.key.format(self.value)


T = TypeVar("T")


class Field(Generic[T]):
    """Defines a key in a class of settings; on an instance, the value in force."""

    __slots__ = ("_definition", "key")

    key: ConfigKey

    def __init__(self, type_: ConfigType, default: T, doc: str, **rest: Any) -> None:
        self._definition = {"type": type_, "default": default, "doc": doc, **rest}

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.key = ConfigKey(name=attribute.replace("_", "."), **self._definition)

    @overload
    def __get__(self, settings: None, owner: type) -> Self: ...

    @overload
    def __get__(self, settings: "Settings", owner: type) -> T: ...

    def __get__(self, settings: "Settings | None", owner: type) -> Self | T:
        if settings is None:
            return self
        value: T = settings.values[self.key.name]
        return value


class Settings:
    """Keys with their values in force. Subclasses define the keys as attributes."""

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
        """Return the definition of ``name``.

        Raises:
            ConfigError: the key is unknown; the message names the closest one.
        """
        key = cls.KEYS.get(name)
        if key is None:
            from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone

            close = get_close_matches(name, cls.KEYS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"unknown configuration {name[:200]!r}{hint}")
        return key

    @classmethod
    def ignores(cls, name: str) -> bool:  # noqa: ARG003 - for subclasses
        """Whether a key is accepted without effect."""
        return False

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> dict[str, Any]:
        """Return the typed values of text or TOML values.

        Raises:
            ConfigError: a name is unknown, or a value is not allowed.
        """
        return {name: cls.key(name).parse(value) for name, value in raw.items()}

    @classmethod
    def parse_readable(cls, raw: Mapping[str, str]) -> dict[str, Any]:
        """Return the typed values of stored text, without those that this version cannot read."""
        values = {}
        for name, text in raw.items():
            try:
                values[name] = cls.key(name).parse(text)
            except ConfigError:
                continue
        return values


def boolean(default: bool, doc: str, **rest: Any) -> Field[bool]:
    """Define a key that is true or false."""
    return Field(ConfigType.BOOLEAN, default, doc, **rest)


def integer(default: int, doc: str, **rest: Any) -> Field[int]:
    """Define a key of 32 bits."""
    return Field(ConfigType.INT, default, doc, **rest)


def long(default: int, doc: str, **rest: Any) -> Field[int]:
    """Define a key of 64 bits."""
    return Field(ConfigType.LONG, default, doc, **rest)


def double(default: float, doc: str, **rest: Any) -> Field[float]:
    """Define a key with a fraction."""
    return Field(ConfigType.DOUBLE, default, doc, **rest)


def string(default: str, doc: str, **rest: Any) -> Field[str]:
    """Define a key of text."""
    return Field(ConfigType.STRING, default, doc, **rest)


def strings(default: tuple[str, ...], doc: str, **rest: Any) -> Field[tuple[str, ...]]:
    """Define a key of several texts."""
    return Field(ConfigType.LIST, default, doc, **rest)


def unset(type_: ConfigType, doc: str, **rest: Any) -> Field[Any]:
    """Define a key without a default; its value is None until it is set."""
    return Field(type_, None, doc, **rest)
