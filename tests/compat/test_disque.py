"""Every command of Disque with good and bad input: replies as Disque itself gives them.

``QBUS_DISQUE_SERVER`` may name a ``disque-server``: the scripts are then run against that, too.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.resp_client import RespClient
from tests.support.waiting import wait_until

from .disque.running import run
from .disque.table import TABLE

pytestmark = pytest.mark.compat

_DISQUE = os.environ.get("QBUS_DISQUE_SERVER")


def _qbus(directory: Path) -> Iterator[int]:
    port = free_port()
    with BrokerProcess(directory / "data", "--disque-listen", f"127.0.0.1:{port}"):
        yield port


def _disque(directory: Path) -> Iterator[int]:
    port = free_port()
    command = [str(_DISQUE), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: _answers(port), "disque-server to answer")
            yield port
        finally:
            process.kill()


def _answers(port: int) -> bool:
    try:
        with RespClient(port) as client:
            return bool(client("PING") == "PONG")
    except OSError:
        return False


@pytest.fixture(scope="module", params=["qbus", "disque"] if _DISQUE else ["qbus"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where a server listens for RESP."""
    serve = _qbus if request.param == "qbus" else _disque
    yield from serve(tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("script", TABLE)
def test_a_script_is_answered_as_by_disque(script: str, port: int) -> None:
    with RespClient(port) as client:
        run(client, TABLE[script])
