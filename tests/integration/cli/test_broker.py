"""`qbus broker`: what it is started with, and how it says what is wrong with that."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.readiness import answers
from tests.support.waiting import wait_until

from .conftest import Qbus

pytestmark = pytest.mark.integration


@pytest.fixture
def nobody() -> Qbus:
    """The command, with no broker to talk to."""
    return Qbus("127.0.0.1:1")


def test_settings_from_file_options_and_flags(tmp_path: Path) -> None:
    config = tmp_path / "qbus.toml"
    config.write_text('"num.partitions" = 7\n[log.retention]\nhours = 1\n')
    options = ("--config", str(config), "-o", "num.partitions=3", "--node-id", "5")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        settings = {
            s["name"]: s["value"] for s in Qbus(broker.bootstrap).json("broker-config", "--all")
        }
    assert settings["node.id"] == "5"
    assert settings["num.partitions"] == "3"
    assert settings["log.retention.hours"] == "1"


def test_ctrl_c_stops_it_in_order(tmp_path: Path, nobody: Qbus) -> None:
    port = free_port()
    with nobody.start(
        "broker", "--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}",
        stderr=subprocess.PIPE,
    ) as broker:  # fmt: skip
        wait_until(lambda: answers(port), "the broker")
        broker.send_signal(signal.SIGINT)
        assert broker.wait(30) == 0
        assert broker.stderr is not None
        assert b"Traceback" not in broker.stderr.read()


def test_a_missing_data_directory(nobody: Qbus) -> None:
    assert "--data-dir" in nobody.failure("broker", code=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-o", "nosuch=1"), "unknown configuration 'nosuch'"),
        (("-o", "num.partition=1"), "did you mean num.partitions?"),
        (("-o", "num.partitions=none"), "num.partitions=none: expected a whole number"),
        (("-o", "num.partitions"), "expected key=value"),
        (("--listen", "nowhere"), "host:port"),
        (("--listen", "127.0.0.1:99999"), "expected a port from 0 to 65535, not 99999"),
        (("--advertise", "0.0.0.0:9092"), "an address that clients can connect to"),
    ],
)
def test_bad_settings(tmp_path: Path, nobody: Qbus, options: tuple[str, ...], words: str) -> None:
    assert words in nobody.failure("broker", "--data-dir", str(tmp_path), *options)


def test_a_file_that_is_no_toml(tmp_path: Path, nobody: Qbus) -> None:
    config = tmp_path / "qbus.toml"
    config.write_bytes(b"\xff\0 = ")
    error = nobody.failure("broker", "--data-dir", str(tmp_path), "--config", str(config))
    assert f"{config}: not TOML" in error
    missing = ("--config", str(tmp_path / "absent"))
    assert "does not exist" in nobody.failure("broker", *missing, code=2)


def test_an_address_in_use(tmp_path: Path, nobody: Qbus) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = ("broker", "--data-dir", str(tmp_path), "--listen", address)
        with nobody.start(*command, stderr=subprocess.PIPE) as done:
            _, stderr = done.communicate(timeout=30)
    assert done.returncode == 1
    assert f"qbus: cannot listen on {address}: Address already in use" in stderr.decode()
    assert b"Traceback" not in stderr


def test_a_data_directory_that_is_a_file(tmp_path: Path, nobody: Qbus) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    assert "is a file" in nobody.failure("broker", "--data-dir", str(path), code=2)
