"""Apache RocketMQ as a peer: a name server and a broker, each in a JVM of its own, and a load.

Timer messages with default settings, among them a precision of one second; flushed by the system
when it likes. The load is ``schedulers/RocketMq.java``, run from its source.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from perf.peers.maven import Artifact, Unavailable, fetched
from tests.support.ports import free_port
from tests.support.waiting import wait_until

#: The newest release that Maven Central holds whole.
VERSION = "5.5.0"
_DEPENDENCIES = tuple(
    Artifact("org.apache.rocketmq", f"rocketmq-{name}", VERSION)
    for name in ("broker", "namesrv", "client")
)
_LOAD = Path(__file__).with_name("schedulers") / "RocketMq.java"
# Those of its start scripts that Java 17 needs.
_OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
_BROKER_HEAP = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC")
_PATIENCE_S = 60.0


def missing() -> str | None:
    """Why RocketMQ cannot run here, or None when it can. Fetches its jars at first use."""
    try:
        _classpath()
    except Unavailable as reason:
        return str(reason)
    return None


@contextmanager
def running() -> Iterator[tuple[str, psutil.Process]]:
    """A fresh RocketMQ: the address of its name server, and the broker's process."""
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory, ExitStack() as stack:
        names, port = free_port(), _port_with_neighbour()
        settings = {
            "brokerName": "perf",
            "brokerId": "0",
            "listenPort": str(port),
            "haListenPort": str(free_port()),
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": f"127.0.0.1:{names}",
            "storePathRootDir": f"{directory}/store",
            "storePathCommitLog": f"{directory}/store/commitlog",
            "flushDiskType": "ASYNC_FLUSH",
            # Else it refuses what waits for more than 200 ms, as some does at full load.
            "waitTimeMillsInSendQueue": "30000",
        }
        for name, main, heap, listening, values in (
            ("names", "namesrv.NamesrvStartup", ("-Xmx256m",), names, {"listenPort": str(names)}),
            ("broker", "broker.BrokerStartup", _BROKER_HEAP, port, settings),
        ):
            path = Path(directory, f"{name}.properties")
            values = {"bindAddress": "127.0.0.1", **values}
            path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            command = _java(directory, *heap, *_OPENED, "-cp", _classpath())
            command += [f"org.apache.rocketmq.{main}", "-c", str(path)]
            process = psutil.Process(stack.enter_context(_process(command)).pid)
            _await(process, listening)
        yield f"127.0.0.1:{names}", process


def run(
    address: str, count: int, lead_ms: int, spread_ms: int, size: int, *, wait: bool
) -> dict[str, float]:
    """Load it as :func:`perf.delay_load.load` does; the same results."""
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
        command = _java(directory, "-Xmx512m", "-cp", _classpath(), str(_LOAD), address)
        command += map(str, (count, lead_ms, spread_ms, size, int(wait)))
        done = subprocess.run(command, check=True, capture_output=True, timeout=600)
    result: dict[str, float] = {}
    for line in done.stdout.splitlines():
        if line.startswith(b"{"):  # what is left is its log
            result |= json.loads(line)
    return result


def _classpath() -> str:
    return f"{fetched(f'rocketmq-{VERSION}', _DEPENDENCIES)}/*"


def _java(home: str, *arguments: str) -> list[str]:
    """Its logs go below the home directory."""
    return ["java", f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", *arguments]


def _port_with_neighbour() -> int:
    """A free port; the broker takes the one two below it, too."""
    while True:
        port = free_port()
        taken = {one.laddr.port for one in psutil.net_connections("tcp") if one.laddr}
        if port - 2 not in taken:
            return port


@contextmanager
def _process(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _await(process: psutil.Process, port: int) -> None:
    def listens() -> bool:
        return any(
            one.laddr and one.laddr.port == port for one in process.net_connections(kind="tcp")
        )

    wait_until(listens, "RocketMQ to listen", _PATIENCE_S)
