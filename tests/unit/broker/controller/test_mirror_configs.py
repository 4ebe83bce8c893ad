"""The mirror keys of a topic: set at its creation, and removed once."""

import pytest

from qbus.broker.controller.configs import FORMER_MIRROR_SOURCE, MIRROR_SOURCE, with_mirror_source
from qbus.errors import ConfigError

MIRROR = {MIRROR_SOURCE: "a", "qbus.mirror.path": "a,b", "retention.ms": "5"}


def test_what_does_not_concern_mirrors_is_as_edited() -> None:
    assert with_mirror_source({"retention.ms": "5"}, {"flush.ms": "6"}) == {"flush.ms": "6"}
    assert with_mirror_source(MIRROR, MIRROR | {"retention.ms": "7"}) == MIRROR | {
        "retention.ms": "7"
    }


@pytest.mark.parametrize("current", [{}, {"retention.ms": "5"}, {FORMER_MIRROR_SOURCE: "b"}])
def test_a_topic_that_is_there_becomes_no_mirror(current: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"mirror\.source=b: only a new topic"):
        with_mirror_source(current, current | {MIRROR_SOURCE: "b"})


def test_a_mirror_does_not_become_that_of_another_idc() -> None:
    with pytest.raises(ConfigError, match="only a new topic"):
        with_mirror_source(MIRROR, MIRROR | {MIRROR_SOURCE: "b"})


@pytest.mark.parametrize(
    "edited", [{"retention.ms": "5"}, {MIRROR_SOURCE: ""}, {MIRROR_SOURCE: " "}]
)
def test_a_former_mirror_keeps_its_former_source(edited: dict[str, str]) -> None:
    settled = with_mirror_source(MIRROR, edited)
    assert settled[FORMER_MIRROR_SOURCE] == "a"
    assert MIRROR_SOURCE not in settled


@pytest.mark.parametrize("edited", [{}, {FORMER_MIRROR_SOURCE: "b"}, {FORMER_MIRROR_SOURCE: ""}])
def test_that_a_topic_was_a_mirror_cannot_be_changed(edited: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="only the broker sets it"):
        with_mirror_source({FORMER_MIRROR_SOURCE: "a"}, edited)


def test_what_a_topic_never_was_cannot_be_said() -> None:
    with pytest.raises(ConfigError, match="only the broker sets it"):
        with_mirror_source({}, {FORMER_MIRROR_SOURCE: "a"})
    with pytest.raises(ConfigError, match="only the broker sets it"):
        with_mirror_source(MIRROR, MIRROR | {FORMER_MIRROR_SOURCE: "a"})


def test_it_ends_once() -> None:
    ended = with_mirror_source(MIRROR, {})
    assert with_mirror_source(ended, ended | {"flush.ms": "1"}) == ended | {"flush.ms": "1"}
