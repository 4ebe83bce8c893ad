"""The nodes of a cluster: the command that runs each, and the check that it serves."""

import socket
import sys
from collections.abc import Iterator

from qbus.errors import WireError
from qbus.frames import PREFIX
from qbus.local_cluster import secure, spark, zookeeper
from qbus.local_cluster.layout import (
    BROKER,
    SPARK_MASTER,
    SPARK_WORKER,
    ZOOKEEPER,
    Layout,
    node_name,
)
from qbus.local_cluster.ports import free_ports, listens
from qbus.local_cluster.settings import HOST, ClusterSettings
from qbus.wire import ApiKey, decode_response, encode_request
from qbus.wire.messages.metadata import MetadataRequest

_METADATA_VERSION = 9


def commands(layout: Layout, settings: ClusterSettings) -> dict[str, list[str]]:
    """The command lines of all nodes by name, in the order in which they start.

    Writes the nodes' configuration files. Raises LocalClusterError if a program is missing.
    """
    return {
        **dict(_zookeepers(layout, settings)),
        **dict(_brokers(layout, settings)),
        **dict(_spark(layout, settings)),
    }


def serves(settings: ClusterSettings, kind: str, number: int) -> bool:
    """Whether a node serves."""
    port = settings.port(kind, number)
    if kind == ZOOKEEPER:
        return zookeeper.mode(HOST, port) is not None
    if kind == BROKER or settings.spark is None:
        return listens(port)
    status = spark.describe(settings.spark)
    return status is not None if kind == SPARK_MASTER else port in spark.workers(status)


def known_brokers(settings: ClusterSettings, number: int) -> int:
    """How many brokers of the cluster a broker knows by now; 0 if it does not answer."""
    request = encode_request(
        ApiKey.METADATA, _METADATA_VERSION, 0, "qbus-cluster", MetadataRequest(topics=[])
    )
    address = HOST, settings.port(BROKER, number)
    try:
        with socket.create_connection(address, timeout=1.0) as sock, sock.makefile("rb") as answer:
            sock.sendall(b"".join(request))
            size = int.from_bytes(answer.read(PREFIX), "big")
            frame = memoryview(answer.read(size))
        return len(decode_response(ApiKey.METADATA, _METADATA_VERSION, frame)[1].brokers)
    except (OSError, WireError):
        return 0


def _zookeepers(layout: Layout, settings: ClusterSettings) -> Iterator[tuple[str, list[str]]]:
    ensemble: dict[int, str] = {}
    numbers = settings.numbers(ZOOKEEPER)
    if len(numbers) > 1:
        peers = free_ports(2 * len(numbers), settings.zookeeper_ports)
        ensemble = {n: f"{HOST}:{peers[2 * n - 2]}:{peers[2 * n - 1]}" for n in numbers}
    for number in numbers:
        name, port = node_name(ZOOKEEPER, number), settings.port(ZOOKEEPER, number)
        config = zookeeper.configure(layout.data(name), number, HOST, port, ensemble)
        yield name, zookeeper.command(config)


def _brokers(layout: Layout, settings: ClusterSettings) -> Iterator[tuple[str, list[str]]]:
    if settings.secure:
        secure.prepare(layout, settings)
    replicas = f"default.replication.factor={min(3, settings.nodes)}"
    for number in settings.numbers(BROKER):
        options = [replicas, *settings.options_of(number)]
        name, port = node_name(BROKER, number), settings.port(BROKER, number)
        listen = f"{secure.PROTOCOL}://{HOST}:{port}" if settings.secure else f"{HOST}:{port}"
        command = [
            *(sys.executable, "-m", "qbus", "broker", "--data-dir", str(layout.data(name))),
            *("--node-id", str(number), "--listen", listen),
            *("--zookeeper", settings.zookeeper),
        ]
        if settings.secure:
            command += ["--config", str(layout.broker_config(name))]
        yield name, [*command, *(part for option in options for part in ("-o", option))]


def _spark(layout: Layout, settings: ClusterSettings) -> Iterator[tuple[str, list[str]]]:
    if settings.spark is None:
        return
    master = node_name(SPARK_MASTER, 1)
    yield master, spark.master_command(settings.spark, layout.data(master))
    for number in settings.numbers(SPARK_WORKER):
        name = node_name(SPARK_WORKER, number)
        yield name, spark.worker_command(settings.spark, number, layout.data(name))
