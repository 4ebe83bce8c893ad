"""A configuration in a file: taken at the start, and again at each SIGHUP."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.errors import ConfigError
from qbus.service.control import Configured
from qbus.service.control.file import follow_file
from tests.support.waiting import eventually


def read(text: bytes) -> str:
    if text == b"bad":
        raise ConfigError("it is bad")
    return text.decode()


@pytest.fixture
def applied() -> list[str]:
    return []


@pytest.fixture
async def configured(applied: list[str]) -> AsyncIterator[Configured[str]]:
    async def apply(config: str) -> None:
        applied.append(config)

    yield Configured(read, apply)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_it_is_read_again_at_each_signal(
    configured: Configured[str], applied: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text("one")
    await follow_file(file, configured)
    assert applied == ["one"]
    file.write_text("two")
    os.kill(os.getpid(), signal.SIGHUP)
    await eventually(lambda: applied == ["one", "two"])


async def test_a_bad_one_or_none_leaves_the_old_one_in_force(
    configured: Configured[str], applied: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text("one")
    await follow_file(file, configured)
    file.write_text("bad")
    os.kill(os.getpid(), signal.SIGHUP)
    await eventually(lambda: configured.reason == "it is bad")
    file.unlink()
    os.kill(os.getpid(), signal.SIGHUP)
    await eventually(lambda: "No such file" in str(configured.reason))
    assert (applied, configured.config) == (["one"], "one")


async def test_the_first_one_has_to_be_good(configured: Configured[str], tmp_path: Path) -> None:
    file = tmp_path / "config"
    with pytest.raises(ConfigError, match=r"cannot read .*config: No such file"):
        await follow_file(file, configured)
    file.write_text("bad")
    with pytest.raises(ConfigError, match="config: it is bad"):
        await follow_file(file, configured)
