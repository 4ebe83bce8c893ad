"""The options of a cluster and of connections to it, for reading and for writing."""

from dataclasses import dataclass

from qbus.errors import ConfigError
from qbus.security.table import FILE, UNPROTECTED, SecurityTable

from ..net import bootstrap as bootstraps
from .options import SECURITY, OptionError, Options

_KAFKA = "kafka."
SERVERS = "kafka.bootstrap.servers"
OWN_SERVERS = "qbus.bootstrap"
SECURITY_FILE = "qbus.security.file"
"""A file of librdkafka's properties, which is on the machine of the driver and of each executor."""

CLUSTER_OPTIONS = (
    SERVERS,
    OWN_SERVERS,
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.metadata.max.age.ms",
    "kafka.security.protocol",
    SECURITY_FILE,
)
"""The names of the options that :meth:`ClusterOptions.of` reads."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How to reach a cluster. Times are in seconds. Hashable: a key for shared connections."""

    bootstrap: str
    client_id: str
    request_timeout: float
    metadata_max_age: float
    security: SecurityTable = UNPROTECTED

    @classmethod
    def of(cls, options: Options, client_id: str) -> "ClusterOptions":
        """Read the options; ``client_id`` is the default name of the client.

        Raises :class:`~qbus.clients.spark.options.OptionError`.
        """
        return cls(
            bootstrap=_bootstrap(options),
            client_id=options.text("kafka.client.id") or client_id,
            request_timeout=options.integer("kafka.request.timeout.ms", 30_000, minimum=1) / 1000,
            metadata_max_age=options.integer("kafka.metadata.max.age.ms", 300_000, minimum=1)
            / 1000,
            security=_security(options),
        )


def security_options(security: SecurityTable) -> dict[str, str]:
    """The options that say what a table states."""
    return {
        SECURITY_FILE if name == FILE else f"{_KAFKA}{name}": value
        for name, value in security.stated
    }


def _security(options: Options) -> SecurityTable:
    """What the options say, with secrets unread: each process reads those that are elsewhere."""
    stated = {name.removeprefix(_KAFKA): value for name, value in options.below(SECURITY).items()}
    file = options.text(SECURITY_FILE)
    if file:
        stated[FILE] = file
    table = SecurityTable(tuple(sorted(stated.items())))
    try:
        table.check()
    except ConfigError as error:
        about = (name for name in stated if str(error).startswith(name))
        name = f"{_KAFKA}{next(about, 'security.protocol')}"
        raise OptionError(name, None, str(error).removeprefix(f"{name}: ")) from None
    return table


def _bootstrap(options: Options) -> str:
    chosen = options.among((SERVERS, OWN_SERVERS))
    if not chosen:
        raise OptionError(SERVERS, None, f"name the brokers here, or ZooKeeper with {OWN_SERVERS}")
    name = chosen[0]
    value = options.required(name, "give host:port,... or zk://host:port,.../chroot")
    if len(chosen) > 1 and options.text(chosen[1]) != options.text(name):
        raise OptionError(chosen[1], options.text(chosen[1]), f"{name} is {value!r}: give one")
    try:
        bootstraps.parse(value)
    except ConfigError as error:
        remedy = f"{error}; give host:port,... or zk://host:port,.../chroot"
        raise OptionError(name, value, remedy) from error
    return value
