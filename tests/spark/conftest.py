"""One Spark and one broker for all tests of a process; each test has topics of its own."""

import itertools
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from qbus import Admin, Producer
from tests.support import spark_session
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import StartupTimeout
from tests.support.tools import skip_because_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.integration)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Tell a test for which Spark's processes did not start in time from one that failed."""
    try:
        yield
    except Exception as error:
        if _is_from_spark(error) and spark_session.has_timed_out(error):
            raise StartupTimeout(f"a process of Spark did not start in time: {error}") from error
        raise


def _is_from_spark(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}


@pytest.fixture(scope="session")
def session() -> "Iterator[SparkSession]":
    """Spark, with two cores, in the test's process."""
    skip_because_of(spark_session.missing())
    with spark_session.spark_session() as started:
        yield started


@pytest.fixture
def spark(session: "SparkSession") -> "SparkSession":
    """The session, made the active one.

    A test that forked this process has cost it its connection to the JVM, and on a new one Spark
    knows of no active session, which is where it looks for the sink.
    """
    from pyspark.sql import SparkSession

    sessions = SparkSession._get_j_spark_session_class(session._jvm)
    sessions.setActiveSession(session._jsparkSession)
    return session


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that no test stops."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as client:
        yield client


@pytest.fixture(scope="session")
def producer(broker: BrokerProcess) -> Iterator[Producer]:
    with Producer(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic with two partitions."""
    name = f"topic-{next(_numbers)}"
    admin.create_topic(name, partitions=2)
    return name
