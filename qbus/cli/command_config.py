"""Files of properties that say how to connect to a cluster: ``--command-config FILE``.

They have librdkafka's names, one ``key=value`` a line, as kcat and clients of librdkafka read them.
Keys that are not about the connection belong to other clients, and are left to them.
"""

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from qbus.cli.failures import Failure
from qbus.cli.output import note
from qbus.errors import ConfigError
from qbus.security.client import ClientSecurity, read_properties
from qbus.security.secret import is_reference, is_secret

BOOTSTRAP: Final = "bootstrap.servers"
_ABOUT_CONNECTIONS: Final = (BOOTSTRAP, "security.protocol", "ssl.", "sasl.")
_EVERYBODY: Final = (stat.S_IROTH, stat.S_IXOTH)
_GROUP: Final = (stat.S_IRGRP, stat.S_IXGRP | stat.S_IXOTH)


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
    if not any(name.startswith(_ABOUT_CONNECTIONS) for name in properties):
        raise Failure(
            f"{path}: it says nothing about a connection: expected properties such as"
            f" {BOOTSTRAP}=HOST:PORT and security.protocol=SASL_SSL"
        )
    _warn_of_readers(path, properties)
    return CommandConfig(properties.get(BOOTSTRAP) or None, security, properties)


def _warn_of_readers(path: Path, properties: dict[str, str]) -> None:
    """Say so where other accounts can read a secret in the file; Kafka's tools read it as well."""
    secrets = [
        name for name, value in properties.items() if is_secret(name) and not is_reference(value)
    ]
    if secrets and any(_can_read(path, *who) for who in (_EVERYBODY, _GROUP)):
        mode = stat.S_IMODE(path.stat().st_mode)
        note(
            f"qbus: {path}: other accounts can read {secrets[0]} in it (its mode is {mode:04o}):"
            f" chmod 600 {path}, or say where the secret is: {secrets[0]}=file:PATH or env:NAME"
        )


def _can_read(path: Path, reads: int, enters: int) -> bool:
    """Whether some others may read a file: it says so, and so do all directories above it.

    What is no file, such as the pipe of a shell's ``<(...)``, has no place where others find it.
    """
    if not path.is_file():
        return False
    real = path.resolve()
    return bool(real.stat().st_mode & reads) and all(
        one.stat().st_mode & enters for one in real.parents
    )
