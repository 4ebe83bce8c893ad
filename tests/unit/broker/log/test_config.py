from qbus.broker.log import LogConfig
from qbus.config.topic import TopicKeys


def test_settings_come_by_kafkas_names_and_others_are_ignored() -> None:
    config = LogConfig.from_settings(
        {"segment.bytes": 2048, "message.timestamp.type": "LogAppendTime", "cleanup.policy": "x"}
    )
    assert config.segment_bytes == 2048
    assert config.uses_log_append_time
    assert config.retention_ms == LogConfig().retention_ms


def test_defaults_are_those_of_the_topic_configuration() -> None:
    defaults = {name: key.default for name, key in TopicKeys.KEYS.items()}
    assert LogConfig.from_settings(defaults) == LogConfig()
