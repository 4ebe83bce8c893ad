"""`qbus mirror config`, and the configurations that mirror commands read."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.daemon_config import DaemonConfig, Help, config_group
from qbus.cli.daemons import security_of, toml_value
from qbus.cli.failures import Failure
from qbus.cli.mirror.options import ZOOKEEPER_HELP, Selected
from qbus.cli.targets import Target
from qbus.errors import ConfigError

if TYPE_CHECKING:
    from qbus.clients.mirror.config import LinkConfig, MirrorConfig


def to_toml(stated: Selected) -> bytes:
    """The TOML of what options state; raises a usage error for invalid values."""
    from qbus.clients.mirror.config import read
    from qbus.clients.mirror.config.config import INTERNAL

    assert stated.target is not None
    name, bootstrap = stated.target
    exclude = [INTERNAL, *stated.exclude]
    target = {"idc": name, "bootstrap": bootstrap, **security_of(stated.command_config)}
    sources = [
        {
            "idc": source.name,
            "bootstrap": source.bootstrap,
            "relay": stated.relay,
            **security_of(stated.source_command_config),
        }
        for source in stated.sources
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


async def configuration(stated: Selected) -> "MirrorConfig":
    """The configuration that a command is about; Failure where there is none."""
    from qbus.cli.daemon_store import administration, read_config
    from qbus.clients.mirror.config import load, parse
    from qbus.clients.mirror.control import config_path, target_defaults

    file = stated.command_config
    if stated.config_file is not None:
        return load(stated.config_file, defaults=target_defaults(None, file))
    if stated.link is None:
        return parse(to_toml(stated))
    async with administration(stated.zookeeper) as store:
        found = await read_config(store, config_path(stated.link), stated.link)
    origin = f"the configuration of {stated.link}"
    return check(found["text"].encode(), origin, f"zk://{stated.zookeeper}", file)


def check(
    text: bytes,
    origin: str,
    target_bootstrap: str | None = None,
    command_config: Path | None = None,
) -> "MirrorConfig":
    """Parse a configuration; a Failure begins with ``origin``.

    target_bootstrap: the target's brokers, where the text may leave them out. command_config: a
    file that says how to connect to them.
    """
    from qbus.clients.mirror.config import parse
    from qbus.clients.mirror.control import target_defaults

    defaults = target_defaults(target_bootstrap, command_config)
    try:
        return parse(text, defaults=defaults)
    except ConfigError as error:
        raise Failure(f"{origin}: {error}") from error


def sides(link: "LinkConfig") -> tuple[Target, Target]:
    """The source and the target of a link. Raises ConfigError: a file cannot be read."""
    return (
        Target(link.source_bootstrap, link.source_security.security()),
        Target(link.target_bootstrap, link.target_security.security()),
    )


def _table(head: str, fields: dict[str, Any]) -> list[str]:
    return [head, *(f"{name} = {toml_value(value)}" for name, value in fields.items())]


def _load() -> DaemonConfig:
    from qbus.clients.mirror.config import to_document, to_toml
    from qbus.clients.mirror.control import config_path

    def check_file(text: bytes, origin: str, is_central: bool) -> "MirrorConfig":
        return check(text, origin, "zk://of-the-mirror" if is_central else None)

    return DaemonConfig(config_path, check_file, to_document, to_toml)


config = config_group(
    "LINK",
    _load,
    Help(
        group="Show, change and check the configurations of mirrors.\n\n"
        "LINK is the name that `qbus mirror run --link` is given.",
        zookeeper=ZOOKEEPER_HELP,
        after_set="Running mirrors apply it at once.",
        after_delete="Running mirrors keep the last configuration they had.",
        central="Check it as a configuration in ZooKeeper, which may leave out the target's"
        " bootstrap.",
    ),
)
