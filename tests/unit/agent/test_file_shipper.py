"""What the shipping of files tells of itself."""

import errno
import os
from pathlib import Path

import pytest

from qbus.agent import file_shipper as module
from qbus.agent.config import parse
from qbus.agent.file_shipper import FileShipper
from tests.support.waiting import eventually

CONFIG = """
bootstrap = "127.0.0.1:1"
topic = "lines"
[[source]]
paths = ["{directory}/*.log"]
"""


async def test_a_failed_sync_of_positions_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SYNC_INTERVAL", 0.01)

    def broken(_: int) -> None:
        monkeypatch.setattr(module, "_SYNC_INTERVAL", 600.0)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        files = FileShipper(parse(CONFIG.format(directory=tmp_path).encode()), tmp_path / "data")
        await files.start()
        await eventually(lambda: files.error is not None)
    assert str(files.error).startswith("positions may not be on the disk: ")
    await files.stop()
