"""What is said where no broker answers, and what is left as it is."""

import pytest

from qbus.clients.errors import AuthenticationFailed, RequestTimedOut, TlsFailed, api_error
from qbus.clients.spark.cluster_options import ClusterOptions
from qbus.clients.spark.connections import Connections
from qbus.clients.spark.errors import NotReached
from qbus.clients.spark.options import Options
from qbus.errors import ApiError, ErrorCode
from tests.support.ports import free_port

NOBODY = f"127.0.0.1:{free_port()}"


@pytest.fixture
def connected() -> Connections:
    return Connections(ClusterOptions.of(Options({"qbus.bootstrap": NOBODY}), "test"))


def test_brokers_that_do_not_answer_are_named(connected: Connections) -> None:
    with pytest.raises(NotReached, match=rf"no broker of {NOBODY} \(option .*Check that the"):
        connected.ask(connected.cluster.refresh(["topic"]))


def test_an_error_of_a_broker_is_an_answer(connected: Connections) -> None:
    async def refused() -> None:
        raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, of="topic")

    async def not_ready() -> None:
        raise RequestTimedOut("not done in 1 s") from api_error(ErrorCode.LEADER_NOT_AVAILABLE)

    async def not_trusted() -> None:
        raise TlsFailed("b:1: its certificate is not trusted")

    async def not_known() -> None:
        raise RequestTimedOut("not done in 1 s") from AuthenticationFailed("b:1: no", "PLAIN")

    for coroutine in (refused(), not_ready(), not_trusted(), not_known()):
        with pytest.raises(ApiError) as raised:
            connected.ask(coroutine)
        assert not isinstance(raised.value, NotReached)
