"""What pipelines can be told, and what they say to what they cannot."""

from pathlib import Path
from typing import Any

import pytest

from qbus.clients.pipelines.config import ABUSE, ARCHIVE, AUDIT, STATS, StatsConfig, load
from qbus.errors import ConfigError
from qbus.service.toml import Loader

SOURCE = {"source": {"topics": ["access"]}}
STATISTIC = {"name": "lines"}


def stats(**stated: Any) -> StatsConfig:
    return STATS.read({**SOURCE, "statistic": [STATISTIC], **stated})


def refusal(loader: Loader[Any], stated: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        loader.read({**SOURCE, **stated})
    return str(error.value)


def test_little_has_to_be_said() -> None:
    assert stats().statistics[0].window == 60_000
    assert ARCHIVE.read({**SOURCE, "path": "/archive"}).compaction.enabled
    assert ABUSE.read({**SOURCE, "limits": {"bytes": 1}}).client == "address"
    assert AUDIT.read({**SOURCE, "copy": {"archive": "/archive"}}).content


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250 ms", 250),
        ("1 second", 1000),
        ("30s", 30_000),
        ("5 minutes", 300_000),
        ("2 HOURS", 7_200_000),
        ("1d", 86_400_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert stats(interval=text).interval == expected


@pytest.mark.parametrize("text", ["", "5", "five minutes", "-5 s", "5 parsecs", "0 s", 5, True])
def test_invalid_durations_are_refused(text: object) -> None:
    message = refusal(STATS, {"statistic": [STATISTIC], "interval": text})
    assert message.startswith("interval = ")
    assert "expected a duration" in message


@pytest.mark.parametrize(
    ("loader", "stated", "message"),
    [
        (STATS, {}, "nothing to compute"),
        (STATS, {"source": {}}, "source.topics or source.pattern"),
        (STATS, {"source": {"topics": ["a"], "pattern": "b"}}, "set either"),
        (STATS, {"source": {"topics": ["a/b"]}}, "source.topics = ['a/b']"),
        (STATS, {"source": {"pattern": "("}}, "source.pattern = '('"),
        (STATS, {"statistc": []}, "statistc: no such field; did you mean statistic?"),
        (STATS, {"statistic": [{}]}, "statistic[1].name is missing"),
        (STATS, {"statistic": [STATISTIC, STATISTIC]}, "statistic[2].name"),
        (
            STATS,
            {"statistic": [{**STATISTIC, "by": ["sattus"]}]},
            "statistic[1].by: there is no field sattus",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "window": "1s", "slide": "2s"}]},
            "statistic[1].slide = '2 seconds'",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "top": 3, "top_by": "bytes_sum"}]},
            "statistic[1].top_by = 'bytes_sum': expected one of count",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "percentiles": [1.5]}]},
            "statistic[1].percentiles = [1.5]",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "percentiles": [0.9]}]},
            "statistic[1].percentiles_of is missing",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "exact_percentiles": True}]},
            "statistic[1].percentiles_of is missing",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "percentiles_of": ["bytes"], "percentiles": [0.5, 0.5]}]},
            "statistic[1]: two of its columns would be called bytes_p50",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "top_by": "per_second"}]},
            "statistic[1].top_by = 'per_second': expected top as well",
        ),
        (
            STATS,
            {"statistic": [{**STATISTIC, "window": "1d", "slide": "1s"}]},
            "no less than a 1000th of it",
        ),
        (
            STATS,
            {
                "statistic": [{**STATISTIC, "by": ["Count"]}],
                "lines": {"format": "json", "fields": {"Count": "int"}},
            },
            "two of its columns would be called count",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "lines": {"format": "json", "fields": {"Malformed": "int"}}},
            "lines.fields.Malformed: this name is reserved",
        ),
        (
            STATS,
            {
                "statistic": [STATISTIC],
                "lines": {"format": "json", "fields": {"a": "int", "A": "int"}},
            },
            "lines.fields.A: it is there twice",
        ),
        (
            STATS,
            {
                "statistic": [STATISTIC],
                "lines": {"format": "json", "fields": {"a": "int"}, "time_format": "seconds"},
            },
            "lines.time_format = 'seconds': expected lines.time",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "lines": {"time_format": "seconds"}},
            "lines.time_format: only lines of format json",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "lines": {"format": "json"}},
            "lines.fields is missing",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "lines": {"fields": {"a": "int"}}},
            "lines.fields: only lines of format json",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "lines": {"format": "json", "fields": {"topic": "int"}}},
            "lines.fields.topic: this name is reserved",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "output": {"topic": "access"}},
            "output.topic = 'access': the source reads that topic",
        ),
        (
            STATS,
            {
                "source": {"pattern": "acc.*"},
                "statistic": [STATISTIC],
                "output": {"topic": "access"},
            },
            "output.topic = 'access': the source reads that topic",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "output": {"path": "/a", "options": {"acks": 1}}},
            "output.options: expected output.topic",
        ),
        (
            STATS,
            {"statistic": [STATISTIC], "output": {"topic": "a", "path": "b"}},
            "output.topic and output.path",
        ),
        (ABUSE, {}, "nothing to detect"),
        (
            ABUSE,
            {"limits": {"bytes": 1}, "window": "90 s"},
            "window = '90 seconds': expected a multiple of slide, 1 minute",
        ),
        (
            ABUSE,
            {"baseline": {"own_factor": 2, "history": "90 s"}},
            "baseline.history = '90 seconds'",
        ),
        (
            ABUSE,
            {"limits": {"bytes": 1}, "window": "11 d", "slide": "1 s"},
            "at most 10000 times slide",
        ),
        (ARCHIVE, {}, "path is missing"),
        (ARCHIVE, {"path": "/a", "time_zone": "Mars/Base"}, "time_zone = 'Mars/Base'"),
        (ARCHIVE, {"path": "/a", "compaction": {"files": 1}}, "compaction.files = 1"),
        (AUDIT, {}, "copy.archive or copy.bootstrap"),
        (
            AUDIT,
            {"copy": {"bootstrap": "127.0.0.1:9092"}},
            "copy.bootstrap = '127.0.0.1:9092': access is its own copy",
        ),
        (
            AUDIT,
            {"source": {"topics": ["a", "b"]}, "copy": {"bootstrap": "b:1", "topics": {"a": "b"}}},
            "copy.topics: b would be the copy of a as well",
        ),
        (
            AUDIT,
            {"source": {"topics": ["a"], "starting": "latest"}, "copy": {"archive": "/a"}},
            "source.starting: an audit reads all records",
        ),
        (
            AUDIT,
            {"source": {"topics": ["a"], "batch_records": 5}, "copy": {"archive": "/a"}},
            "source.batch_records: an audit reads all records",
        ),
        (
            AUDIT,
            {"copy": {"bootstrap": "b:9092", "topics": {"orders": "x"}}},
            "copy.topics.orders",
        ),
        (
            AUDIT,
            {"copy": {"archive": "/a"}, "since": "2026-01-02", "until": "2026-01-01"},
            "until = ",
        ),
    ],
)
def test_errors_name_the_cause(loader: Loader[Any], stated: dict[str, Any], message: str) -> None:
    assert message in refusal(loader, stated)


