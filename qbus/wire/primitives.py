"""The protocol's primitive types, and the Python types that stand for them.

A declaration names them as annotations: ``index: Int32`` is an ``int`` to a type checker and four
big-endian bytes to the compiler. Source: Kafka's protocol guide, "Protocol Primitive Types";
variable-length forms of flexible versions: KIP-482.
"""

from enum import Enum
from typing import Annotated, Any, Final, NamedTuple, TypeAlias


class Fixed(NamedTuple):
    """A type that always takes the same number of bytes; ``code`` is its ``struct`` format."""

    code: str
    size: int
    zero: Any


class Variable(Enum):
    """A type that carries its length in front."""

    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"

    @property
    def zero(self) -> Any:
        """The value of a field that nobody set."""
        return {Variable.STRING: "", Variable.BYTES: b"", Variable.RECORDS: None}[self]


ZERO_UUID: Final = bytes(16)
"""The topic id that stands for "none"."""

MAX_STRING: Final = 0x7FFF
"""The most bytes a string may have, in every version."""

UUID: Final = Fixed("16s", 16, ZERO_UUID)

Bool: TypeAlias = Annotated[bool, Fixed("?", 1, zero=False)]
Int8: TypeAlias = Annotated[int, Fixed("b", 1, 0)]
Int16: TypeAlias = Annotated[int, Fixed("h", 2, 0)]
Int32: TypeAlias = Annotated[int, Fixed("i", 4, 0)]
Int64: TypeAlias = Annotated[int, Fixed("q", 8, 0)]
Float64: TypeAlias = Annotated[float, Fixed("d", 8, 0.0)]

Uuid: TypeAlias = Annotated[bytes, UUID]
"""Sixteen raw bytes."""

String: TypeAlias = Annotated[str, Variable.STRING]
Bytes: TypeAlias = Annotated[bytes, Variable.BYTES]

Records: TypeAlias = Annotated[Any, Variable.RECORDS]
"""Record batches, never copied: decoded they are a ``memoryview`` of what was received; to be encoded
they may be anything that has a length, bytes-like or not (a region of a file), and that whoever
writes the parts to a socket knows how to send. ``Any`` because the two directions differ."""
