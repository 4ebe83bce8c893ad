"""From the command line to the configuration of a mirror."""

from typing import Any

import click

from qbus.cli.central import administration, read_config
from qbus.cli.daemons import toml_value
from qbus.cli.failures import Failure
from qbus.cli.mirror.options import Selected
from qbus.clients.mirror.config import MirrorConfig, load, parse, read
from qbus.clients.mirror.config.config import INTERNAL
from qbus.clients.mirror.control import config_path
from qbus.errors import ConfigError


def to_toml(stated: Selected) -> bytes:
    """The TOML of what options state; a usage error for what is not allowed."""
    assert stated.target is not None
    name, bootstrap = stated.target
    exclude = [INTERNAL, *stated.exclude]
    target = {"idc": name, "bootstrap": bootstrap}
    sources = [
        {"idc": one.name, "bootstrap": one.bootstrap, "relay": stated.relay}
        for one in stated.sources
    ]
    try:
        read(
            {"topics": list(stated.topics), "exclude": exclude, "target": target, "source": sources}
        )
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None
    lines = [
        f"topics = {toml_value(stated.topics)}",
        f"exclude = {toml_value(exclude)}",
        *_table("[target]", target),
    ]
    for source in sources:
        lines += _table("[[source]]", source)
    return "\n".join(lines).encode()


async def configuration(stated: Selected) -> MirrorConfig:
    """The configuration that a command is about; Failure where there is none."""
    if stated.config_file is not None:
        return load(stated.config_file)
    if stated.link is None:
        return parse(to_toml(stated))
    async with administration(stated.zookeeper) as store:
        found = await read_config(store, config_path(stated.link), stated.link)
    return check(
        found["text"].encode(), f"the configuration of {stated.link}", f"zk://{stated.zookeeper}"
    )


def check(text: bytes, origin: str, target_bootstrap: str | None = None) -> MirrorConfig:
    """The configuration in ``text``; Failure, beginning with ``origin``, for what is none."""
    try:
        defaults = {"target": {"bootstrap": target_bootstrap}} if target_bootstrap else {}
        return parse(text, defaults=defaults)
    except ConfigError as error:
        raise Failure(f"{origin}: {error}") from error


def _table(head: str, fields: dict[str, Any]) -> list[str]:
    return [head, *(f"{name} = {toml_value(value)}" for name, value in fields.items())]
