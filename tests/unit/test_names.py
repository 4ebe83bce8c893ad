"""Names of topics, and of znodes for names that may be anything."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import paths
from qbus.names import (
    check_topic_name,
    collision_key,
    escape,
    is_topic_name,
    sanitise,
    unescape,
    unsanitise,
)

HOSTILE = [
    "",
    ".",
    "..",
    "...",
    "../x",
    "../../etc/passwd",
    "/",
    "//",
    "a/b",
    "\0",
    "a\0b",
    "\n",
    "%",
    "%%",
    "%2E",
    "%2e",
    " ",
    "~",
    "ünïcode",
    "日本語",
    "🚌",
    "\ud800",
    "x" * 10_240,
    "/" * 10_240,
    "zookeeper",
]


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "_", "-", "x" * 249, "__consumer_offsets"])
def test_a_topic_may_be_called(name: str) -> None:
    check_topic_name(name)
    assert is_topic_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        (".", "is '.'"),
        ("..", "is '..'"),
        ("x" * 250, "is 250 characters long, at most 249 are allowed"),
        ("a b", "has other characters"),
        ("a/b", "has other characters"),
        ("../a", "has other characters"),
        ("a\n", "has other characters"),
        ("a\0", "has other characters"),
        ("ä", "has other characters"),
        ("٣", "has other characters"),
        ("a:b", "has other characters"),
    ],
)
def test_a_topic_may_not_be_called(name: str, why: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(ApiError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert why in str(refused.value)


def test_a_huge_topic_name_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(ApiError) as refused:
        check_topic_name("/" * 32_000)
    assert len(str(refused.value)) < 200


def test_names_collide_when_only_dots_and_underscores_tell_them_apart() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") == collision_key("a_b_c")
    assert collision_key("a.b") != collision_key("a-b")


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_becomes_one_component_of_a_path_and_comes_back(name: str) -> None:
    znode = escape(name)
    assert unescape(znode) == name
    paths.check(f"/consumers/{znode}")
    assert paths.split(f"/consumers/{znode}") == ("/consumers", znode)
    assert set(znode) <= set(string.ascii_letters + string.digits + "-_.~%")


@given(st.text(st.characters()))
def test_every_name_comes_back(name: str) -> None:
    assert unescape(escape(name)) == name


@given(st.sets(st.text(st.characters()), min_size=2, max_size=2))
def test_two_names_never_become_the_same(names: set[str]) -> None:
    first, second = names
    assert escape(first) != escape(second)


def test_usual_names_stay_readable() -> None:
    assert escape("my-group_1.prod") == "my-group_1.prod"
    assert escape("a b") == "a%20b"


@pytest.mark.parametrize("znode", ["", ".", "..", "a b", "%2e", "%zz", "%41", "a%", "%ff", "ä"])
def test_what_escaping_never_gives_is_refused(znode: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unescape(znode)


@given(st.text())
def test_every_user_comes_back(name: str) -> None:
    assert unsanitise(sanitise(name)) == name
    paths.check(f"/config/users/{sanitise(name)}")


def test_users_are_escaped_as_kafka_does_it() -> None:
    assert sanitise("a.b-c_d") == "a.b-c_d"
    assert sanitise("a b+c*d~e/f") == "a%20b%2Bc%2Ad%7Ee%2Ff"
