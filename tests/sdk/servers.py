"""The servers for the tests of the SDK: our broker, and Apache Kafka."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

from perf.peers import kafka
from tests.support.broker_process import BrokerProcess
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess

#: The same for both: groups start at once, and a dead member is noticed soon.
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}
#: A killed broker is let back when the quorum, which is itself, no longer counts it as alive.
_KAFKA_SETTINGS = {
    **_SETTINGS,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "500",
}


class Server(ABC):
    """A server to test with, running between entry and exit.

    Through ``proxy`` clients reach a broker that tells them to come back the same way.
    """

    name: str

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._advertised_port = free_port()
        self._running = ExitStack()

    @property
    @abstractmethod
    def process(self) -> ServerProcess:
        """The server that nothing disturbs."""

    @property
    @abstractmethod
    def proxied_process(self) -> ServerProcess:
        """The server behind the proxy."""

    @property
    @abstractmethod
    def _proxied_port(self) -> int: ...

    @property
    def bootstrap(self) -> str:
        """The address that nothing disturbs."""
        return self.process.bootstrap

    def proxy(self) -> FaultProxy:
        """A proxy, not yet listening, in front of :attr:`proxied_process`."""
        return FaultProxy(self._proxied_port, self._advertised_port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()


class QbusServer(Server):
    """Our broker; the one behind the proxy is a process of its own, killed as one likes."""

    name = "qbus"

    @cached_property
    def process(self) -> ServerProcess:
        return self._start("main")

    @cached_property
    def proxied_process(self) -> ServerProcess:
        return self._start("proxied", "--advertise", f"127.0.0.1:{self._advertised_port}")

    @property
    def _proxied_port(self) -> int:
        return self.proxied_process.port

    def _start(self, name: str, *options: str) -> ServerProcess:
        settings = [word for pair in _SETTINGS.items() for word in ("-o", "=".join(pair))]
        broker = BrokerProcess(self._directory / name, *options, *settings)
        return self._running.enter_context(broker)


class KafkaServer(Server):
    """Apache Kafka, one for everything: it takes its time to start."""

    name = "kafka"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._second_port = free_port()

    @cached_property
    def process(self) -> ServerProcess:
        ports = (self._second_port, self._advertised_port)
        broker = kafka.KafkaProcess(self._directory, _KAFKA_SETTINGS, heap="512M", proxied=ports)
        return self._running.enter_context(broker)

    @property
    def proxied_process(self) -> ServerProcess:
        return self.process

    @property
    def _proxied_port(self) -> int:
        assert self.process.alive
        return self._second_port


def missing(name: str) -> str | None:
    """Why that server cannot run here, or None when it can."""
    return kafka.missing() if name == KafkaServer.name else None


SERVERS: dict[str, type[Server]] = {kind.name: kind for kind in (QbusServer, KafkaServer)}
