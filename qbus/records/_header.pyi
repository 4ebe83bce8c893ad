from .header import BatchHeader, Buffer

REVISION: int

def plain_header(batch: Buffer) -> BatchHeader | None: ...
