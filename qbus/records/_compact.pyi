from .compact import PortableOffsetMap, PortableSifter
from .header import BatchHeader, Buffer

REVISION: int

OffsetMap = PortableOffsetMap
Sifter = PortableSifter

def rebased(payload: Buffer, header: BatchHeader, base_timestamp: int) -> bytes: ...
def keyless(payload: Buffer, header: BatchHeader, most: int) -> list[int]: ...
