"""Delayed records, through kills of the broker: each once, none early, in order."""

import time
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.delayed_load import DelayedLoad, Reader, create_topic, finish

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
