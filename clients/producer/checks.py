"""What can be a record, checked while the one who sends it can still be told."""

from collections.abc import Iterable, Sequence

from qbus.records.crc import Buffer

_BYTES_LIKE = {bytes, bytearray, memoryview}
_MAX_TIMESTAMP = 2**63 - 1


def check_item(
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[str, Buffer | None]],
    timestamp: int | None,
) -> None:
    """Raise TypeError or ValueError for what no record can hold."""
    _check_types((key, value), may_be_none=True)
    for name, data in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is a str, not {type(name).__name__}")
        _check_types((data,), may_be_none=True)
    _check_timestamp(timestamp)


def check_many(
    values: Sequence[Buffer], keys: Sequence[Buffer | None] | None, timestamp: int | None
) -> None:
    """Raise TypeError or ValueError for what no records can hold."""
    _check_types(values, may_be_none=False)
    if keys is not None:
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values")
        _check_types(keys, may_be_none=True)
    _check_timestamp(timestamp)


def _check_types(data: Iterable[Buffer | None], *, may_be_none: bool) -> None:
    wrong = set(map(type, data)) - _BYTES_LIKE
    if may_be_none:
        wrong.discard(type(None))
    if wrong:
        names = ", ".join(sorted(kind.__name__ for kind in wrong))
        raise TypeError(f"keys and values are bytes, not {names}")


def _check_timestamp(timestamp: int | None) -> None:
    if timestamp is not None and not -1 <= timestamp <= _MAX_TIMESTAMP:
        raise ValueError(f"a timestamp is in milliseconds since 1970, not {timestamp}")
