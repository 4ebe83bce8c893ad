"""How a message is declared.

A struct is a class with annotated fields, in wire order; each says in which versions it exists::

    class MetadataResponseBroker(Struct):
        node_id: Int32 = field("0+")
        host: String = field("0+")
        port: Int32 = field("0+")
        rack: String | None = field("1+", default=None)

    class MetadataResponse(Struct, api=ApiKey.METADATA):
        throttle_time_ms: Int32 = field("3+", ignorable=True)
        brokers: list[MetadataResponseBroker] = field("0+")

Instances behave like those of a dataclass with slots: mutable, comparable, every field optional and
preset to its default. Creating a class does next to nothing, since a process meets few of the
messages there are: versions and types are read when a codec is compiled for a message, and
``__init__`` is written when its class is first called.
"""

from typing import Any, ClassVar, Final, NamedTuple, dataclass_transform

from .api import ApiKey

_MISSING: Final = object()


class Field(NamedTuple):
    """A field as it was declared; see :func:`field`."""

    versions: str
    default: Any
    nullable: str | None
    tag: int | None
    ignorable: bool


def field(
    versions: str,
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    Args:
        versions: in which it exists: ``"3+"``, ``"0-12"`` or ``"4"``.
        default: its value when nobody set it; without one, the zero of its type.
        nullable: in which versions it may be None, if not in all (its type says that it may).
        tag: the number under which it is a tagged field (KIP-482).
        ignorable: whether a value is dropped silently in versions that have no room for it.
    """
    return Field(versions, default, nullable, tag, ignorable)


@dataclass_transform()
class StructType(type):
    """Makes a class of slots out of a declaration."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        api: ApiKey | None = None,
    ) -> "StructType":
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key in fields:
            del namespace[key]
        names = tuple(fields)
        namespace |= {"__slots__": names, "__match_args__": names, "__fields__": fields}
        namespace |= {"__api__": api, "__encoders__": {}, "__decoders__": {}}
        return super().__new__(cls, name, bases, namespace)

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any
    ) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=StructType):
    """The base of messages (which name their ``api``) and of the structs within them."""

    __fields__: ClassVar[dict[str, Field]]
    __api__: ClassVar[ApiKey | None]
    __encoders__: ClassVar[dict[int, Any]]
    __decoders__: ClassVar[dict[int, Any]]
    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable: as a dataclass has it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from .layout import write_init  # noqa: PLC0415 - it reads structs: this way round at import

        write_init(type(self))
        type(self).__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"
