"""What one batch may hold for its readers: bytes once decompressed, and headers of a record.

A batch of a few kilobytes may decompress to gigabytes, and a header of two bytes takes a hundred as
an object. Readers refuse a batch beyond these bounds with
:class:`~qbus.errors.OversizedBatch` before they have made more of it than a bound allows.
"""

from typing import Final

MAX_RECORDS_SIZE: Final = 128 * 1024 * 1024
"""Maximum size in bytes of the records of one batch, decompressed."""

MAX_HEADERS: Final = 10_000
"""Maximum number of headers of one record. ``_parse.pxd`` and ``_header.pyx`` have it, too."""

_ALWAYS: Final = 16 * 1024 * 1024
_RATIO: Final = 32


def most_bytes(compressed: int, ceiling: int = MAX_RECORDS_SIZE) -> int:
    """Return how many bytes the records of a batch of ``compressed`` bytes may take in a broker.

    16 MiB, or 32 times the compressed size where that is more, but never more than ``ceiling``:
    usual producers gather no more than 1 MiB, and usual data shrinks by a factor of 2 to 20.
    """
    return min(max(_ALWAYS, _RATIO * compressed), ceiling)
