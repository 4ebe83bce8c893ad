"""What the commands that start daemons share."""

import json

import click

from qbus.config.address import Address, parse_address
from qbus.metadata.zookeeper import ZooKeeperAddress


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


def toml_value(value: object) -> str:
    """TOML's strings and lists are JSON's; of a table in one line, only the colons differ."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)
