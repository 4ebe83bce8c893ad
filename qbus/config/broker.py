"""The broker's configuration in force: defaults, static values, and dynamic changes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from qbus.config.groups import ConsumerKeys, GroupKeys, ShareKeys
from qbus.config.key import ConfigKey
from qbus.config.logs import LogKeys
from qbus.config.network import NetworkKeys
from qbus.config.replication import ReplicationKeys
from qbus.config.settings import ConfigEntry, ConfigSource, Stated
from qbus.config.synonyms import RELATIVES, SYNONYMS
from qbus.config.telemetry import TelemetryKeys
from qbus.config.topic import TOPIC_CONFIG
from qbus.config.transactions import TransactionKeys
from qbus.config.zookeeper import ZooKeeperKeys
from qbus.errors import ConfigError


class BrokerConfig(
    NetworkKeys,
    LogKeys,
    GroupKeys,
    ConsumerKeys,
    ShareKeys,
    TransactionKeys,
    ReplicationKeys,
    TelemetryKeys,
    ZooKeeperKeys,
):
    """Every broker key, typed: ``config.num_partitions`` is ``num.partitions`` in force.

    Only :meth:`set_dynamic` changes it: read values when they are needed, and do not keep them.
    """

    __slots__ = ("_layers", "_topic_defaults")

    def __init__(self, static: Mapping[str, object] | None = None) -> None:
        """``static``: the values that the operator states, as text or TOML values.

        Raises:
            ConfigError: a name is unknown, a value is not allowed, or two contradict each other.
        """
        stated = self.parse(static or {})
        self._layers: dict[ConfigSource, dict[str, Any]] = {ConfigSource.STATIC_BROKER: stated}
        self._merge()
        self._check_together()

    def with_static(self, changes: Mapping[str, object]) -> "BrokerConfig":
        """A configuration with other static values, and without dynamic ones.

        Raises:
            ConfigError: as when it is made.
        """
        return BrokerConfig({**self._layers[ConfigSource.STATIC_BROKER], **changes})

    def set_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Put dynamic values in force: ``default`` for all brokers, ``own`` for this one.

        Values that another version of Qbus stored and this one cannot read are ignored.
        """
        self._layers = {
            ConfigSource.BROKER: self.parse_readable(own),
            ConfigSource.DEFAULT_BROKER: self.parse_readable(default),
            ConfigSource.STATIC_BROKER: self._layers[ConfigSource.STATIC_BROKER],
        }
        self._merge()

    def stated(self, names: Iterable[str]) -> Iterator[Stated]:
        """Yield the values stated for any of ``names``: strongest source first, defaults last."""
        keys = [self.KEYS[name] for name in names]
        for source, layer in self._layers.items():
            for key in keys:
                if key.name in layer:
                    yield Stated(key, layer[key.name], source)
        for key in keys:
            if key.default is not None:
                yield Stated(key, key.default, ConfigSource.DEFAULT)

    def describe(self, name: str) -> ConfigEntry:
        """Return a key with its value in force and its synonyms."""
        key = self.key(name)
        synonyms = tuple(self.stated(RELATIVES.get(name, (name,))))
        source = next((item.source for item in synonyms if item.key is key), ConfigSource.DEFAULT)
        return ConfigEntry(key, self.values[name], source, synonyms)

    def describe_for_all(self) -> list[ConfigEntry]:
        """Return the dynamic values for all brokers, in force here or not."""
        source = ConfigSource.DEFAULT_BROKER
        stated = (
            Stated(self.KEYS[name], value, source)
            for name, value in self._layers.get(source, {}).items()
        )
        return [ConfigEntry(item.key, item.value, source, (item,)) for item in stated]

    @property
    def topic_defaults(self) -> Mapping[str, Any]:
        """The values of a topic that sets none itself; do not change the mapping."""
        return self._topic_defaults

    def _merge(self) -> None:
        values = {name: key.default for name, key in self.KEYS.items()}
        for layer in reversed(self._layers.values()):
            values.update(layer)
        self.values = values
        self._topic_defaults = {key.name: self._topic_default(key) for key in TOPIC_CONFIG.values()}

    def _topic_default(self, key: ConfigKey) -> Any:
        synonyms = SYNONYMS.get(key.name, ())
        first = next(self.stated(synonym.name for synonym in synonyms), None)
        if first is None:
            return key.default
        factor = next(synonym.factor for synonym in synonyms if synonym.name == first.key.name)
        # -1 stands for "no limit" in every unit.
        return first.value * factor if factor != 1 and first.value > 0 else first.value

    def _check_together(self) -> None:
        shortest, longest = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if shortest > longest:
            raise ConfigError(
                f"group.min.session.timeout.ms={shortest}: expected at most "
                f"group.max.session.timeout.ms, which is {longest}"
            )
        budget, frame = self.queued_max_request_bytes, self.socket_request_max_bytes
        if 0 <= budget < frame:
            raise ConfigError(
                f"queued.max.request.bytes={budget}: expected room for one request of "
                f"socket.request.max.bytes, which is {frame}"
            )
        if self.zookeeper_set_acl and not self.zookeeper_digest:
            raise ConfigError("zookeeper.set.acl=true: expected zookeeper.digest with it")
        if len(set(self.log_dirs)) < len(self.log_dirs):
            raise ConfigError(f"log.dirs={','.join(self.log_dirs)}: expected different directories")


BROKER_CONFIG = BrokerConfig.KEYS
