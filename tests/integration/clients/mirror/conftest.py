"""Two datacenters for these tests, with a broker each."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

_numbers = itertools.count()


@pytest.fixture(scope="module")
def idcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """The source and the target."""
    directory: Path = tmp_path_factory.mktemp("idcs")
    quick = ("-o", "group.initial.rebalance.delay.ms=0")
    with (
        BrokerProcess(directory / "a", *quick) as source,
        BrokerProcess(directory / "b", *quick) as target,
    ):
        yield source, target


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A fresh name for a topic."""
    return f"{request.function.__name__}-{next(_numbers)}"
