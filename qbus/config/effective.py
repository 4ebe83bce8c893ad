"""A topic's configuration in force: its own values, else the broker's defaults."""

from collections.abc import Mapping

from qbus.config.broker import BrokerConfig
from qbus.config.settings import ConfigEntry, ConfigSource, Stated
from qbus.config.synonyms import SYNONYMS
from qbus.config.topic import TopicKeys
from qbus.errors import ConfigError


class TopicConfig(TopicKeys):
    """Every topic key, typed: ``config.retention_ms`` is ``retention.ms`` in force."""

    __slots__ = ("_broker", "_own")

    def __init__(self, broker: BrokerConfig, own: Mapping[str, str]) -> None:
        """``own``: the values of the topic itself.

        Values that another version of Qbus stored and this one cannot read are ignored. Use
        :func:`check_topic_config` to refuse invalid values before they are stored.
        """
        self._broker = broker
        self._own = self.parse_readable(own) if own else {}
        defaults = broker.topic_defaults
        self.values = {**defaults, **self._own} if self._own else defaults

    def describe(self, name: str) -> ConfigEntry:
        """Return a key with its value in force and its synonyms."""
        key = self.key(name)
        stated = tuple(self._broker.stated(synonym.name for synonym in SYNONYMS.get(name, ())))
        if name in self._own:
            stated = (Stated(key, self._own[name], ConfigSource.TOPIC), *stated)
        source = stated[0].source if stated else ConfigSource.DEFAULT
        return ConfigEntry(key, self.values[name], source, stated)


def check_topic_config(own: Mapping[str, str | None]) -> None:
    """Check the values that are to be set for a topic.

    Raises:
        ConfigError: a name is unknown, a value is missing, not allowed, or contradicts another.
    """
    for name, text in own.items():
        if text is None:
            raise ConfigError(f"{TopicKeys.key(name).name}: expected a value, there is none")
    values = TopicKeys.parse({name: text for name, text in own.items() if text is not None})
    shortest = values.get("min.compaction.lag.ms", 0)
    longest = values.get("max.compaction.lag.ms", shortest)
    if shortest > longest:
        raise ConfigError(
            f"min.compaction.lag.ms={shortest}: expected at most max.compaction.lag.ms, which is "
            f"{longest}"
        )
    if values.get("qbus.delay.enable") and "compact" in values.get("cleanup.policy", ()):
        raise ConfigError(
            "qbus.delay.enable=true: expected a cleanup.policy without compact, which cannot hold "
            "records back"
        )
