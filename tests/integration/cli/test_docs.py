"""The documentation of metrics and files agrees with a running broker."""

import re
import urllib.request
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port

from .conftest import Qbus

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[3] / "docs"


def test_the_metrics_of_the_documentation_are_those_that_are_served(tmp_path: Path) -> None:
    port = free_port()
    options = ("--metrics-listen", f"127.0.0.1:{port}", "--disque-listen", "127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        Qbus(broker.bootstrap)("topic", "create", "t", "--config", "qbus.delay.enable=true")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text = response.read().decode()
    served = set(re.findall(r"^# TYPE (qbus_\w+) ", text, re.MULTILINE))
    table = (DOCS / "operations.md").read_text().split("## Metrics")[1].split("\n## ")[0]
    assert set(re.findall(r"`(qbus_\w+)`", table)) == served


def test_the_files_of_the_documentation_are_those_that_are_written(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        qbus = Qbus(broker.bootstrap)
        qbus("topic", "create", "t", "--config", "segment.bytes=2000")
        for _ in range(3):
            qbus("produce", "t", stdin=b"line of text\n" * 100)
    text = (DOCS / "files.md").read_text()
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            name = re.sub(r"^\d{20}", "<offset>", path.name)
            assert f"`{name}`" in text, path
