"""CRC-32C (Castagnoli), the checksum of record batches: RFC 3720, appendix B.4.

The ``crc32c`` package uses the processor's instruction; where it is not installed, crcmod computes
the same sums, some fifty times slower.
"""

from collections.abc import Callable

import crcmod.predefined

Buffer = bytes | bytearray | memoryview

_crcmod_sum: Callable[..., int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


def portable_crc32c(data: Buffer, crc: int = 0) -> int:
    """The same as :func:`crc32c`, on any machine."""
    return _crcmod_sum(data, crc)


def _fastest() -> Callable[[Buffer, int], int]:
    try:
        from crc32c import crc32c as hardware_crc32c  # noqa: PLC0415 - optional
    except ImportError:
        return portable_crc32c
    hardware: Callable[[Buffer, int], int] = hardware_crc32c
    return hardware


_crc32c = _fastest()


def crc32c(data: Buffer, crc: int = 0) -> int:
    """The CRC-32C of ``data``, an unsigned 32-bit integer.

    ``crc`` is the sum of what came before, so that ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
    """
    return _crc32c(data, crc)
