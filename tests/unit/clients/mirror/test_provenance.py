"""The provenance of a topic is written into its configuration and read from it."""

import pytest

from qbus.clients.mirror.provenance import PATH, SOURCE, TOPIC_ID, Provenance


@pytest.mark.parametrize(
    "provenance",
    [Provenance("a", "id", ("a",)), Provenance("a", "", ("a", "b", "c"))],
)
def test_there_and_back(provenance: Provenance) -> None:
    assert Provenance.of(provenance.config()) == provenance


@pytest.mark.parametrize("config", [{}, {SOURCE: ""}, {PATH: "a,b"}, {"retention.ms": "1"}])
def test_no_mirror(config: dict[str, str]) -> None:
    assert Provenance.of(config) is None


def test_missing_keys_have_defaults() -> None:
    assert Provenance.of({SOURCE: "a"}) == Provenance("a", "", ("a",))
    assert Provenance.of({SOURCE: "a", PATH: " a , b ", TOPIC_ID: "x"}) == Provenance(
        "a", "x", ("a", "b")
    )


def test_one_hop_further() -> None:
    assert Provenance("a", "x", ("a",)).through("b") == Provenance("a", "x", ("a", "b"))
