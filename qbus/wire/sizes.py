"""The fewest bytes that a value can take, which is how many values a count may promise."""

from functools import cache

from qbus.wire.declare import Scalar, Struct, fields
from qbus.wire.source import big_endian

LENGTHS = {"string": "h", "bytes": "i", "records": "i"}
"""How the length of each kind is written before flexible versions."""


@cache
def least_size(kind: Scalar | type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes of one value; never 0, so that every count can be checked."""
    if isinstance(kind, Scalar):
        if kind.letter:
            return big_endian(kind.letter).size
        return 1 if flexible else big_endian(LENGTHS[kind.name]).size
    total = 1 if flexible else 0
    for field in fields(kind):
        if version not in field.versions or version in field.tagged:
            continue
        if field.is_array:
            total += 1 if flexible else 4
        elif isinstance(field.kind, Scalar) or version not in field.nullable:
            total += least_size(field.kind, version, flexible)
        else:
            total += 1
    return max(total, 1)
