"""An agent at a broker that asks for a password: it waits until it has the right one."""

import asyncio
from pathlib import Path

import pytest

from qbus.agent.config import AgentConfig, parse
from qbus.agent.file_shipper import FileShipper
from qbus.clock import SystemClock
from qbus.errors import ConfigError
from tests.support.secure_broker import SecureBroker, certificates
from tests.support.waiting import eventually

CONFIG = """
bootstrap = "{bootstrap}"
topic = "t"
[security]
protocol = "SASL_SSL"
ssl.ca.location = "{ca}"
sasl.mechanism = "SCRAM-SHA-256"
sasl.username = "alice"
sasl.password = "file:{directory}/password"
[[source]]
paths = ["{directory}/*.log"]
from_beginning = true
"""


def config(broker: SecureBroker, directory: Path) -> AgentConfig:
    text = CONFIG.format(bootstrap=broker.bootstrap, ca=certificates().ca, directory=directory)
    return parse(text.encode())


def shipper(broker: SecureBroker, directory: Path) -> FileShipper:
    return FileShipper(config(broker, directory), directory / "data", SystemClock())


def add(directory: Path, line: str) -> None:
    with (directory / "a.log").open("a") as file:
        file.write(f"{line}\n")


async def test_lines_wait_for_the_right_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.agent.delivery.dispatcher._PAUSE_S", 0.05)
    monkeypatch.setattr("qbus.agent.delivery.partition_sender._PAUSE_S", 0.05, raising=False)
    (tmp_path / "password").write_text("hunter2")
    add(tmp_path, "first")
    async with SecureBroker(tls=certificates().context()) as broker:
        files = shipper(broker, tmp_path)
        await files.start()
        await eventually(lambda: files.error is not None)
        assert "authentication of 'alice' with SCRAM-SHA-256 failed" in str(files.error)
        assert "hunter2" not in str(files.error)
        (tmp_path / "password").write_text("secret")
        await eventually(lambda: broker.logs["t", 0].end == 1)

        broker.users["alice"] = "changed"  # under the running agent
        broker.hangup()
        add(tmp_path, "second")
        await eventually(lambda: files.error is not None)
        (tmp_path / "password").write_text("changed")
        await eventually(lambda: broker.logs["t", 0].end == 2)
        await eventually(lambda: files.error is None)
        await files.stop()


async def test_a_password_that_is_not_there(tmp_path: Path) -> None:
    async with SecureBroker() as broker:
        files = shipper(broker, tmp_path)
        with pytest.raises(ConfigError, match=r"password: No such file"):
            await files.start()
        await asyncio.sleep(0)
