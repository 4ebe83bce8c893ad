"""Options: any case, typed, and refused by name with what to do instead."""

import pytest

from qbus.clients.spark.options import SECURITY, OptionError, Options


def test_names_are_of_any_case() -> None:
    options = Options({"MaxOffsetsPerTrigger": "5"})
    assert options.integer("maxoffsetspertrigger", 1) == 5
    assert "maxOffsetsPerTrigger" in options
    assert options.among(["other", "maxOffsetsPerTrigger"]) == ["maxOffsetsPerTrigger"]


def test_options_have_defaults() -> None:
    options = Options({})
    assert options.text("a", "b") == "b"
    assert options.integer("a", 7) == 7
    assert options.maybe_integer("a") is None
    assert options.boolean("a", True) is True
    assert options.choice("a", "Two", ["one", "two"]) == "two"
    assert options.milliseconds("a", 9) == 9


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250", 250), ("250ms", 250), ("3 s", 3000), ("15m", 900_000), ("1H", 3_600_000)],
)
def test_times_have_units(text: str, milliseconds: int) -> None:
    assert Options({"a": text}).milliseconds("a", 0) == milliseconds


@pytest.mark.parametrize("text", ["", "-1s", "1.5s", "1 week", "s"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option delay: .*give a time"):
        Options({"delay": text}).milliseconds("delay", 0)


@pytest.mark.parametrize("text", ["", "many", "1e3", "0"])
def test_invalid_numbers_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option rows: .*give a whole number"):
        Options({"rows": text}).maybe_integer("rows", minimum=1)


def test_other_words_are_refused() -> None:
    options = Options({"a": "yes", "b": "three"})
    with pytest.raises(OptionError, match="option a: 'yes': give true or false"):
        options.boolean("a", True)
    with pytest.raises(OptionError, match="option b: 'three': give one of one, two"):
        options.choice("b", "one", ["one", "two"])


@pytest.mark.parametrize("value", [{}, {"a": "  "}])
def test_required_options_must_not_be_empty(value: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"option a: .*name one"):
        Options(value).required("a", "name one")


def test_misspelt_options_are_refused() -> None:
    with pytest.raises(OptionError, match="did you mean maxOffsetsPerTrigger"):
        Options({"maxOffsetPerTrigger": "1"}).check(["maxOffsetsPerTrigger"])


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("kafka.auto.offset.reset", "startingOffsets"),
        ("Kafka.Key.Deserializer", "cast"),
        ("path", "subscribe"),
    ],
)
def test_unsupported_options_are_refused_with_a_reason(name: str, word: str) -> None:
    with pytest.raises(OptionError, match=word) as caught:
        Options({name: "value"}).check(["subscribe"])
    assert caught.value.option == name.lower()


def test_options_of_security_are_left_to_the_cluster() -> None:
    given = {"kafka.sasl.jaas.config": "hunter2", "subscribe": "t"}
    options = Options(given)
    options.check(["subscribe"])
    assert options.below(SECURITY) == {"kafka.sasl.jaas.config": "hunter2"}


def test_spark_s_own_options_pass() -> None:
    Options({"__internal": "1"}).check([])
