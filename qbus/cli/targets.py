"""The cluster that a command talks to: where its brokers are, and how to connect to them.

Both may be said on the command line, in the environment, or by a context; a file of properties
(``--command-config``) says how to connect, and may say where. What is said on the command line
counts before the environment, and that before the context in use. A password is given to no
cluster but the one that it was said for: the file of a context is not used with another bootstrap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.contexts import Context, Contexts
from qbus.cli.parameters import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from qbus.security.client import ClientSecurity


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster.

    bootstrap: ``host:port,...``, or ``zk://...``. security: how to connect; None: in the clear.
    command_config: the file that says so, for processes that are started with it.
    """

    bootstrap: str
    security: "ClientSecurity | None" = None
    command_config: Path | None = None

    @property
    def protocol(self) -> str:
        """What is spoken with the brokers, such as ``SASL_SSL``."""
        return "PLAINTEXT" if self.security is None else self.security.protocol

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of a client, beside ``bootstrap``."""
        return {} if self.security is None else {"security": self.security}


@dataclass(frozen=True, slots=True)
class Said:
    """The value of an option, and whether the command line has it rather than the environment."""

    value: str | None = None
    here: bool = False


def choose(
    bootstrap: Said, context: Said, command_config: Said, contexts: Callable[[], Contexts]
) -> Target:
    """The cluster that is meant. Raises a usage error, or Failure.

    contexts: called if it is up to a context.
    """
    if bootstrap.here and context.here:
        raise click.UsageError("Name either --bootstrap or --context.")
    if command_config.value and command_config.here and not context.here:
        return _by_file(command_config.value, bootstrap.value)
    if bootstrap.value is not None and not context.here:
        return _by_file(command_config.value, bootstrap.value)
    if command_config.value and not context.value:
        return _by_file(command_config.value, None, contexts)
    chosen = contexts().chosen(context.value)
    if chosen is None:
        return Target(DEFAULT_BOOTSTRAP)
    own = command_config.value if command_config.here else chosen.command_config
    return _by_file(own or command_config.value, chosen.addresses)


def _by_file(
    file: str | None, bootstrap: str | None, contexts: Callable[[], Contexts] | None = None
) -> Target:
    """The cluster at ``bootstrap``, connected to as ``file`` says; or at the file's own servers.

    contexts: who knows a bootstrap where neither says one.
    """
    if file is None:
        return Target(bootstrap or DEFAULT_BOOTSTRAP)
    from qbus.cli.command_config import read_command_config

    found = read_command_config(Path(file))
    if bootstrap is None:
        bootstrap = found.bootstrap
    if bootstrap is None and contexts is not None:
        chosen: Context | None = contexts().chosen(None)
        bootstrap = chosen.addresses if chosen is not None else None
    return Target(bootstrap or DEFAULT_BOOTSTRAP, found.security, Path(file))
