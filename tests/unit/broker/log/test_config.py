from qbus.broker.log import LogConfig
from qbus.config.topic import TopicKeys


def test_settings_come_by_kafkas_names_and_others_are_ignored() -> None:
    config = LogConfig.from_settings(
        {"segment.bytes": 2048, "message.timestamp.type": "LogAppendTime", "min.insync.replicas": 2}
    )
    assert config.segment_bytes == 2048
    assert config.uses_log_append_time
    assert config.retention_ms == LogConfig().retention_ms


def test_defaults_are_those_of_the_topic_configuration() -> None:
    defaults = {name: key.default for name, key in TopicKeys.KEYS.items()}
    assert LogConfig.from_settings(defaults) == LogConfig()


def test_without_delete_in_the_policy_nothing_is_deleted_for_its_age_or_size() -> None:
    settings = {"cleanup.policy": ("compact",), "retention.ms": 5, "retention.bytes": 5}
    config = LogConfig.from_settings({**settings, "qbus.queue.retention": "acknowledged"})
    assert config.compacts
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert not config.removes_acknowledged
    both = LogConfig.from_settings({**settings, "cleanup.policy": ("compact", "delete")})
    assert (both.compacts, both.retention_ms, both.retention_bytes) == (True, 5, 5)


def test_a_segment_is_rolled_before_its_records_must_be_compacted() -> None:
    settings = {"segment.ms": 50, "max.compaction.lag.ms": 20}
    assert LogConfig.from_settings(settings).segment_ms == 50
    assert LogConfig.from_settings({**settings, "cleanup.policy": ("compact",)}).segment_ms == 20


def test_what_is_or_was_compacted_may_have_gaps() -> None:
    assert not LogConfig().may_have_gaps
    assert LogConfig.from_settings({"cleanup.policy": ("compact",)}).may_have_gaps
    assert LogConfig(qbus_compacted=True).may_have_gaps
