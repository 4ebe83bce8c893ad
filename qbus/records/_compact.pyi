from .compact import PortableOffsetMap, PortableSifter
from .header import BatchHeader, Buffer

REVISION: int

OffsetMap = PortableOffsetMap
Sifter = PortableSifter

def rebased(payload: Buffer, header: BatchHeader, base_timestamp: int) -> bytes: ...
def first_keyless(payload: Buffer, header: BatchHeader) -> int: ...
