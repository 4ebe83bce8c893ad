"""Keys as attributes of :class:`~qbus.config.settings.Settings`, and typed access to their values.

``num_partitions = integer(1, ...)`` in a class of settings defines ``num.partitions``: Kafka's name
is the attribute's with dots for underscores. ``settings.num_partitions`` is its value in force.
"""

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from qbus.config.key import ConfigKey
from qbus.config.types import ConfigType

if TYPE_CHECKING:
    from qbus.config.settings import Settings

T = TypeVar("T")


class Field(Generic[T]):
    """Defines ``key`` in the class it is in, and reads its value in that class's instances."""

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
    """Define a key without a default; its value is None until somebody sets it."""
    return Field(type_, None, doc, **rest)
