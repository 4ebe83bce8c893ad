"""How protocol messages are declared: a class, its fields, and the versions that have each field.

    class PartitionProduceData(Struct):
        index: Int32 = field()
        records: Records | None = field()

Version ranges are written as in the protocol guide: ``"3+"``, ``"0-12"``, ``"5"``. A field that may
be ``None`` is nullable on the wire, in all versions or in those that ``nullable`` names. Creating
such a class costs almost nothing: constructor, decoders and encoders are compiled at first use.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from qbus.wire.source import Source

ZERO_UUID: Final = bytes(16)

LATEST: Final = 32767


class Scalar(NamedTuple):
    """A type without parts: its name, its ``struct`` letter (if its width is fixed), its zero."""

    name: str
    letter: str
    zero: Any


Bool = Annotated[bool, Scalar("bool", "?", False)]
Int8 = Annotated[int, Scalar("int8", "b", 0)]
Int16 = Annotated[int, Scalar("int16", "h", 0)]
UInt16 = Annotated[int, Scalar("uint16", "H", 0)]
Int32 = Annotated[int, Scalar("int32", "i", 0)]
UInt32 = Annotated[int, Scalar("uint32", "I", 0)]
Int64 = Annotated[int, Scalar("int64", "q", 0)]
Float64 = Annotated[float, Scalar("float64", "d", 0.0)]
Uuid = Annotated[bytes, Scalar("uuid", "16s", ZERO_UUID)]
String = Annotated[str, Scalar("string", "", "")]
Bytes = Annotated[bytes, Scalar("bytes", "", b"")]
# Decoded: a memoryview of the frame. Encoded: any bytes, or an object with a length, such as a
# region of a file, which becomes a part of its own.
Records = Annotated[Any, Scalar("records", "", b"")]

LENGTHS: Final = {"string": "h", "bytes": "i", "records": "i"}
"""The ``struct`` letter of each type's length, in versions that are not flexible."""

NEVER: Final = range(0)


@cache
def versions(text: str) -> range:
    """Read a range: ``"3+"``, ``"0-12"``, ``"5"``."""
    if text.endswith("+"):
        return range(int(text[:-1]), LATEST + 1)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


class Options(NamedTuple):
    """What a declaration says about a field besides its type."""

    versions: range
    nullable: range | None
    default: Any
    tag: int | None
    tagged: range
    ignorable: bool


_ZERO: Final = object()


def field(
    since: str = "0+",
    *,
    nullable: str | None = None,
    default: Any = _ZERO,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = True,
) -> Any:
    """Declare a field that the versions ``since`` have.

    ``nullable`` limits the versions that accept None. ``default`` is the value where a version
    lacks the field; without it, it is the zero of the type. A field with a ``tag`` is sent as a
    tagged field (KIP-482) in the versions ``tagged``, which are by default all that have it. A
    field that is not ``ignorable`` must not be set in a version that lacks it.
    """
    present = versions(since)
    travels_tagged = NEVER if tag is None else versions(tagged or since)
    allowed = None if nullable is None else versions(nullable)
    return Options(present, allowed, default, tag, travels_tagged, ignorable)


class Field(NamedTuple):
    """A field with its type: ``kind`` is a Scalar or a Struct class (of the items, if an array)."""

    name: str
    kind: "Scalar | type[Struct]"
    is_array: bool
    versions: range
    nullable: range
    default: Any
    tag: int | None
    tagged: range
    ignorable: bool

    def make_default(self) -> Any:
        """Return a new default value."""
        if self.default is not _ZERO:
            return self.default
        if self.is_array:
            return []
        return self.kind.zero if isinstance(self.kind, Scalar) else self.kind()


@dataclass_transform(kw_only_default=True)
class _StructType(type):
    first_flexible: int
    decoders: dict[int, Any]  # by version; those that are compiled
    encoders: dict[int, Any]
    __slots__: tuple[str, ...]  # the names of the fields

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        flexible: str | None = None,
    ) -> "_StructType":
        options = {key: value for key, value in namespace.items() if isinstance(value, Options)}
        for key in options:
            del namespace[key]
        namespace["_options"] = options
        namespace["__slots__"] = tuple(options)
        cls = super().__new__(mcs, name, bases, namespace)
        cls.first_flexible = LATEST if flexible is None else versions(flexible).start
        cls.decoders, cls.encoders = {}, {}
        return cls


class Struct(metaclass=_StructType):
    """A message or a part of one. Its fields are attributes and keyword arguments.

    ``flexible`` of a message names the versions with compact lengths and tagged fields (KIP-482).
    """

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
        return f"{type(self).__name__}({inside})"


@cache
def fields(cls: type[Struct]) -> tuple[Field, ...]:
    """Return the fields of a struct in the order of the wire."""
    hints = get_type_hints(cls, include_extras=True)
    options = cast("dict[str, Options]", cls.__dict__["_options"])
    return tuple(_resolve(name, hints[name], option) for name, option in options.items())


def _resolve(name: str, hint: Any, option: Options) -> Field:
    may_be_none = get_origin(hint) in {Union, UnionType}
    if may_be_none:
        (hint,) = (arm for arm in get_args(hint) if arm is not NoneType)
    is_array = get_origin(hint) is list
    if is_array:
        (hint,) = get_args(hint)
    kind = get_args(hint)[1] if get_origin(hint) is Annotated else hint
    nullable = (option.nullable or option.versions) if may_be_none else NEVER
    return Field(
        name,
        kind,
        is_array,
        option.versions,
        nullable,
        option.default,
        option.tag,
        option.tagged,
        option.ignorable,
    )


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Compile the constructor of a struct: every field is a keyword with a default."""
    source = Source({"missing": object()})
    named = fields(cls)
    parameters = ["self", "*"] if named else ["self"]
    for field in named:
        mutable = isinstance(field.make_default(), list | Struct)
        parameters.append(f"{field.name}={'missing' if mutable else repr(field.make_default())}")
    with source.block(f"def __init__({', '.join(parameters)})"):
        if not named:
            source.line("pass")
        for field in named:
            value = field.name
            if isinstance(field.make_default(), list | Struct):
                value = f"{_fresh_default(source, field)} if {value} is missing else {value}"
            source.line(f"self.{field.name} = {value}")
    init: Callable[..., None] = source.compile("__init__", f"{cls.__name__}.__init__")
    return init


def _fresh_default(source: Source, field: Field) -> str:
    """Return the source of a default that no two instances share."""
    default = field.make_default()
    if isinstance(default, Struct):
        return f"{source.bind(type(default).__name__, type(default))}()"
    return repr(default)
