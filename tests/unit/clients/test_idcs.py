"""Topics everywhere, by their names."""

import pytest

import qbus
import qbus.aio
from qbus import everywhere
from qbus.errors import ApiError, ConfigError


def test_it_is_there_for_both_kinds_of_programs() -> None:
    assert qbus.everywhere is qbus.aio.everywhere


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("orders", ""),
        ("web.clicks", ""),
        ("a.orders", "a"),
        ("idc_1.web.clicks", "idc_1"),
        ("clicks", None),
        (".orders", None),
        ("a.b.orders", None),
        ("orders.a", None),
        ("aorders", None),
    ],
)
def test_whose_topic_a_name_stands_for(name: str, origin: str | None) -> None:
    assert everywhere("orders", "web.clicks").origin(name) == origin


def test_nothing_and_what_is_no_topic_is_refused() -> None:
    with pytest.raises(ConfigError):
        everywhere()
    with pytest.raises(ApiError):
        everywhere("orders", "no topic")
