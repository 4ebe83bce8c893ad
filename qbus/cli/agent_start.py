"""From the command line of `qbus agent run` to what an agent takes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from qbus.agent.config import read
from qbus.config.address import Address, parse_address
from qbus.errors import ConfigError
from qbus.metadata.zookeeper import ZooKeeperAddress


def from_paths(
    paths: Sequence[str],
    bootstrap: str,
    topic: str,
    from_beginning: bool,
    exclude: Sequence[str],
    key: str | None,
    headers: Mapping[str, str],
) -> bytes:
    """The TOML of a configuration with one source; a usage error for what is not allowed."""
    source = {
        "paths": [str(Path.cwd() / path) for path in paths],
        "from_beginning": from_beginning,
        "exclude": list(exclude),
        "key": key or "",
        "headers": dict(headers),
    }
    try:
        read({"bootstrap": bootstrap, "topic": topic, "source": [source]})
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None
    lines = [f"bootstrap = {_toml(bootstrap)}", f"topic = {_toml(topic)}", "[[source]]"]
    lines += [f"{name} = {_toml(value)}" for name, value in source.items()]
    return "\n".join(lines).encode()


def _toml(value: object) -> str:
    """TOML's strings and lists are JSON's; of a table in one line, only the colons differ."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def zookeeper_address(text: str | None) -> ZooKeeperAddress | None:
    """The ensemble; ``text`` was checked."""
    return None if text is None else ZooKeeperAddress.parse(text)


def metrics_address(text: str | None) -> Address | None:
    """Where metrics are served; a usage error for what is no address."""
    if text is None:
        return None
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.UsageError(f"--metrics-listen {text!r}: expected {error}.") from None
