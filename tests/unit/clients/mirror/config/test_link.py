"""Names are selected by patterns that match them as a whole."""

import pytest

from qbus.clients.mirror.config import Selection


@pytest.mark.parametrize(
    ("include", "exclude", "name", "expected"),
    [
        (("orders",), (), "orders", True),
        (("orders",), (), "orders2", False),
        (("orders",), (), "my-orders", False),
        (("orders.*",), (), "orders.eu", True),
        ((".*",), ("__.*",), "__offsets", False),
        ((".*",), ("__.*",), "a__b", True),
        (("a", "b|c"), (), "c", True),
        (("(?i)ORDERS", "x"), (), "orders", True),
        ((), (), "orders", False),
        ((".*",), (), "", True),
    ],
)
def test_names(
    include: tuple[str, ...], exclude: tuple[str, ...], name: str, expected: bool
) -> None:
    assert (name in Selection(include, exclude)) is expected


def test_only_strings_are_selected() -> None:
    assert None not in Selection((".*",))
