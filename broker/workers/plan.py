"""Which node id, address and directories each worker has, and which machine all of them."""

import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qbus.config import Address, BrokerConfig, ListenerInfo, show_listeners
from qbus.config.address import is_disque, parse_endpoint
from qbus.errors import ConfigError

from ..boot import current_boot
from ..log.files import PRIVATE
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
    listeners = (*config.kafka_listeners, *config.disque_listeners)
    ports = [_ports(one.address, count, _stated_by(config, one)) for one in listeners]
    configs = []
    for number in range(count):
        own = [
            ListenerInfo(one.name, one.protocol, Address(one.address.host, of_workers[number]))
            for one, of_workers in zip(listeners, ports, strict=True)
        ]
        configs.append(_config_of(config, number, own))
    taken = [one.address for own in configs for one in own.kafka_listeners]
    if len(set(taken)) < len(taken):
        raise ConfigError(
            f"listeners={show_listeners(listeners)}: expected ports {count} apart, since each of "
            f"{count} workers takes the next one"
        )
    return configs


def _stated_by(config: BrokerConfig, listener: ListenerInfo) -> str:
    """Return the name of the key that states a listener."""
    stated = {text.strip().partition("://")[0].upper() for text in config.listeners}
    is_apart = is_disque(listener.name) and listener.name not in stated
    return "disque.listen" if is_apart else "listeners"


def _config_of(
    config: BrokerConfig, number: int, listeners: Sequence[ListenerInfo]
) -> BrokerConfig:
    changes: dict[str, Any] = {
        "node.id": config.node_id + number,
        "listeners": list(map(str, listeners)),
        "disque.listen": "",
        "metrics.listen": "",
    }
    if number:
        if config.qbus_audit_log_path:
            changes["qbus.audit.log.path"] = f"{config.qbus_audit_log_path}.worker-{number + 1}"
        changes["log.dirs"] = [f"{one}/{DIRECTORY}/{number + 1}" for one in config.log_dirs]
        if config.advertised_listeners:
            changes["advertised.listeners"] = [
                _following(endpoint, number) for endpoint in config.advertised_listeners
            ]
    return config.with_static(changes)


def _following(endpoint: str, number: int) -> str:
    """Return where the worker of that number is reached, if the first is at ``endpoint``."""
    name, address = parse_endpoint(endpoint)
    port = _need_port(address.port + number, "advertised.listeners")
    return f"{name}://{Address(address.host, port)}"


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
    directory.mkdir(PRIVATE, parents=True, exist_ok=True)
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
