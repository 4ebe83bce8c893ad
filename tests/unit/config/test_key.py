"""A key takes what its definition allows, and says of anything else what it expected."""

import re
from typing import Any

import pytest

from qbus.config import BROKER_CONFIG, TOPIC_CONFIG, ConfigKey, ConfigType
from qbus.errors import ConfigError


def key(type_: ConfigType, **rest: Any) -> ConfigKey:
    return ConfigKey(name="some.key", type=type_, default=None, doc="Something.", **rest)


@pytest.mark.parametrize(
    ("type_", "raw", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.BOOLEAN, True, True),
        (ConfigType.INT, "42", 42),
        (ConfigType.INT, " -1 ", -1),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, 42, 42),
        (ConfigType.INT, str(2**31 - 1), 2**31 - 1),
        (ConfigType.INT, str(-(2**31)), -(2**31)),
        (ConfigType.LONG, str(2**63 - 1), 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.DOUBLE, 2, 2.0),
        (ConfigType.STRING, " text ", "text"),
        (ConfigType.LIST, "a, b,,c ", ("a", "b", "c")),
        (ConfigType.LIST, ["a", "b"], ("a", "b")),
        (ConfigType.LIST, "", ()),
        (ConfigType.PASSWORD, " secret ", " secret "),
    ],
)
def test_reads_text_and_toml_values(type_: ConfigType, raw: object, value: object) -> None:
    assert key(type_).parse(raw) == value


@pytest.mark.parametrize(
    ("type_", "raw"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, "1"),
        (ConfigType.BOOLEAN, 1),
        (ConfigType.INT, ""),
        (ConfigType.INT, "soon"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, 1.0),
        (ConfigType.INT, True),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "0x10"),
        (ConfigType.INT, "--1"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, str(2**31)),
        (ConfigType.INT, "9" * 5_000),
        (ConfigType.LONG, str(2**63)),
        (ConfigType.LONG, 10**400),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.DOUBLE, 10**400),
        (ConfigType.DOUBLE, "half"),
        (ConfigType.STRING, 5),
        (ConfigType.LIST, [1, 2]),
        (ConfigType.LIST, {"a": 1}),
        (ConfigType.PASSWORD, None),
    ],
)
def test_refuses_values_of_another_type(type_: ConfigType, raw: object) -> None:
    with pytest.raises(ConfigError, match=r"^some\.key="):
        key(type_).parse(raw)


@pytest.mark.parametrize("raw", ["0", "1", "10"])
def test_takes_a_range_with_its_ends(raw: str) -> None:
    assert key(ConfigType.INT, at_least=0, at_most=10).parse(raw) == int(raw)


@pytest.mark.parametrize("raw", ["-1", "11"])
def test_refuses_values_out_of_range(raw: str) -> None:
    with pytest.raises(ConfigError) as refused:
        key(ConfigType.INT, at_least=0, at_most=10, unit="ms").parse(raw)
    assert str(refused.value) == f"some.key={raw}: expected a whole number of ms from 0 to 10"


def test_names_the_choices() -> None:
    with pytest.raises(ConfigError) as refused:
        key(ConfigType.STRING, choices=("fsync", "memory")).parse("maybe")
    assert str(refused.value) == "some.key=maybe: expected one of fsync, memory"


def test_checks_each_item_of_a_list() -> None:
    fruits = key(ConfigType.LIST, choices=("apple", "pear"))
    assert fruits.parse("pear,apple") == ("pear", "apple")
    with pytest.raises(ConfigError, match="expected one of apple, pear"):
        fruits.parse("pear,stone")


def test_says_why_something_is_not_supported() -> None:
    policy = key(ConfigType.LIST, choices=("delete",), refused={"compact": "not yet"})
    with pytest.raises(ConfigError, match=r"^some\.key=delete,compact: not yet$"):
        policy.parse("delete,compact")
    with pytest.raises(ConfigError, match=r"^some\.key=TRUE: never$"):
        key(ConfigType.BOOLEAN, refused={"true": "never"}).parse("TRUE")


def test_never_shows_a_secret() -> None:
    def refuse(_: object) -> None:
        raise ValueError("something better")

    secret = key(ConfigType.PASSWORD, check=refuse)
    assert secret.sensitive
    with pytest.raises(ConfigError) as refused:
        secret.parse("hunter2")
    assert "hunter2" not in str(refused.value)


def test_abbreviates_a_huge_value() -> None:
    with pytest.raises(ConfigError) as refused:
        key(ConfigType.INT).parse("x" * 1_000_000)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("rest", "allowed"),
    [
        ({}, "a whole number"),
        ({"unit": "bytes", "at_least": 4}, "a whole number of bytes, at least 4"),
        ({"at_most": 9}, "a whole number, at most 9"),
    ],
)
def test_the_allowed_values_in_words(rest: dict[str, Any], allowed: str) -> None:
    assert key(ConfigType.INT, **rest).allowed == allowed


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (ConfigType.BOOLEAN, True, "true"),
        (ConfigType.LIST, ("a", "b"), "a,b"),
        (ConfigType.LIST, (), ""),
        (ConfigType.LONG, -1, "-1"),
        (ConfigType.DOUBLE, 0.5, "0.5"),
        (ConfigType.STRING, None, None),
    ],
)
def test_writes_values_as_kafka_does(type_: ConfigType, value: object, text: str | None) -> None:
    assert key(type_).format(value) == text


def test_the_allowed_values_are_without_those_that_are_refused() -> None:
    assert TOPIC_CONFIG["preallocate"].allowed == "false"
    assert BROKER_CONFIG["log.preallocate"].allowed == "false"
    for raw in ("TRUE", "true", True):
        with pytest.raises(ConfigError, match="only false is supported"):
            TOPIC_CONFIG["preallocate"].parse(raw)


@pytest.mark.parametrize("key", [*BROKER_CONFIG.values(), *TOPIC_CONFIG.values()], ids=repr)
def test_no_refused_value_is_among_the_allowed(key: ConfigKey) -> None:
    assert not key.refused.keys() & set(re.findall(r"[\w.-]+", key.allowed))
