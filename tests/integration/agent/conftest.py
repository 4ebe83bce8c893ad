"""One broker for all tests, a topic for each."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "bootstrap" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), "-o", "num.partitions=3") as broker:
        yield broker.bootstrap


@pytest.fixture
def topic() -> str:
    """A topic of its own, of three partitions."""
    return f"lines-{next(_numbers)}"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Where logs are written."""
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory
