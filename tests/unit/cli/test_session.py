"""Reaching a broker, or saying at once why not."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Self

import pytest

from qbus.cli import session
from qbus.cli.failures import Failure
from qbus.cli.session import administration, ensure_reachable
from qbus.cli.targets import Target
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import zookeeper


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken and refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_a_broker_that_listens(open_port: int) -> None:
    await ensure_reachable(Target(f"127.0.0.1:{open_port}"))


async def test_one_of_several_is_enough(open_port: int, closed_port: int) -> None:
    await ensure_reachable(Target(f"127.0.0.1:{closed_port},127.0.0.1:{open_port}"))


async def test_an_unreachable_broker_is_an_error_with_a_remedy(closed_port: int) -> None:
    with pytest.raises(Failure) as failure:
        await ensure_reachable(Target(f"127.0.0.1:{closed_port}"))
    assert failure.value.message == (
        f"cannot reach a broker at 127.0.0.1:{closed_port}: Connection refused."
        " Start one with 'qbus broker --data-dir DIR',"
        " or name another with --bootstrap HOST:PORT."
    )


async def test_every_broker_that_was_tried_is_named(closed_port: int) -> None:
    with pytest.raises(Failure, match=rf"127.0.0.1:{closed_port}.*; localhost:{closed_port}"):
        await ensure_reachable(Target(f"127.0.0.1:{closed_port},localhost:{closed_port}"))


async def test_zookeeper_that_knows_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_brokers(address: str, timeout: float, protocol: str) -> list[tuple[str, int]]:
        return []

    monkeypatch.setattr(zookeeper, "find_brokers", find_brokers)
    with pytest.raises(Failure, match=r"zk://zk1:2181/qbus: no broker is registered there now"):
        await ensure_reachable(Target("zk://zk1:2181/qbus"))


async def test_a_broker_that_zookeeper_knows(
    monkeypatch: pytest.MonkeyPatch, open_port: int
) -> None:
    async def find_brokers(address: str, timeout: float, protocol: str) -> list[tuple[str, int]]:
        return [("127.0.0.1", open_port)]

    monkeypatch.setattr(zookeeper, "find_brokers", find_brokers)
    await ensure_reachable(Target("zk://zk1:2181/qbus"))


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("topic lgs: UNKNOWN_TOPIC_OR_PARTITION", "; did you mean logs?"),
        ("the topic 'lgs' does not exist", "; did you mean logs?"),
        ("cannot delete topic lgs: the topic 'lgs' does not exist", "; did you mean logs?"),
        ("there is no topic lgs", "; did you mean logs?"),
        ("there is no topic zzz", ""),
        ("partition 7 is unknown", ""),
    ],
)
async def test_an_unknown_topic_is_compared_with_those_that_there_are(
    message: str, hint: str, monkeypatch: pytest.MonkeyPatch, open_port: int
) -> None:
    class Topics:
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def list_topics(self, *, internal: bool) -> list[SimpleNamespace]:
            assert internal
            return [SimpleNamespace(name="logs"), SimpleNamespace(name="orders")]

    monkeypatch.setattr(session, "admin_of", lambda _: Topics())
    with pytest.raises(ApiError) as raised:
        async with administration(Target(f"127.0.0.1:{open_port}")):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    assert str(raised.value) == message + hint
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
