REVISION: int

def has_at(frame: memoryview, position: int, expected: bytes) -> bool: ...
def read_produce(
    frame: memoryview, max_version: int
) -> tuple[int, int, int, int, str | bytes, int, memoryview] | None: ...
def read_transactional(
    frame: memoryview, max_version: int
) -> tuple[int, int, int, int, str | bytes, int, memoryview, str] | None: ...
def read_end(
    frame: memoryview, max_version: int
) -> tuple[int, int, str, int, int, bool] | None: ...
def read_fetch(
    frame: memoryview, max_version: int
) -> tuple[int, int, int, int, bool, str | bytes, int, int, int, int] | None: ...
def read_commit(
    frame: memoryview, max_version: int
) -> (
    tuple[
        int,
        int,
        str,
        int,
        str,
        str | None,
        list[tuple[str | bytes, bytes, int, int, int]],
        bytes,
    ]
    | None
): ...
def produced(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    index: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes: ...
def fetched(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    is_committed: bool,
    size: int,
    trailer: int,
) -> bytes: ...
