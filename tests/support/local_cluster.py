"""A cluster run by `qbus cluster up`: brokers, ZooKeeper and, if asked for, Spark."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.support.ports import free_ports
from tests.support.server_process import StartupTimeout
from tests.support.waiting import wait_until

PATIENCE = 120.0
"""Seconds to wait for something that takes a few."""


class Up:
    """The process of `qbus cluster up`, and commands against its cluster.

    ``options`` are settings of the brokers; ``spark`` adds a master and two workers; ``secure``
    has them ask for passwords, and ``qbus`` log in as the administrator.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        nodes: int = 3,
        spark: bool = False,
        secure: bool = False,
        base_port: int | None = None,
    ) -> None:
        self.directory = directory
        self.base_port = base_port or free_ports(3)[0]
        self._nodes, self._is_secure = nodes, secure
        self.log = directory.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                _qbus(
                    *("cluster", "up", "--data-dir", str(directory)),
                    *("--base-port", str(self.base_port), "--nodes", str(nodes)),
                    *(word for option in options for word in ("-o", option)),
                    *(("--spark",) if spark else ()),
                    *(("--secure",) if secure else ()),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # As installed, so with compiled bytecode, whatever the tests run under.
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.base_port + number}" for number in range(self._nodes))

    @property
    def client_properties(self) -> Path:
        """What the administrator of a secure cluster connects with."""
        return self.directory / "client.properties"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which commands find the cluster."""
        if self._is_secure:
            return {"QBUS_COMMAND_CONFIG": str(self.client_properties)}
        return {"QBUS_BOOTSTRAP": self.bootstrap}

    def wait_up(self) -> None:
        """Wait until all nodes serve; raises StartupTimeout."""
        deadline = time.monotonic() + PATIENCE
        while "the cluster is up" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            if time.monotonic() > deadline:
                raise StartupTimeout(f"the cluster is not up:\n{self.log.read_text()}")
            time.sleep(0.02)

    def pid(self, name: str) -> int:
        return int((self.directory / f"{name}.pid").read_text())

    def qbus(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
        done = subprocess.run(
            _qbus(*arguments, "--json"),
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode in codes, done.stderr
        return json.loads(done.stdout)

    def status(self) -> Any:
        return self.qbus("cluster", "status", "--data-dir", str(self.directory))

    def start_node(self, number: int, *kind: str) -> None:
        """Start broker ``number`` again, or the node of the kind that an option names."""
        self.qbus("cluster", "start-node", str(number), *kind, "--data-dir", str(self.directory))

    def is_whole(self) -> bool:
        status = self.status()
        return all(broker["up"] for broker in status["brokers"]) and not (
            status["under_replicated"] or status["offline"]
        )

    def wait_whole(self) -> None:
        wait_until(self.is_whole, "a cluster that is whole", PATIENCE, pause=0.2)

    def wait_gone(self, name: str) -> None:
        file = self.directory / f"{name}.pid"
        wait_until(lambda: not file.exists(), f"the end of {name}", PATIENCE)

    def __enter__(self) -> Self:
        try:
            self.wait_up()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill the process, if it runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Have the process stop the cluster in order."""
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()


def _qbus(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "qbus", *arguments]
