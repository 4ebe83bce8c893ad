"""MurmurHash2 as Kafka's clients use it (Austin Appleby's, 32 bits, with a seed of Kafka's)."""

import struct
from collections.abc import Iterable

from qbus.records.crc import Buffer
from qbus.records.fields import to_bytes

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: Buffer) -> int:
    """The hash of ``key``, an unsigned 32-bit integer."""
    data = to_bytes(key, "key", 0)
    words, rest = divmod(len(data), 4)
    hashed = _SEED ^ len(data)
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ mixed
    if rest:
        hashed = (hashed ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_for_keys(keys: Iterable[Buffer | None], count: int) -> list[int]:
    """The partition, of ``count``, of each key as Kafka's Java client chooses it; None: -1."""
    if not 0 < count <= 0x7FFFFFFF:
        raise ValueError(f"impossible partitions count {count}")
    return [
        -1 if key is None else (murmur2(to_bytes(key, "key", index)) & 0x7FFFFFFF) % count
        for index, key in enumerate(keys)
    ]
