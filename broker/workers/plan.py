"""Which node id, address and directories each worker has, and which machine all of them."""

import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbus.config import Address, BrokerConfig
from qbus.errors import ConfigError

from ..boot import current_boot
from ..log.names import parse_partition

DIRECTORY = "workers"
"""In each data directory: those of the workers after the first, by their numbers."""

_HIGHEST_PORT = 65535


def worker_count(text: str) -> int:
    """How many workers ``--workers`` asks for: a number from 1 on, or ``auto``, one for each core.

    Raises:
        ValueError: it is neither.
    """
    if text == "auto":
        return len(os.sched_getaffinity(0))
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_WORKERS):
        raise ValueError(f"{text!r}: expected a number from 1 to {_MOST_WORKERS}, or auto")
    return int(text)


_MOST_WORKERS = 256


def worker_configs(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """The configurations of ``count`` workers.

    The first is the broker that would run alone: with its node id, its address and its data. The
    others have the node ids and the ports after that, and directories below its own. Where any free
    port will do, one is found now and kept.

    Raises:
        ConfigError: there are not so many ports.
    """
    listening = config.listen_address
    ports = _ports(listening, count, "listeners")
    configs = [_config_of(config, number, ports[number]) for number in range(count)]
    jobs = config.disque_address
    if jobs is None:
        return configs
    ports = _ports(jobs, count, "disque.listen")
    return [
        one.with_static({"disque.listen": str(Address(jobs.host, port))})
        for one, port in zip(configs, ports, strict=True)
    ]


def _config_of(config: BrokerConfig, number: int, port: int) -> BrokerConfig:
    changes: dict[str, Any] = {
        "node.id": config.node_id + number,
        "listeners": str(Address(config.listen_address.host, port)),
        "disque.listen": "",
        "metrics.listen": "",
    }
    jobs = config.advertised_disque_address
    if number:
        changes["log.dirs"] = [f"{one}/{DIRECTORY}/{number + 1}" for one in config.log_dirs]
        advertised = config.advertised_address
        if advertised is not None:
            following = _need_port(advertised.port + number, "advertised.listeners")
            changes["advertised.listeners"] = [str(Address(advertised.host, following))]
            if jobs is not None:
                following = _need_port(jobs.port + number, "advertised.listeners")
                changes["advertised.listeners"].append(f"DISQUE://{Address(jobs.host, following)}")
    return config.with_static(changes)


def _ports(address: Address, count: int, name: str) -> list[int]:
    if address.port:
        return [_need_port(address.port + number, name) for number in range(count)]
    return free_ports(address.host, count)


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody listens on now. Raises OSError where ``host`` is no address of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def machine_of(config: BrokerConfig) -> str:
    """What the workers have in common, and no others: the place of their data on this machine.

    It outlives the supervisor, whose brokers are registered for a while if it is killed. Where the
    system does not tell its boots apart, it does not. Makes the directory. Raises OSError.
    """
    boot = current_boot()
    if not boot:
        return uuid.uuid4().hex
    directory = Path(config.log_dirs[0])
    directory.mkdir(parents=True, exist_ok=True)
    place = directory.stat()
    return f"{boot}/{place.st_dev}/{place.st_ino}"


def _need_port(port: int, name: str) -> int:
    if port > _HIGHEST_PORT:
        raise ConfigError(f"{name}: each worker takes a port after the first, and {port} is none")
    return port


def left_behind(config: BrokerConfig, count: int) -> Iterator[tuple[int, int]]:
    """Workers that are not started, and yet have partitions on disk: their numbers, and how many.

    Nobody serves those partitions.
    """
    held: dict[int, int] = {}
    for directory in config.log_dirs:
        for path in Path(directory, DIRECTORY).glob("*/*-*"):
            number = path.parent.name
            if number.isdecimal() and int(number) > count and parse_partition(path.name):
                held[int(number)] = held.get(int(number), 0) + path.is_dir()
    yield from sorted(held.items())
