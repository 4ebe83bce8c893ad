"""From the command line of `qbus agent run` to what an agent takes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from qbus.agent.config import read
from qbus.cli.daemons import toml_value
from qbus.errors import ConfigError


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
    lines = [f"bootstrap = {toml_value(bootstrap)}", f"topic = {toml_value(topic)}", "[[source]]"]
    lines += [f"{name} = {toml_value(value)}" for name, value in source.items()]
    return "\n".join(lines).encode()
