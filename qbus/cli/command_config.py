"""Files of properties that say how to connect to a cluster: ``--command-config FILE``.

They have librdkafka's names, one ``key=value`` a line, as kcat and clients of librdkafka read them.
Keys that are not about the connection belong to other clients, and are left to them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from qbus.cli.failures import Failure
from qbus.errors import ConfigError
from qbus.security.client import ClientSecurity, read_properties

BOOTSTRAP: Final = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """What a file says. bootstrap: the brokers; None if it does not say. Its repr has no secret."""

    bootstrap: str | None
    security: ClientSecurity
    properties: dict[str, str] = field(repr=False)


def read_command_config(path: Path) -> CommandConfig:
    """Read a file of properties.

    Raises Failure, which names the file, what is wrong with it and what to do.
    """
    if not path.exists():
        raise Failure(
            f"{path}: there is no such file for --command-config. 'qbus cluster up --secure'"
            " writes one, DIR/client.properties; 'qbus user add --save FILE' writes others."
        )
    try:
        properties = read_properties(path)
        security = ClientSecurity.from_properties(properties)
    except ConfigError as error:
        text = str(error)
        raise Failure(text if text.startswith(str(path)) else f"{path}: {text}") from error
    return CommandConfig(properties.get(BOOTSTRAP) or None, security, properties)
