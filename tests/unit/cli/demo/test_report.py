"""The demo's account, and what it says when something differs."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from qbus.cli.demo.latency import Percentiles
from qbus.cli.demo.report import next_steps, report
from qbus.cli.demo.run import partition_files

ACCOUNT: dict[str, Any] = {
    "form": {
        "codec": "compiled",
        "compiled": False,
        "why_not_compiled": "nothing is compiled here",
    },
    "file": "/var/log/app log",
    "file_bytes": 1000,
    "times": 1,
    "records": 2000,
    "bytes": 1_500_000,
    "partitions": 4,
    "produce_seconds": 0.5,
    "consume_seconds": 0.0,
    "consumed_records": 2000,
    "members": [[0, 1], []],
    "latency_ms": {
        "acknowledged": {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0},
        "delivered": {"p50": 1.5, "p95": 2.5, "p99": 3.5, "max": 4.5},
    },
    "latency_records": 1000,
    "sent_sha256": "aaaa",
    "received_sha256": "aaaa",
    "difference": None,
    "broker_start_seconds": 0.25,
    "broker_idle_bytes": 30_000_000,
    "broker_loaded_bytes": 40_000_000,
    "broker_exit_code": 0,
    "files": [{"directory": "demo-0", "segments": 1, "log_bytes": 2000, "index_bytes": 8}],
}


def shown(account: dict[str, Any]) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200, markup=False).print(report(account))
    return stream.getvalue()


def test_the_report_has_all_measurements() -> None:
    text = shown(ACCOUNT)
    lines = [line.split() for line in text.splitlines()]
    assert [
        "produced",
        "(acks=all,",
        "on",
        "disk)",
        "2,000",
        "1.5",
        "MB",
        "0.50",
        "s",
        "4,000",
        "3.0",
        "MB/s",
    ] in lines
    assert [
        "sent",
        "to",
        "acknowledged",
        "1.00",
        "ms",
        "2.00",
        "ms",
        "3.00",
        "ms",
        "4.00",
        "ms",
    ] in lines
    assert ["demo-0", "1", "2.0", "KB", "8", "B"] in lines
    assert "member 1 read partitions 0, 1 and member 2 read partitions none" in text
    assert "Every byte of /var/log/app log (1.0 KB) came back, in order: SHA-256 aaaa." in text


def test_the_start_is_said_with_what_it_measures() -> None:
    text = " ".join(shown(ACCOUNT).split())
    assert "The broker listened 0.25 s after its process was started" in text
    assert "a first start reads its files from disk and compiles its modules" in text


def test_several_times_over_is_said() -> None:
    assert "(1.0 KB), 7 times over came back" in shown({**ACCOUNT, "times": 7})


def test_a_difference_is_said_instead() -> None:
    text = shown({**ACCOUNT, "difference": "byte 5 differs", "received_sha256": "bbbb"})
    assert "Every byte" not in text
    assert "byte 5 differs. SHA-256 sent aaaa, received bbbb" in text


def test_the_next_steps_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv/bin/qbus")])
    steps = next_steps("./data", "/var/log/app log")
    assert "  .venv/bin/qbus broker --data-dir ./data\n" in steps
    assert "  .venv/bin/qbus produce logs '/var/log/app log'\n" in steps
    monkeypatch.setattr("sys.argv", ["/usr/lib/python3/qbus/__main__.py"])
    assert " -m qbus broker" in next_steps("./data", "x")


def test_percentiles_are_order_statistics() -> None:
    seconds = [n / 1000 for n in range(1, 101)]
    assert Percentiles.of(seconds[::-1]) == pytest.approx((50, 95, 99, 100))
    assert Percentiles.of([0.007]) == pytest.approx((7, 7, 7, 7))


def test_files_of_partitions(tmp_path: Path) -> None:
    directory = tmp_path / "demo-0"
    directory.mkdir()
    for name, size in (("0.log", 10), ("5.log", 20), ("0.index", 8), ("0.timeindex", 12)):
        (directory / name).write_bytes(bytes(size))
    (tmp_path / "metadata.db").touch()
    (tmp_path / "other").mkdir()
    assert partition_files(tmp_path) == [
        {"directory": "demo-0", "segments": 2, "log_bytes": 30, "index_bytes": 20}
    ]


def test_the_report_says_which_form_of_qbus_ran() -> None:
    text = shown(ACCOUNT)
    assert "ran with: compiled codec, broker not compiled: nothing is compiled here." in text
    assert "`make compile` compiles all" in text
    all_compiled = {"codec": "compiled", "compiled": True, "why_not_compiled": None}
    text = shown({**ACCOUNT, "form": all_compiled})
    assert "The broker and the clients ran compiled." in text
    assert "make compile" not in text
