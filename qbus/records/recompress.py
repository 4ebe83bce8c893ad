"""One batch in another compression: the same records, offsets, timestamps and producer."""

from qbus.errors import CorruptBatch
from qbus.records.compression import compress, decompress
from qbus.records.header import (
    CODEC_BITS,
    HEADER_SIZE,
    LENGTH_PREFIX,
    Buffer,
    Compression,
    check_crc,
    read_header,
    write_header,
)


def recompress(
    batch: Buffer, codec: Compression, level: int | None = None, *, max_size: int
) -> bytearray:
    """Return a copy of ``batch`` whose records are compressed by ``codec``.

    ``level`` is one of the codec; None is its default. The records are not looked at.

    Raises :class:`CorruptBatch` if ``batch`` is not one whole batch with a right CRC, or its
    records cannot be decompressed or take more than ``max_size`` bytes.
    """
    header = read_header(batch)
    if header.size != len(batch):
        raise CorruptBatch(f"batch of {header.size} bytes in {len(batch)}")
    check_crc(batch, header)
    records = memoryview(batch)[HEADER_SIZE:]
    plain = decompress(header.compression, records, max_size)
    packed = compress(codec, plain, level)
    new = bytearray(HEADER_SIZE)
    new += packed
    write_header(
        new,
        header._replace(
            batch_length=len(new) - LENGTH_PREFIX,
            attributes=header.attributes & ~CODEC_BITS | codec,
        ),
    )
    return new
