"""Files of properties that say how to connect to a cluster: ``--command-config FILE``.

They have librdkafka's names, one ``key=value`` a line, as kcat and clients of librdkafka read them.
Keys that are not about the connection belong to other clients, and are left to them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from qbus.cli.failures import Failure
from qbus.errors import QbusError
from qbus.security.client import ClientSecurity, read_properties

BOOTSTRAP: Final = "bootstrap.servers"

#: What is said to somebody who gives a file that Java's clients read.
_OF_JAVA: Final = {
    "sasl.jaas.config": "write sasl.username and sasl.password instead",
    "ssl.truststore.location": "write ssl.ca.location instead, certificates in PEM",
    "ssl.truststore.password": "a file in PEM for ssl.ca.location needs no password",
    "ssl.truststore.type": "write ssl.ca.location instead, certificates in PEM",
    "ssl.truststore.certificates": "write them to a file, and its name as ssl.ca.location",
    "ssl.keystore.location": "write ssl.certificate.location and ssl.key.location instead, in PEM",
    "ssl.keystore.password": "write ssl.key.password instead",
    "ssl.keystore.type": "write ssl.certificate.location and ssl.key.location instead, in PEM",
}


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """What a file says. bootstrap: the brokers; None if it does not say."""

    bootstrap: str | None
    security: ClientSecurity


def read_command_config(path: Path) -> CommandConfig:
    """Read a file of properties.

    Raises Failure, which names the file, what is wrong with it and what to do.
    """
    try:
        properties = read_properties(path)
        _check(properties, ClientSecurity.PROPERTIES)
        return CommandConfig(
            properties.get(BOOTSTRAP) or None, ClientSecurity.from_properties(properties)
        )
    except FileNotFoundError as error:
        raise Failure(
            f"{error.filename or path}: there is no such file. 'qbus cluster up --secure' writes"
            " one, DIR/client.properties; docs/security.md has what belongs into one."
        ) from error
    except OSError as error:
        raise Failure(f"{error.filename or path}: {error.strerror}") from error
    except QbusError as error:
        text = str(error)
        raise Failure(text if str(path) in text else f"{path}: {text}") from error


def _check(properties: Mapping[str, str], known: Iterable[str]) -> None:
    """Raise Failure for a key about connections that nobody here knows: it may be mistyped."""
    for key in properties:
        if key in known or not key.startswith(("sasl.", "security.", "ssl.")):
            continue
        if key in _OF_JAVA:
            raise Failure(f"{key} is for Java's clients: {_OF_JAVA[key]}.")
        near = get_close_matches(key, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else f" Known are {', '.join(sorted(known))}."
        raise Failure(f"{key} is unknown.{hint}")
