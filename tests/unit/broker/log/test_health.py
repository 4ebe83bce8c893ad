import errno

import pytest

from qbus.broker.log.health import DirectoryHealth
from qbus.errors import ApiError, ErrorCode


def test_the_first_failure_is_final_and_told_once() -> None:
    health = DirectoryHealth("/data")
    told: list[str] = []
    health.on_failure(told.append)
    health.check()
    error = health.fail("sync", OSError(errno.EIO, "first"))
    health.fail("write", OSError(errno.EIO, "second"))
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert health.offline
    assert told == ["/data"]
    with pytest.raises(ApiError, match=r"/data is offline: sync: .*first"):
        health.check()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_failure(number: int) -> None:
    health = DirectoryHealth("/data")
    error = health.judge("write", OSError(number, "full"))
    assert (error.code, error.retriable) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert not health.offline
    health.judge("write", OSError(errno.EROFS, "read-only"))
    assert health.offline