def test_rows_can_be_ranked_by_whatever_is_computed() -> None:
    computed = {**STATISTIC, "percentiles_of": ["bytes"], "max": ["bytes"], "top": 3}
    for column in ("bytes_p99", "bytes_max", "per_second"):
        assert stats(statistic=[{**computed, "top_by": column}]).statistics[0].top_by == column


def test_an_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "stats.toml"
    file.write_text('[source]\ntopics = "access"\n')
    with pytest.raises(ConfigError, match=r"stats\.toml: source\.topics = 'access'"):
        load("stats", file, {})
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        load("stats", tmp_path / "none.toml", {})


def test_options_go_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "archive.toml"
    file.write_text('path = "/old"\n[source]\ntopics = ["a"]\nbatch_records = 7\n')
    config = load("archive", file, {"path": "/new", "source": {"topics": ["b"]}})
    assert config.path == "/new"
    assert config.source.topics == ("b",)
    assert config.source.batch_records == 7


def test_options_of_spark_and_of_the_source_are_texts() -> None:
    config = stats(
        source={"topics": ["a"], "options": {"minPartitions": 8, "failOnDataLoss": False}}
    )
    assert dict(config.source.options) == {"minPartitions": "8", "failOnDataLoss": "false"}


def test_a_secured_cluster_and_another_one_for_results() -> None:
    config = stats(
        security={"protocol": "SSL", "ssl.ca.location": "/ca.pem"},
        output={
            "topic": "results",
            "bootstrap": "other:9093",
            "security": {"file": "/etc/qbus/other.properties"},
        },
    )
    assert dict(config.security.stated)["security.protocol"] == "SSL"
    assert dict(config.output.security.stated) == {"file": "/etc/qbus/other.properties"}


@pytest.mark.parametrize(
    "given",
    [
        {"security": {"sasl.password": "hunter2"}},
        {"source": {"topics": ["a"], "options": {"kafka.sasl.jaas.config": "hunter2"}}},
        {"output": {"topic": "r", "options": {"kafka.sasl.password": "hunter2"}}},
    ],
)
def test_a_secret_is_elsewhere(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected file:PATH or env:NAME") as caught:
        stats(**given)
    assert "hunter2" not in str(caught.value)


def test_security_of_results_needs_a_cluster_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"output\.security: expected output\.bootstrap"):
        stats(output={"topic": "results", "security": {"file": "/etc/p"}})
