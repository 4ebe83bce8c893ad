"""Templates: constant for a file if possible, and bytes for any file name."""

import os

import pytest

from qbus.agent.config import Template

VALUES: dict[str, bytes | str | int] = {
    "host": "web-1",
    "path": "/var/log/a.log",
    "name": "a.log",
    "inode": 7,
    "env.DC": "north",
}


def render(text: str, offset: int = 12) -> bytes:
    return Template.parse(text).bind(VALUES).render(offset)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("", b""),
        ("plain", b"plain"),
        ("{host}:{path}", b"web-1:/var/log/a.log"),
        ("{name}@{offset}", b"a.log@12"),
        ("{offset}-{inode}-{offset}", b"12-7-12"),
        ("{{host}} {env.DC}", b"{host} north"),
        ("100% %d %s {offset}%", b"100% %d %s 12%"),
        ("100% %d", b"100% %d"),
        ("ü{host}", "üweb-1".encode()),
    ],
)
def test_variables_are_filled_in(text: str, rendered: bytes) -> None:
    assert render(text) == rendered


def test_a_template_without_offset_is_rendered_once() -> None:
    bound = Template.parse("{host}:{path}").bind(VALUES)
    assert bound.constant == b"web-1:/var/log/a.log"
    assert bound.render(1) is bound.render(2)


def test_a_template_with_offset_is_rendered_for_each_record() -> None:
    assert Template.parse("{offset}").bind(VALUES).constant is None


@pytest.mark.parametrize("text", ["x", "{offset}", "{offset}{offset}"])
def test_many_at_once_are_the_same_as_one_by_one(text: str) -> None:
    bound = Template.parse(text).bind(VALUES)
    assert bound.render_all([1, 20]) == [bound.render(1), bound.render(20)]


def test_names_that_are_no_text_stay_as_they_are() -> None:
    path = os.fsdecode(b"/log/\xff%d.log")
    assert Template.parse("{path}").bind({"path": path}).render(0) == b"/log/\xff%d.log"
    assert Template.parse("{path}").bind({"path": b"/log/\xff"}).render(0) == b"/log/\xff"


def test_a_template_names_its_environment_variables() -> None:
    assert Template.parse("{env.DC}{host}{env.ROLE}").environment == {"DC", "ROLE"}


@pytest.mark.parametrize("text", ["{", "}", "{}", "{0}", "{hosts}", "{host.x}", "{path[0]}"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Template.parse(text)
