"""What an operator states reaches the configuration: a file, options, and the command's own."""

import tomllib
from pathlib import Path

import pytest

from qbus.config.loading import load_broker_config, read_file, split_option
from qbus.errors import ConfigError


def write(directory: Path, text: str) -> Path:
    path = directory / "qbus.toml"
    path.write_text(text)
    return path


def test_tables_and_dots_are_the_same(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        num.partitions = 3
        auto.create.topics.enable = false

        [log]
        dirs = ["/a", "/b"]
        retention.hours = 2

        [group]
        max.size = 10

        [group.min]
        "session.timeout.ms" = 1000
        """,
    )
    assert read_file(path) == {
        "num.partitions": 3,
        "auto.create.topics.enable": False,
        "log.dirs": ["/a", "/b"],
        "log.retention.hours": 2,
        "group.max.size": 10,
        "group.min.session.timeout.ms": 1000,
    }
    config = load_broker_config(path)
    assert config.num_partitions == 3
    assert config.log_retention_hours == 2


def test_a_key_that_begins_another_is_quoted(tmp_path: Path) -> None:
    path = write(tmp_path, '"max.connections" = 5\n"max.connections.per.ip" = 2\n')
    config = load_broker_config(path)
    assert (config.max_connections, config.max_connections_per_ip) == (5, 2)


def test_precedence_of_flags_options_and_file(tmp_path: Path) -> None:
    path = write(tmp_path, "num.partitions = 2\nnode.id = 2\ndurability = 'memory'\n")
    config = load_broker_config(
        path,
        ["num.partitions=3", "node.id=3", "num.partitions=4"],
        {"node.id": 5, "broker.rack": None},
    )
    assert (config.durability, config.num_partitions, config.node_id) == ("memory", 4, 5)
    assert config.broker_rack is None


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        ("a=b", ("a", "b")),
        ("a=", ("a", "")),
        ("a=b=c", ("a", "b=c")),
        (" a = b ", ("a", " b ")),
    ],
)
def test_an_option_is_split_at_the_first_sign(option: str, parts: tuple[str, str]) -> None:
    assert split_option(option) == parts


@pytest.mark.parametrize("option", ["", "a", "=b", " =b"])
def test_an_option_needs_a_key_and_a_sign(option: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        split_option(option)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("num.partitions = ", "not TOML"),
        ("a = 1\na = 2", "not TOML"),
        ("num.partitions = 1\nnum.partitions.x = 1", "not TOML"),
        ("num.partitions = 1.5", "num.partitions=1.5: expected a whole number"),
        ("num.partitions = 1979-05-27", "expected a whole number"),
        ("durability = ['fsync']", "expected one of fsync, memory"),
        ("partitions = 1", "unknown configuration 'partitions'"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_broker_config(write(tmp_path, text))
    assert why in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: No such file"):
        read_file(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.toml: not TOML"):
        read_file(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "# Kafka\nbroker.id=0\nlisteners=PLAINTEXT://localhost:9092\n",
            'in quotes, unlike in Kafka\'s properties: listeners = "PLAINTEXT://localhost:9092"',
        ),
        ("num.partitions=1\ndurability: fsync\n", 'durability = "fsync"'),
    ],
)
def test_a_file_of_properties_is_refused_with_what_to_write(
    tmp_path: Path, text: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_file(write(tmp_path, text))
    assert "not TOML" in str(refused.value)
    assert str(refused.value).endswith(hint)
    tomllib.loads(hint.rpartition(": ")[2])


@pytest.mark.parametrize(
    ("listeners", "words"),
    [
        (("h:70000",), "listeners=h:70000: expected a port from 0 to 65535, not 70000"),
        (("a:1", "h:99999"), "listeners=a:1,h:99999: expected a port from 0 to 65535, not 99999"),
        (("localhost",), "'localhost' has no port"),
        (("http://h:9092",), "the name of a listener before ://, as PLAINTEXT://h:9092"),
    ],
)
def test_a_wrong_listener_is_named(listeners: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_broker_config(flags={"listeners": listeners})
    assert words in str(refused.value)
