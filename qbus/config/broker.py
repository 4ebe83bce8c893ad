"""The broker's configuration in force: defaults, static values, and dynamic changes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from qbus.config.address import Address, ListenerInfo
from qbus.config.groups import ConsumerKeys, GroupKeys, ShareKeys
from qbus.config.key import ConfigKey
from qbus.config.logs import LogKeys
from qbus.config.network import NetworkKeys
from qbus.config.replication import ReplicationKeys
from qbus.config.security import SecurityKeys, split_listener_key
from qbus.config.settings import ConfigEntry, ConfigSource, Stated
from qbus.config.synonyms import RELATIVES, SYNONYMS
from qbus.config.telemetry import TelemetryKeys
from qbus.config.topic import TOPIC_CONFIG
from qbus.config.transactions import TransactionKeys
from qbus.config.without_effect import reason_without_effect, warnings_without_effect
from qbus.config.zookeeper import ZooKeeperKeys
from qbus.errors import ConfigError

_LISTENERS_BESIDE = ("disque", "disques", "metrics")
"""What has keys of its own as a listener has, also where it is not served."""


class ListenerConfig(NetworkKeys, SecurityKeys):
    """The keys of connections and of security, as they are in force for one listener."""

    __slots__ = ()

    def __init__(self, values: Mapping[str, Any]) -> None:
        """``values``: by the names of keys."""
        self.values = values


class BrokerConfig(
    NetworkKeys,
    SecurityKeys,
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

    __slots__ = ("_layers", "_topic_defaults", "without_effect")

    without_effect: tuple[str, ...]
    """A sentence for each stated setting of Kafka that has no effect here."""

    def __init__(self, static: Mapping[str, object] | None = None) -> None:
        """``static``: the values that the operator states, as text or TOML values.

        Raises:
            ConfigError: a name is unknown, a value is not allowed, or two contradict each other.
        """
        named = _renamed(static or {})
        self.without_effect = tuple(warnings_without_effect(named))
        stated = self.parse(
            {name: raw for name, raw in named.items() if reason_without_effect(name) is None}
        )
        self._layers: dict[ConfigSource, dict[str, Any]] = {ConfigSource.STATIC_BROKER: stated}
        self._merge()
        self._check_together()

    def with_static(self, changes: Mapping[str, object]) -> "BrokerConfig":
        """A configuration with other static values, and without dynamic ones.

        Raises:
            ConfigError: as when it is made.
        """
        return BrokerConfig({**self._layers[ConfigSource.STATIC_BROKER], **changes})

    @classmethod
    def key(cls, name: str) -> ConfigKey:
        """Return the definition of ``name``, which may be that of one listener.

        Raises:
            ConfigError: the key is unknown; the message names the closest one.
        """
        if name == _OLD_NODE_ID:
            raise ConfigError(f"{name}: Kafka's old name of node.id; state that")
        of_listener = split_listener_key(name)
        if of_listener is not None:
            return replace(super().key(of_listener[1]), name=name)
        return super().key(name)

    @classmethod
    def ignores(cls, name: str) -> bool:
        """Whether a key is a setting of Kafka that has no effect here."""
        return reason_without_effect(name) is not None

    def for_listener(self, name: str) -> ListenerConfig:
        """Return the configuration of one listener: what ``listener.name.NAME.`` states goes first.

        ``name``: of a listener; metrics are served by one named METRICS, jobs by DISQUE or DISQUES.
        """
        values, prefix = dict(self.values), f"listener.name.{name.lower()}."
        for key, value in self.values.items():
            if key.startswith(prefix):
                values[key.removeprefix(prefix)] = value
        return ListenerConfig(values)

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
        keys = [self.key(name) for name in names]
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
        source = next(
            (item.source for item in synonyms if item.key.name == name), ConfigSource.DEFAULT
        )
        return ConfigEntry(key, self.values[name], source, synonyms)

    def describe_for_all(self) -> list[ConfigEntry]:
        """Return the dynamic values for all brokers, in force here or not."""
        source = ConfigSource.DEFAULT_BROKER
        stated = (
            Stated(self.key(name), value, source)
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
        self._check_listeners()
        if self.zookeeper_set_acl and not self.zookeeper_digest:
            raise ConfigError("zookeeper.set.acl=true: expected zookeeper.digest with it")
        if len(set(self.log_dirs)) < len(self.log_dirs):
            raise ConfigError(f"log.dirs={','.join(self.log_dirs)}: expected different directories")

    def _check_listeners(self) -> None:
        """Refuse listeners that contradict one another, or that are open to other machines."""
        try:
            listeners = self.kafka_listeners
        except ValueError as error:
            raise ConfigError(
                f"listener.security.protocol.map={','.join(self.listener_security_protocol_map)}: "
                f"expected {error}"
            ) from None
        self._check_names({one.name for one in listeners})
        self._check_keys_of_listeners({one.name for one in listeners})
        page = self.metrics_listener
        every = (*listeners, *self.disque_listeners, *([page] if page else []))
        for one in every:
            self._check_protocol(one)
        self._check_revocation(every)
        if not self.allow_insecure:
            self._refuse_open_listeners(listeners)

    def _check_names(self, names: set[str]) -> None:
        for name in self.advertised_addresses:
            if name not in names:
                raise ConfigError(
                    f"advertised.listeners={','.join(self.advertised_listeners)}: expected names "
                    f"that are in listeners, which {name} is not"
                )
        if self.inter_broker_listener_name and self.security_inter_broker_protocol:
            raise ConfigError(
                f"security.inter.broker.protocol={self.security_inter_broker_protocol}: expected "
                "this or inter.broker.listener.name, not both"
            )
        try:
            chosen = self.inter_broker_listener
        except ValueError as error:
            raise ConfigError(
                f"listeners={','.join(self.listeners)}: expected inter.broker.listener.name with "
                f"it, which says {error}"
            ) from None
        if chosen not in names:
            key = "inter.broker.listener.name"
            if self.security_inter_broker_protocol:
                key = "security.inter.broker.protocol"
            raise ConfigError(
                f"{key}={chosen}: expected one of the names in listeners: "
                f"{', '.join(sorted(names))}"
            )

    def _check_keys_of_listeners(self, names: set[str]) -> None:
        """Refuse what is stated for a listener that there is not: nothing would obey it."""
        known = {*(name.lower() for name in names), *_LISTENERS_BESIDE}
        for key in self.values:
            of_listener = split_listener_key(key)
            if of_listener is not None and of_listener[0] not in known:
                raise ConfigError(
                    f"{key}: expected the name of a listener in lower case, one of "
                    f"{', '.join(sorted(known))}"
                )

    def _check_protocol(self, listener: ListenerInfo) -> None:
        """Refuse a listener that lacks what its protocol needs."""
        own = self.for_listener(listener.name)
        if listener.protocol.is_encrypted:
            if not (own.ssl_keystore_location or own.ssl_certificate_location):
                raise ConfigError(
                    f"listeners={listener}: expected ssl.keystore.location with it, or "
                    "ssl.certificate.location and ssl.key.location; qbus tls init makes "
                    "certificates for trials"
                )
            if own.ssl_client_auth != "none" and not own.ssl_truststore_location:
                raise ConfigError(
                    f"ssl.client.auth={own.ssl_client_auth}: expected ssl.truststore.location with "
                    "it, which says whose certificates clients may have"
                )
        if listener.protocol.is_sasl and listener.name == self.inter_broker_listener:
            self._check_login_of_brokers(listener, own)

    def _check_revocation(self, listeners: Iterable[ListenerInfo]) -> None:
        """Refuse a list of revoked certificates that nobody would look at."""
        own = [self.for_listener(one.name) for one in listeners if one.protocol.is_encrypted]
        with_list = [one for one in own if one.ssl_crl_location]
        stated = with_list[0].ssl_crl_location if with_list else self.ssl_crl_location
        if stated and all(one.ssl_client_auth == "none" for one in with_list):
            raise ConfigError(
                f"ssl.crl.location={stated}: expected a listener with TLS and ssl.client.auth="
                "required or requested, for whose clients' certificates it is"
            )

    def _check_login_of_brokers(self, listener: ListenerInfo, own: ListenerConfig) -> None:
        """Refuse a listener at which other brokers cannot log in."""
        if not (own.sasl_inter_broker_username and own.sasl_inter_broker_password):
            if not self.zookeeper_connect:
                return
            raise ConfigError(
                f"listeners={listener}: expected sasl.inter.broker.username and "
                "sasl.inter.broker.password with it, by which brokers authenticate with one another"
            )
        mechanism = own.sasl_mechanism_inter_broker_protocol
        if self.zookeeper_connect and mechanism not in own.sasl_enabled_mechanisms:
            raise ConfigError(
                f"sasl.mechanism.inter.broker.protocol={mechanism}: expected one of "
                f"sasl.enabled.mechanisms of {listener}: {', '.join(own.sasl_enabled_mechanisms)}"
            )

    @property
    def has_certificates(self) -> bool:
        """Whether anything that is listened on is encrypted."""
        page = self.metrics_listener
        listeners = (*self.kafka_listeners, *self.disque_listeners, *([page] if page else []))
        return any(one.protocol.is_encrypted for one in listeners)

    @property
    def authenticates(self) -> bool:
        """Whether any listener of Kafka's protocol authenticates its clients."""
        return any(map(self.listener_authenticates, self.kafka_listeners))

    @property
    def metrics_take_passwords(self) -> bool:
        """Whether clients of the metrics are users with passwords."""
        stated = self.metrics_authentication
        if stated is None:
            return any(one.protocol.is_sasl for one in self.kafka_listeners)
        return bool(stated == "basic")

    @property
    def metrics_authenticates(self) -> bool:
        """Whether nobody can read metrics who has not authenticated."""
        page = self.metrics_listener
        return self.metrics_take_passwords or (page is not None and self._needs_certificates(page))

    @property
    def disque_authenticates(self) -> bool:
        """Whether clients of jobs authenticate as users."""
        stated = self.disque_sasl_enable
        if stated is None:
            return any(one.protocol.is_sasl for one in self.kafka_listeners)
        return bool(stated)

    @property
    def jobs_authenticate(self) -> bool:
        """Whether any listener for jobs authenticates its clients, as users or by certificates.

        One password for all does not say who a client is.
        """
        jobs = self.disque_listeners
        return bool(jobs) and (
            self.disque_authenticates or any(map(self._needs_certificates, jobs))
        )

    def listener_authenticates(self, listener: ListenerInfo) -> bool:
        """Whether nobody can use a listener of Kafka's protocol who has not authenticated."""
        return listener.protocol.is_sasl or self._needs_certificates(listener)

    def _needs_certificates(self, listener: ListenerInfo) -> bool:
        own = self.for_listener(listener.name)
        return listener.protocol.is_encrypted and own.ssl_client_auth == "required"

    def _refuse_open_listeners(self, listeners: Iterable[ListenerInfo]) -> None:
        for one in listeners:
            if not self.listener_authenticates(one):
                _refuse_open(
                    f"listeners={one}",
                    one.address,
                    "use SASL_SSL, or SSL with ssl.client.auth=required",
                )
        if not (self.disque_requirepass or self.disque_authenticates):
            for one in self.disque_listeners:
                if not self._needs_certificates(one):
                    _refuse_open(
                        f"listeners={one}",
                        one.address,
                        "state disque.requirepass or disque.sasl.enable=true, or use DISQUES with "
                        "ssl.client.auth=required",
                    )
        page = self.metrics_listener
        if page is not None and not self.metrics_authenticates:
            _refuse_open(
                f"metrics.listen={self.metrics_listen}",
                page.address,
                "state metrics.authentication=basic, best with https://",
            )


_OLD_NODE_ID = "broker.id"


def _renamed(static: Mapping[str, object]) -> Mapping[str, object]:
    """Settings with ``node.id`` for ``broker.id``, its name in Kafka before KRaft."""
    if _OLD_NODE_ID not in static:
        return static
    renamed = dict(static)
    old = renamed.pop(_OLD_NODE_ID)
    new = renamed.setdefault("node.id", old)
    if str(new) != str(old):
        raise ConfigError(f"broker.id={old}: expected the same as node.id, which is {new}")
    return renamed


def _refuse_open(what: str, address: Address, remedy: str) -> None:
    if not address.is_loopback:
        raise ConfigError(
            f"{what}: other machines can reach this address, and anyone may use it without "
            f"authentication; {remedy} (docs/security.md), listen on 127.0.0.1, or state "
            "allow.insecure=true"
        )


BROKER_CONFIG = BrokerConfig.KEYS
