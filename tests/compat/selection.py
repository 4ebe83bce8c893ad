"""Which clients a test runs with."""

from typing import Any

import pytest

from .clients import ALL


def clients_with(*methods: str, but_not: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run the test with each client whose driver has these methods; the fixture is ``client``."""
    return pytest.mark.parametrize(
        "client",
        [one for one in _able(methods) if one.name not in but_not],
        indirect=True,
        ids=lambda one: one.name,
    )


def with_each_compression(*methods: str) -> pytest.MarkDecorator:
    """Run the test with each of those clients and each ``compression`` that it knows."""
    return pytest.mark.parametrize(
        ("client", "compression"),
        [
            pytest.param(one, compression, id=f"{one.name}-{compression}")
            for one in _able(methods)
            for compression in one.compressions
        ],
        indirect=["client"],
    )


def _able(methods: tuple[str, ...]) -> list[Any]:
    able = [one for one in ALL if all(hasattr(one, method) for method in methods)]
    assert able, f"no client has {methods}"
    return able
