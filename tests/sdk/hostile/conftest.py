"""No task of a client may fail without an error that a caller sees."""

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_fails_unheard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail for what asyncio only logs: exceptions in callbacks, or in tasks that nobody awaits."""
    yield
    gc.collect()
    unheard = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "asyncio"
        and record.levelno >= logging.ERROR
        and "client_connected_cb" not in record.msg  # a fake broker's own mishap
    ]
    assert not unheard
