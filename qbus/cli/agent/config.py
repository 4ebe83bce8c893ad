"""`qbus agent config`, and the configurations that agent commands read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbus.cli.daemon_config import DaemonConfig, Help, config_group
from qbus.cli.daemons import security_of, toml_value
from qbus.cli.failures import Failure
from qbus.errors import ConfigError

if TYPE_CHECKING:
    from qbus.agent.config import AgentConfig

ZOOKEEPER_HELP = "Where the agents have their configuration and status."


def from_paths(
    paths: Sequence[str],
    bootstrap: str,
    topic: str,
    from_beginning: bool,
    exclude: Sequence[str],
    key: str | None,
    headers: Mapping[str, str],
    command_config: Path | None = None,
) -> bytes:
    """The TOML of a configuration with one source; raises a usage error for invalid values."""
    from qbus.agent.config import read

    source = {
        "paths": [str(Path.cwd() / path) for path in paths],
        "from_beginning": from_beginning,
        "exclude": list(exclude),
        "key": key or "",
        "headers": dict(headers),
    }
    security = security_of(command_config)
    try:
        read({"bootstrap": bootstrap, "topic": topic, "source": [source], **security})
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None
    lines = [f"bootstrap = {toml_value(bootstrap)}", f"topic = {toml_value(topic)}"]
    lines += [f"{name} = {toml_value(value)}" for name, value in security.items()]
    lines += ["[[source]]"]
    lines += [f"{name} = {toml_value(value)}" for name, value in source.items()]
    return "\n".join(lines).encode()


def check(text: bytes, origin: str, is_central: bool) -> "AgentConfig":
    """Parse a configuration; a Failure begins with ``origin``.

    is_central: ``bootstrap`` may be left out, as in ZooKeeper.
    """
    from qbus.agent.config import parse

    defaults = {"bootstrap": "zk://of-the-agent"} if is_central else {}
    try:
        return parse(text, defaults=defaults)
    except ConfigError as error:
        raise Failure(f"{origin}: {error}") from error


def _load() -> DaemonConfig:
    from qbus.agent.config import to_document, to_toml
    from qbus.agent.control import config_path

    return DaemonConfig(config_path, check, to_document, to_toml)


config = config_group(
    "NAME",
    _load,
    Help(
        group="Show, change and check the configurations of agents.\n\n"
        "NAME is an agent or a group; an agent's own configuration overrides its group's.",
        zookeeper=ZOOKEEPER_HELP,
        after_set="Running agents apply it at once.",
        after_delete="Agents without another configuration keep the last one they had.",
        central="Check it as a configuration in ZooKeeper, which may leave out bootstrap.",
    ),
)
