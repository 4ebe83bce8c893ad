"""A pipeline of requests does not keep others waiting: connections take turns."""

import pytest

from qbus.broker.net import connection
from qbus.broker.net.peer import Peer
from qbus.broker.net.transport import Part

from .test_listener import connected, framed, listening

pytestmark = pytest.mark.sources


class Noting:
    """Echoes, and notes the order."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []

    def __call__(self, peer: Peer, frame: memoryview) -> list[Part]:
        self.handled.append(bytes(frame))
        return [framed(bytes(frame))]


async def test_two_pipelines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_TURN_S", -1.0)
    noting = Noting()
    async with (
        listening(noting) as listener,
        connected(listener) as first,
        connected(listener) as second,
    ):
        first.send(*(b"a%d" % number for number in range(50)))
        second.send(*(b"b%d" % number for number in range(50)))
        for number in range(50):
            assert await first.receive() == b"a%d" % number
            assert await second.receive() == b"b%d" % number
    changes = sum(
        one[:1] != other[:1] for one, other in zip(noting.handled, noting.handled[1:], strict=False)
    )
    assert changes > 50


async def test_a_pipeline_goes_on_without_anything_more_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "MAX_TURN_S", -1.0)
    async with listening(Noting()) as listener, connected(listener) as client:
        client.send(*([b"one"] * 200), b"last")
        for _ in range(200):
            assert await client.receive() == b"one"
        assert await client.receive() == b"last"
        client.send(b"again")
        assert await client.receive() == b"again"


async def test_a_client_that_goes_away_has_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_TURN_S", -1.0)
    async with listening(Noting()) as listener:
        async with connected(listener) as gone:
            gone.send(*([b"one"] * 200))
            assert await gone.receive() == b"one"
        async with connected(listener) as other:
            other.send(b"two")
            assert await other.receive() == b"two"


async def test_short_pipelines_are_handled_at_once() -> None:
    noting = Noting()
    async with listening(noting) as listener, connected(listener) as client:
        client.send(*(b"%d" % number for number in range(20)))
        assert await client.receive() == b"0"
        assert len(noting.handled) == 20
