"""The status of a cluster: its brokers, ZooKeeper servers, Spark and local processes."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbus.cli import failing_directories
from qbus.cli.command_config import read_command_config
from qbus.cli.failing_directories import directories_of
from qbus.cli.failures import Failure
from qbus.cli.output import Document
from qbus.cli.parameters import bootstrap as read_bootstrap
from qbus.cli.session import administration
from qbus.cli.targets import Target
from qbus.cli.topic.health import is_unavailable, is_under_replicated
from qbus.cli.topic.replicas import damaged
from qbus.clients import Admin
from qbus.clients.net.dial import dial
from qbus.errors import ApiError
from qbus.local_cluster import BROKER, SPARK_MASTER, SPARK_WORKER, ZOOKEEPER, Layout
from qbus.local_cluster.layout import node_name
from qbus.local_cluster.process import running_pid
from qbus.local_cluster.settings import HOST
from qbus.local_cluster.spark import describe as describe_spark
from qbus.local_cluster.spark import workers
from qbus.local_cluster.starting import need_settings
from qbus.local_cluster.zookeeper import mode

if TYPE_CHECKING:
    from qbus.clients.types import Node, PartitionDescription, TopicDescription
    from qbus.local_cluster import ClusterSettings
    from qbus.local_cluster.settings import SparkSettings

_TIMEOUT_S = 2.0
_REPORTED = (
    "cluster_id",
    "controller",
    "partitions",
    "under_replicated",
    "offline",
    "damaged",
    "failing_directories",
    "spark",
)


async def gather(data_dir: Path | None, zookeeper: str | None, target: Target) -> Document:
    """The status of the cluster that one of the arguments names; Failure if no node answers."""
    if data_dir is not None:
        if zookeeper is not None:
            raise click.UsageError("--data-dir or --zookeeper: name one of them.")
        layout = Layout(data_dir)
        return await _local(layout, need_settings(layout), target)
    if zookeeper is not None:
        found = replace(target, bootstrap=read_bootstrap(f"zk://{zookeeper}"))
        return await _reported(found) | {
            "zookeepers": [
                {"host": host, "port": port, "mode": mode(host, port)}
                for host, port in _servers(zookeeper)
            ]
        }
    return await _reported(target)


async def _local(layout: Layout, settings: "ClusterSettings", target: Target) -> Document:
    try:
        document = await _reported(_as_administrator(layout, settings, target))
    except (Failure, ApiError):
        document = dict.fromkeys(_REPORTED) | {"brokers": []}
    reported = {broker["id"]: broker for broker in document["brokers"]}

    def pid(kind: str, number: int) -> int | None:
        return running_pid(layout.pid_file(node_name(kind, number)), layout.directory)

    document["brokers"] = [
        _broker(number, "127.0.0.1", settings.port(BROKER, number), is_up=False)
        | {key: value for key, value in reported.get(number, {}).items() if value is not None}
        | {"pid": pid(BROKER, number)}
        for number in settings.numbers(BROKER)
    ]
    document["zookeepers"] = [
        {
            "id": number,
            "host": "127.0.0.1",
            "port": port,
            "mode": mode("127.0.0.1", port),
            "pid": pid(ZOOKEEPER, number),
        }
        for number, port in enumerate(settings.zookeeper_ports, 1)
    ]
    if settings.spark is not None:
        document["spark"] = spark_status(settings.spark, describe_spark(settings.spark), pid)
    return document


def _as_administrator(layout: Layout, settings: "ClusterSettings", target: Target) -> Target:
    """The cluster in a directory, as the administrator whose file is there.

    What a context or the environment says is for another cluster: no password of it is given here.
    """
    if not settings.secure:
        return Target(settings.bootstrap)
    if os.access(layout.client_properties, os.R_OK):
        found = read_command_config(layout.client_properties)
        return Target(settings.bootstrap, found.security, layout.client_properties)
    return replace(target, bootstrap=settings.bootstrap)


async def _reported(target: Target) -> Document:
    """The status as the brokers report it; brokers known only as replicas are down."""
    async with administration(target) as admin:
        return await describe(admin)


async def describe(admin: Admin) -> Document:
    """The brokers of a cluster, and its under-replicated and offline partitions."""
    topics = await admin.list_topics(internal=True)
    about = await admin.describe_cluster()
    partitions = [partition for topic in topics for partition in topic.partitions]
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(node for partition in partitions for node in partition.replicas)
    up, directories = await asyncio.gather(
        asyncio.gather(*(_is_up(node) for node in about.nodes)),
        directories_of(admin, (node.id for node in about.nodes)),
    )
    brokers = {
        node.id: _broker(node.id, node.host, node.port, is_up=is_up)
        for node, is_up in zip(about.nodes, up, strict=True)
    }
    for gone in replicas.keys() - brokers.keys():
        brokers[gone] = _broker(gone, None, None, is_up=False)
    return {
        "cluster_id": about.cluster_id,
        "controller": about.controller_id if about.controller_id in brokers else None,
        "brokers": [
            broker | {"leaders": leaders[number], "replicas": replicas[number]}
            for number, broker in sorted(brokers.items())
        ],
        "zookeepers": None,
        "spark": None,
        "partitions": len(partitions),
        "under_replicated": _named(topics, is_under_replicated),
        "offline": _named(topics, is_unavailable),
        "damaged": damaged(directories),
        "failing_directories": [
            failing_directories.document(found)
            for found in failing_directories.failing(directories)
        ],
    }


async def _is_up(node: "Node") -> bool:
    """Whether a broker accepts connections; a killed one stays registered for a while."""
    try:
        (await dial(node.host, node.port, _TIMEOUT_S)).close()
    except ApiError:
        return False
    return True


def _broker(number: int, host: str | None, port: int | None, *, is_up: bool) -> Document:
    return {
        "id": number,
        "up": is_up,
        "host": host,
        "port": port,
        "pid": None,
        "leaders": None,
        "replicas": None,
    }


def _named(
    topics: "list[TopicDescription]", chosen: "Callable[[PartitionDescription], bool]"
) -> list[Document]:
    return [
        {"topic": topic.name, "partition": partition.index}
        for topic in topics
        for partition in topic.partitions
        if chosen(partition)
    ]


def _servers(zookeeper: str) -> list[tuple[str, int]]:
    from qbus.metadata.zookeeper import ZooKeeperAddress

    return [*ZooKeeperAddress.parse(zookeeper).servers]


def spark_status(
    settings: "SparkSettings",
    reported: Document | None,
    pid: Callable[[str, int], int | None],
) -> Document:
    """The master, the workers and the applications.

    reported: the master's own status; None while it does not answer. pid: the process id of a node.
    """
    alive = workers(reported)
    return {
        "master": _node(SPARK_MASTER, settings.master_port, is_up=reported is not None)
        | {"pid": pid(SPARK_MASTER, 1), "page": settings.page},
        "workers": [
            _node(SPARK_WORKER, port, is_up=port in alive)
            | {"id": number, "pid": pid(SPARK_WORKER, number)}
            | {"cores": alive.get(port, {}).get("cores")}
            | {"cores_used": alive.get(port, {}).get("coresused")}
            for number, port in enumerate(settings.worker_ports, 1)
        ],
        "applications": [
            {"id": app["id"], "name": app["name"], "cores": app["cores"]}
            for app in (reported["activeapps"] if reported is not None else [])
        ],
    }


def _node(kind: str, port: int, *, is_up: bool) -> Document:
    return {
        "kind": kind.removeprefix("spark-"),
        "host": HOST,
        "port": port,
        "up": is_up,
        "cores": None,
        "cores_used": None,
    }
