"""Columns as Arrow lays them out in memory (its "Columnar Format", version 1.5).

A column has a bit per row for what is not null, least significant first (or no bits: nothing is
null). Values of variable length lie one after another in ``data``: value ``i`` from offset ``i`` to
offset ``i + 1``. Row 0 may be any of the values: a column may be a slice of another.
"""

from typing import NamedTuple

from qbus.records.crc import Buffer


class Values(NamedTuple):
    """A column of bytes, or of numbers: bytes of a fixed size."""

    validity: Buffer | None
    offsets: Buffer | None
    """Integers in the machine's order; None: each value takes ``width`` bytes of ``data``."""
    width: int
    """Bytes of an offset (4 or 8), or of a value when there are no offsets."""
    data: Buffer
    start: int
    """Which value is that of row 0."""


class Lists(NamedTuple):
    """A column of lists of headers: list ``i`` is made of pairs, as ``offsets`` say."""

    validity: Buffer | None
    offsets: Buffer
    width: int
    start: int
    pairs: int
    """How many pairs there are."""
    key: Values
    value: Values
