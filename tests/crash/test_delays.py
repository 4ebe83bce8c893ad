"""Delayed records, through kills of the broker: each once, none early, in order."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.delayed_load import DelayedLoad, Reader, create_topic, finish
from tests.support.small_disk import CannotMountError, small_disk

pytestmark = [pytest.mark.crash, pytest.mark.integration]


def run_kills(data_dir: Path, kills: int, pause_s: float) -> None:
    with BrokerProcess(data_dir) as broker:
        create_topic(broker.bootstrap, "delayed", 1, segment_bytes="300000")
        load, reader = DelayedLoad(broker.bootstrap, "delayed"), Reader(broker.bootstrap, "delayed")
        for _ in range(kills):
            time.sleep(pause_s)
            broker.kill()
            broker.start()
        finish(load, reader)


def test_five_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, 5, 1.5)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_kills_every_five_seconds_for_five_minutes(tmp_path: Path) -> None:
    run_kills(tmp_path, 60, 5.0)


def run_suspended(data_dir: Path, seconds: float) -> None:
    with BrokerProcess(data_dir) as broker:
        create_topic(broker.bootstrap, "delayed", 1)
        load, reader = DelayedLoad(broker.bootstrap, "delayed"), Reader(broker.bootstrap, "delayed")
        time.sleep(2)
        broker.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        broker.send_signal(signal.SIGCONT)
        finish(load, reader)


def test_a_broker_that_was_suspended_delivers_what_was_due_meanwhile(tmp_path: Path) -> None:
    run_suspended(tmp_path, 8)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_suspended_for_ten_minutes(tmp_path: Path) -> None:
    # Within the clients' own patience: what is sent meanwhile has to wait as long.
    run_suspended(tmp_path, 100)
    run_sleeping(tmp_path / "long", 600)


def run_sleeping(data_dir: Path, seconds: float) -> None:
    """Suspend a broker while nobody sends."""
    with BrokerProcess(data_dir) as broker:
        create_topic(broker.bootstrap, "delayed", 1)
        load = DelayedLoad(broker.bootstrap, "delayed")
        time.sleep(3)
        load.finish()
        broker.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        broker.send_signal(signal.SIGCONT)
        finish(load, Reader(broker.bootstrap, "delayed"))


@pytest.mark.nightly
def test_a_disk_that_is_full_while_records_fall_due(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", "64m") as disk:
            fill_while_due(disk)
    except CannotMountError as reason:
        pytest.skip(str(reason))


def fill_while_due(disk: Path) -> None:
    with BrokerProcess(disk / "data") as broker:
        create_topic(broker.bootstrap, "delayed", 1, segment_bytes="1000000")
        load = DelayedLoad(broker.bootstrap, "delayed")
        time.sleep(2)
        load.finish()
        reader = Reader(broker.bootstrap, "delayed")
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        time.sleep(9)  # all is due by now
        held_back = len(load.acknowledged) - len(reader.came)
        ballast.unlink()
        finish(load, reader)
        assert held_back > 100
        said = broker.log_text()
        assert "delayed records are due, and wait" in said
