"""The options of a cluster and of connections to it, for reading and for writing."""

from dataclasses import dataclass

from qbus.errors import ConfigError

from ..net import bootstrap as bootstraps
from .options import OptionError, Options

SERVERS = "kafka.bootstrap.servers"
OWN_SERVERS = "qbus.bootstrap"

CLUSTER_OPTIONS = (
    SERVERS,
    OWN_SERVERS,
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.metadata.max.age.ms",
    "kafka.security.protocol",
)
"""The names of the options that :meth:`ClusterOptions.of` reads."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How to reach a cluster. Times are in seconds. Hashable: a key for shared connections."""

    bootstrap: str
    client_id: str
    request_timeout: float
    metadata_max_age: float

    @classmethod
    def of(cls, options: Options, client_id: str) -> "ClusterOptions":
        """Read the options; ``client_id`` is the default name of the client.

        Raises :class:`~qbus.clients.spark.options.OptionError`.
        """
        options.choice("kafka.security.protocol", "PLAINTEXT", ["PLAINTEXT"])
        return cls(
            bootstrap=_bootstrap(options),
            client_id=options.text("kafka.client.id") or client_id,
            request_timeout=options.integer("kafka.request.timeout.ms", 30_000, minimum=1) / 1000,
            metadata_max_age=options.integer("kafka.metadata.max.age.ms", 300_000, minimum=1)
            / 1000,
        )


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
