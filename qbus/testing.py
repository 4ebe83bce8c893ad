"""A broker in a container, for tests of programs that use Qbus.

Needs the package testcontainers (``pip install 'qbus[testing]'``), a Docker engine, and the image:
``docker build -f docker/Dockerfile -t qbus .``.
"""

import logging
import shlex
import time
from collections.abc import Mapping
from typing import Any, Self

from qbus.clients.blocking.admin import Admin
from qbus.errors import MissingExtra, QbusError
from qbus.extras import lacks

try:
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer
except ImportError as error:
    message = lacks("qbus.testing needs testcontainers", "testing")
    raise MissingExtra(message, name=error.name) from error

log = logging.getLogger(__name__)

PORT = 9092
_ADVERTISED = "/tmp/advertised"  # noqa: S108 - in the container
_PAUSE_S = 0.1
_ANSWER_S = 5.0


class QbusContainer(DockerContainer):
    """One broker that keeps its data in the container, and is gone with it; a context manager.

    ``bootstrap`` is for clients on this machine, once it is started::

        with QbusContainer() as broker, Producer(broker.bootstrap) as producer:
            producer.send_and_wait("orders", b"1")
    """

    def __init__(
        self,
        image: str = "qbus",
        *,
        options: Mapping[str, str] | None = None,
        startup_timeout: float = 60.0,
        **kwargs: Any,
    ) -> None:
        """``options``: settings of the broker, by their names, such as ``num.partitions``.

        startup_timeout: seconds until the broker has to answer. kwargs: those of DockerContainer.

        Raises :class:`~qbus.errors.QbusError` without a Docker engine.
        """
        try:
            super().__init__(image, **kwargs)
        except DockerException as error:
            raise QbusError(f"no Docker engine answers: {error}") from error
        self._startup_timeout = startup_timeout
        self.with_exposed_ports(PORT)
        self.with_command(["-c", start_script(options or {})])
        self.with_kwargs(entrypoint="sh")

    @property
    def bootstrap(self) -> str:
        """Host and port for clients on this machine."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(PORT)}"

    def start(self) -> Self:
        """Start it, and return when the broker answers.

        Raises :class:`~qbus.errors.QbusError`, with the end of the broker's log, if it does not in
        time; DockerException if there is no such image, or no container can be made of it.
        """
        super().start()
        # The port on this machine is known only now, and the broker tells it to its clients.
        written = self.exec(
            [
                "sh",
                "-c",
                f"echo {self.bootstrap} > {_ADVERTISED}.new && mv {_ADVERTISED}.new {_ADVERTISED}",
            ]
        )
        if written.exit_code:
            raise QbusError(f"the container does not start: {written.output.decode()}")
        self._wait_until_it_answers()
        return self

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + self._startup_timeout
        while True:
            try:
                with Admin(self.bootstrap, request_timeout_ms=round(_ANSWER_S * 1000)) as admin:
                    admin.describe_cluster()
            except QbusError as error:
                if time.monotonic() > deadline:
                    tail = b"\n".join(self.get_logs()).decode(errors="replace")[-2_000:]
                    raise QbusError(
                        f"the broker did not answer in {self._startup_timeout:g} s: {error}; its"
                        f" log ends with:\n{tail}"
                    ) from error
                log.info("%s is not ready: %s; trying again", self.bootstrap, error)
                time.sleep(_PAUSE_S)
            else:
                return


def start_script(options: Mapping[str, str]) -> str:
    """What the container's shell runs: the broker, once its address is known."""
    stated = "".join(f" -o {shlex.quote(f'{name}={value}')}" for name, value in options.items())
    return (
        f"while [ ! -f {_ADVERTISED} ]; do sleep 0.05; done;"
        f" exec qbus broker --data-dir /var/lib/qbus --listen 0.0.0.0:{PORT}"
        f' --advertise "$(cat {_ADVERTISED})" -o allow.insecure=true{stated}'
    )
